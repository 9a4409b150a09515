// The program's means to spend no minute of a GPU on what nobody asked for, and what it says of
// replays.
#include <algorithm>
#include <sstream>

#include "attention/registry.hpp"
#include "data/files/json.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/doctest.hpp"
#include "tests/train/cli/workshop.hpp"
#include "train/run/run_folder.hpp"

using namespace skytape;
using namespace skytape::test;

TEST_CASE("info attention --names prints every method's name on a separate line") {
  if (!program_or_skip()) return;
  const Workshop w;
  std::string names;
  for (const attention::Spec& spec : attention::registry()) names += spec.name + "\n";
  const Finished f = w.finish({"info", "attention", "--names"});
  CHECK(f.code == 0);
  CHECK(f.out == names);
}

TEST_CASE("bench --no-rates multiplies and copies nothing of its own") {
  if (!program_or_skip()) return;
  const Workshop w;
  const std::string file = (w.folder.path() / "bench.json").string();
  const Finished f = w.finish({"bench", "--device", "cpu", "--attention", "vmean", "--n", "50",
                               "--batch", "1", "--steps", "1", "--no-rates", "--json", file});
  CAPTURE(f.err);
  REQUIRE(f.code == 0);
  CHECK(contains(f.out, "rates not measured"));
  const data::Json report = train::read_json(file);
  CHECK_FALSE(report["machine"].contains("gemm_gflops"));
  CHECK_FALSE(report["machine"].contains("copy_gbs"));
  CHECK(report["results"][0]["gemm_gflops"].is_null());
  CHECK(report["results"][0]["gemm_share"].is_null());
  CHECK(report["results"][0]["step_ms_median"].get<double>() > 0);
}

TEST_CASE("a bench on a GPU says how many steps were replayed, and waits for some of them") {
  if (!program_or_skip() || !cuda_or_skip()) return;
  const Workshop w;
  const std::string report = (w.folder.path() / "bench.json").string();
  const Finished timed = w.finish({"bench", "--device", "cuda", "--precision", "bf16", "--steps",
                                   "1", "--no-rates", "--attention", "vmean,linformer", "--n", "50",
                                   "--batch", "2", "--features", "8", "--json", report});
  CAPTURE(timed.err);
  REQUIRE(timed.code == 0);
  const data::Json results = train::read_json(report)["results"];
  REQUIRE(results.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    // When captured, ten in a row, and the waited-for one behind its two that are not timed.
    CHECK(results[i]["steps_replayed"].get<int>() == 14);
    CHECK(results[i]["waited_step_ms_median"].get<double>() > 0);
  }
}

TEST_CASE("a run that stops on a GPU says how many steps were replayed") {
  if (!program_or_skip() || !cuda_or_skip()) return;
  const Workshop w;
  std::vector<std::string> arguments = w.train("run", 12, {"--stop-after", "4"});
  std::replace(arguments.begin(), arguments.end(), std::string("cpu"), std::string("cuda"));
  std::replace(arguments.begin(), arguments.end(), std::string("accumulate=2"),
               std::string("accumulate=1"));
  const Finished replayed = w.finish(arguments);
  CAPTURE(replayed.err);
  CHECK(replayed.code == 0);
  CHECK(contains(replayed.err, "how steps ran: 3 replayed, 1 of them when captured, 1 op by op"));
  arguments.insert(arguments.end(), {"--no-graph", "--force"});
  CHECK(contains(w.finish(arguments).err,
                 "how steps ran: 0 replayed, 0 of them when captured, 4 op by op"));
}
