// Whole steps on a GPU: it takes every method in the papers' model at a ragged length. The suite
// "gpu" is a check of `make gpu-check`; a simulated device takes one method, made small.
#include <cmath>
#include <string>
#include <vector>

#include "attention/registry.hpp"
#include "data/tokenise.hpp"
#include "tensor/gemm/precision.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/doctest.hpp"
#include "tests/train/cli/workshop.hpp"
#include "train/lab/bench/bench.hpp"
#include "train/step/trainer.hpp"

using namespace skytape;
using namespace skytape::train;

namespace {

#ifdef SKYTAPE_CUDA_SIMULATED
constexpr bool kSmall = true;
#else
constexpr bool kSmall = false;
#endif
constexpr std::int64_t kLength = kSmall ? 16 : 600;
constexpr std::int64_t kFeatures = kSmall ? 4 : 128;
constexpr int kSteps = kSmall ? 4 : 8;
constexpr double kLr = 1e-3;  // high enough for a wrong gradient to show in the losses

std::vector<std::string> methods() {
  if (kSmall) return {"skyformer"};
  std::vector<std::string> all;
  for (const attention::Spec& spec : attention::registry()) all.push_back(spec.name);
  return all;
}

/// Examples of which one is padded; every third batch has another layout.
data::Batch batch_of(int step) {
  const std::int64_t longest = step % 3 == 1 ? kLength / 2 : kLength;
  std::vector<data::Tokens> examples;
  for (const std::int64_t length : {longest, longest, longest - 7, longest}) {
    std::vector<std::int32_t> ids;
    for (std::int64_t j = 0; j < length; ++j) {
      ids.push_back(static_cast<std::int32_t>(1 + (j * j + 5 * std::ssize(examples) + step) % 15));
    }
    examples.push_back({ids});
  }
  data::BatchOptions options;
  options.nominal_length = kLength;
  options.trim = true;
  data::Batch batch = data::pad(examples, options);
  for (std::size_t i = 0; i < examples.size(); ++i) {
    batch.labels[i] = static_cast<std::int32_t>(i) % 3;
  }
  return batch;
}

/// A model in training, with dropout.
struct Run {
  RunConfig config;
  PrecisionScope precision;
  nn::Model model;
  Trainer trainer;
  std::vector<double> losses;

  Run(const std::string& method, Device device, const char* precision_name, bool graphs)
      : config(configured(method, device, precision_name)),
        precision(device, parse_precision(precision_name)),
        model(config.model, DType::f32, device, 7),
        trainer(model, {}, {kLr, 1000, 2}, 7, {}, graphs) {
    for (int step = 0; step < kSteps; ++step) {
      trainer.step(batch_of(step));
      losses.push_back(trainer.take_metrics().loss);
    }
  }

  static RunConfig configured(const std::string& method, Device device, const char* precision) {
    BenchCase c;
    c.attention = method;
    c.recipe = "skyformer";
    c.device = device;
    c.precision = precision;
    c.n = kLength;
    c.batch = 4;
    c.features = kFeatures;
    return configure(c);
  }
  [[nodiscard]] std::vector<double> weights() { return model.parameters().values().to_vector(); }
};

}  // namespace

TEST_SUITE_BEGIN("gpu");

TEST_CASE("the losses of every method's first steps are those of the CPU") {
  if (!test::cuda_or_skip()) return;
  for (const std::string& method : methods()) {
    CAPTURE(method);
    const Run cpu(method, Device::cpu, "fp32", false), cuda(method, Device::cuda, "fp32", false);
    for (std::size_t step = 0; step < cpu.losses.size(); ++step) {
      CAPTURE(step);
      CHECK(std::abs(cuda.losses[step] - cpu.losses[step]) <= 1e-3 * cpu.losses[step]);
    }
    CHECK(cpu.losses.front() != cpu.losses.back());
  }
}

TEST_CASE("direct steps, replayed ones, and these again, end with the same bits") {
  if (!test::cuda_or_skip()) return;
  for (const char* precision : {"bf16", "fp32", "tf32"}) {
    for (const std::string& method : methods()) {
      CAPTURE(std::string(precision));
      CAPTURE(method);
      Run direct(method, Device::cuda, precision, false);
      Run once(method, Device::cuda, precision, true), again(method, Device::cuda, precision, true);
      CHECK(direct.trainer.graphs().counts().replayed == 0);
      CHECK(once.trainer.graphs().counts().replayed > 0);
      CHECK(once.weights() == direct.weights());
      CHECK(again.weights() == once.weights());
    }
  }
}

TEST_CASE("a grid with four cells at a time gives the table of one at a time") {
  if (!test::program_or_skip() || !test::cuda_or_skip()) return;
  const test::Workshop w;
  const auto table = [&](const std::string& jobs) {
    const std::string runs = w.run("jobs" + jobs).string();
    std::vector<std::string> arguments = {"lra",
                                          "--tasks",
                                          "listops",
                                          "--attentions",
                                          "skyformer,linformer",
                                          "--seeds",
                                          "2",
                                          "--device",
                                          "cuda",
                                          "--data",
                                          w.data.string(),
                                          "--jobs",
                                          jobs,
                                          "--out",
                                          runs,
                                          "--set",
                                          "eval_every=20",
                                          "eval_examples=16",
                                          "final_examples=16"};
    const std::vector<std::string> size =
        kSmall ? std::vector<std::string>{"width=8", "ff_width=8", "max_length=16", "--steps", "4",
                                          "--batch", "2"}
               : std::vector<std::string>{"max_length=600", "--steps", "40"};
    arguments.insert(arguments.end(), size.begin(), size.end());
    const test::Finished f = w.finish(arguments);
    CAPTURE(f.err);
    REQUIRE(f.code == 0);
    return data::synthetic::read_file(runs + "/lra.csv");
  };
  const std::string one = table("1");
  CHECK(one.find("skyformer") != std::string::npos);
  CHECK(table("4") == one);
}

TEST_SUITE_END();
