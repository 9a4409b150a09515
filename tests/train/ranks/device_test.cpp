// Ranks that train on a GPU each: simulated ones, of which every process has its own.
#include <algorithm>
#include <cstdlib>

#include "tests/support/doctest.hpp"
#include "tests/train/ranks/job.hpp"

using namespace skytape;
using namespace skytape::test;

namespace {

bool simulated_or_skip() {
  if (!mpirun_or_skip()) return false;
  const std::string asked = R"("$SKYTAPE_PROGRAM" --version | grep -q 'CUDA .*simulated')";
  if (std::system(asked.c_str()) == 0) return true;
  MESSAGE("skipped: this program has no simulated GPU (make CUDA=simulated)");
  return false;
}

/// A run on the GPU, as short as a simulation has to be, and patient with a slow one.
std::vector<std::string> on_gpu(const Workshop& w, const std::string& name,
                                std::vector<std::string> more = {}) {
  more.insert(more.end(), {"--attention", "linformer", "--rank-timeout", "600", "--set", "layers=1",
                           "--set", "eval_examples=8"});
  std::vector<std::string> words = train_together(w, name, 3, std::move(more));
  *std::find(words.begin(), words.end(), "cpu") = "cuda";
  return words;
}

}  // namespace

TEST_CASE("two ranks with a GPU each repeat their bits, and in order end with those of one") {
  if (!simulated_or_skip()) return;
  const Workshop w;
  const Finished alone = w.finish(on_gpu(w, "alone"));
  CAPTURE(alone.err);
  REQUIRE(alone.code == 0);
  for (const char* name : {"ordered", "fast", "again"}) {
    const char* const reduce = std::string(name) == "ordered" ? "ordered" : "fast";
    const Finished job = w.finish(on_gpu(w, name, {"--reduce", reduce}), ranks(2));
    CAPTURE(job.err);
    REQUIRE(job.code == 0);
  }
  const auto last = [&](const char* name) { return w.run(name) / "last.safetensors"; };
  CHECK(same_tensors(last("fast"), last("again")));
  CHECK(largest_difference(last("alone"), last("fast")) < 1e-5);
  CHECK(same_tensors(last("alone"), last("ordered")));
}
