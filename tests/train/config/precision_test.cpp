// The precision of a run whose recipe, or user, says `auto`.
#include "tensor/gemm/precision.hpp"

#include <algorithm>

#include "data/files/json.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/doctest.hpp"
#include "tests/train/cli/workshop.hpp"
#include "train/config/resume.hpp"
#include "train/config/run_config.hpp"
#ifdef SKYTAPE_CUDA_SIMULATED
#include "tests/cuda_simulator/simulator.hpp"
#endif

using namespace skytape;
using namespace skytape::test;
using namespace skytape::train;

namespace {

Choices choices(Device device, const std::string& recipe, std::vector<Setting> values = {}) {
  Choices c;
  c.device = device;
  c.recipe = recipe;
  c.settings = std::move(values);
  return c;
}

/// "bf16, recipe skytape: auto on cuda", and the same typed.
std::string described(const RunConfig& config) {
  for (const Setting& s : config.settings) {
    if (s.key != "precision") continue;
    CHECK(parse_precision(s.value) == config.precision);
    return s.value + ", " + s.origin;
  }
  return "none";
}

std::string precision_of(const Choices& c) { return described(resolve(c)); }

const Setting kAuto = {"precision", "auto", "--precision"};
const Setting kBf16 = {"precision", "bf16", "--precision"};

}  // namespace

TEST_CASE("on a CPU a run computes in fp32 unless the user says otherwise") {
  const Device cpu = Device::cpu;
  CHECK(precision_of(choices(cpu, "skytape")) == "fp32, recipe skytape: auto on cpu");
  CHECK(precision_of(choices(cpu, "skyformer")) == "fp32, default");
  CHECK(precision_of(choices(cpu, "skyformer", {kAuto})) == "fp32, --precision: auto on cpu");
  CHECK(precision_of(choices(cpu, "skytape", {kBf16})) == "bf16, --precision");
  CHECK_THROWS_WITH_AS((void)resolve(choices(cpu, "skytape", {{"precision", "fp16", "--set"}})),
                       doctest::Contains("precision: expected auto|fp32|tf32|bf16, got 'fp16'"),
                       UsageError);
}

TEST_CASE("on a GPU recipe skytape computes in bf16, the papers' in fp32") {
  if (!cuda_or_skip()) return;
  const Device gpu = Device::cuda;
  const std::string best =
      automatic_precision(gpu) == Precision::bf16 ? "bf16, " : "fp32, ";  // what this one has
  CHECK(precision_of(choices(gpu, "skytape")) == best + "recipe skytape: auto on cuda");
  CHECK(precision_of(choices(gpu, "skyformer", {kAuto})) == best + "--precision: auto on cuda");
  for (const char* recipe : {"skyformer", "skeinformer", "lra"}) {
    CHECK(precision_of(choices(gpu, recipe)) == "fp32, default");
  }
  CHECK(precision_of(choices(gpu, "skytape", {{"precision", "tf32", "--set"}})) == "tf32, --set");
#ifdef SKYTAPE_CUDA_SIMULATED
  CHECK(best == "bf16, ");
  const cuda_simulator::ComputeCapability older(7);
  CHECK(precision_of(choices(gpu, "skytape")) == "fp32, recipe skytape: auto on cuda");
#endif
}

TEST_CASE("a saved run keeps the precision that auto was; on another device it is decided anew") {
  if (!cuda_or_skip()) return;
  const RunConfig config = resolve(choices(Device::cuda, "skytape"));
  const RunConfig saved = config_from_json(to_json(config), "config.json");
  CHECK(described(saved) == described(config));
  CHECK(described(moved_to(Device::cuda, saved)) == described(config));
  const RunConfig there = moved_to(Device::cpu, saved);
  CHECK(described(there) == "fp32, recipe skytape: auto on cpu");
  CHECK(described(moved_to(Device::cuda, there)) == described(config));
  const RunConfig said = resolve(choices(Device::cuda, "skytape", {kBf16}));
  CHECK(described(moved_to(Device::cpu, said)) == "bf16, --precision");
}

TEST_CASE("a run of auto resumes in the precision it began with, said again or not") {
  if (!cuda_or_skip()) return;
  for (const bool by_user : {false, true}) {
    CAPTURE(by_user);
    std::vector<Setting> values;
    if (by_user) values.push_back(kAuto);
    const RunConfig config = resolve(choices(Device::cuda, "skytape", values));
    const data::Json saved = to_json(config);
    // `--device auto` means another device than the run's on the machine that resumes it.
    const RunConfig plain = resumed(choices(Device::cpu, "skytape"), saved, "config.json");
    CHECK(described(plain) == described(config));
    CHECK(plain.device == Device::cuda);
    const RunConfig again = resumed(choices(Device::cpu, "skytape", {kAuto}), saved, "config.json");
    CHECK(again.precision == config.precision);
    CHECK_THROWS_WITH_AS(
        (void)resumed(choices(Device::cuda, "skytape", {{"precision", "tf32", "--precision"}}),
                      saved, "config.json"),
        doctest::Contains("precision: bf16 there, tf32 here"), UsageError);
  }
}

TEST_CASE("a run in bf16 by recipe is trained, resumed and evaluated on either device") {
  if (!program_or_skip() || !cuda_or_skip()) return;
  const Workshop w;
  std::vector<std::string> train = w.train("run", 4, {"--stop-after", "2"});
  *(std::find(train.begin(), train.end(), "--device") + 1) = "cuda";
  const Finished first = w.finish(train);
  REQUIRE_MESSAGE(first.code == 0, first.err);
  const std::string folder = w.run("run").string();
  const Finished rest = w.finish({"train", "--resume", "--out", folder, "--precision", "auto"});
  CHECK_MESSAGE(rest.code == 0, rest.err);
  CHECK(contains(rest.err, "resuming " + folder + " at step 2"));
  for (const char* device : {"cpu", "cuda"}) {
    const Finished eval = w.finish({"eval", "--run", folder, "--device", device});
    CHECK_MESSAGE(eval.code == 0, eval.err);
  }
}
