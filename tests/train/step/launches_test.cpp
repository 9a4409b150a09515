// Launches of whole training steps on a GPU, at sizes that only a GPU computes. Nothing runs: the
// simulated device checks grids, blocks, shared memory and pointers. Simulated builds only.
#ifdef SKYTAPE_CUDA_SIMULATED

#include <string>

#include "attention/registry.hpp"
#include "tensor/gemm/precision.hpp"
#include "tests/cuda_simulator/simulator.hpp"
#include "tests/support/doctest.hpp"
#include "train/lab/bench/bench.hpp"
#include "train/step/trainer.hpp"

using namespace skytape;
using namespace skytape::train;
using cuda_simulator::LaunchesOnly;

namespace {

struct Counts {
  std::int64_t kernels = 0, products = 0;
  std::uint64_t largest_grid = 0;
};

BenchCase case_of(const std::string& method, std::int64_t n, std::int64_t batch,
                  const char* precision) {
  BenchCase c;
  c.attention = method;
  c.n = n;
  c.batch = batch;
  c.features = 128;
  c.device = Device::cuda;
  c.precision = precision;
  return c;
}

/// A model in training.
struct Run {
  RunConfig config;
  PrecisionScope precision;
  nn::Model model;
  data::Batch batch;
  Trainer trainer;

  explicit Run(const BenchCase& c)
      : config(configure(c)),
        precision(c.device, parse_precision(c.precision)),
        model(config.model, DType::f32, c.device, 1),
        batch(bench_batch(c, config.model)),
        trainer(model, config.adamw, config.schedule, 1, {}, false) {}
  void step() { trainer.step(batch); }
};

/// One step, only launched; throws if the device refuses one of its launches.
Counts launches_of(const std::string& method, std::int64_t n, std::int64_t batch,
                   const char* precision) {
  const LaunchesOnly only;
  Run run(case_of(method, n, batch, precision));
  run.step();
  return {LaunchesOnly::kernels(), LaunchesOnly::products(), LaunchesOnly::largest_grid()};
}

}  // namespace

TEST_CASE("every method's step at 65,536 tokens and 32 examples stays within a GPU's limits") {
  for (const attention::Spec& spec : attention::registry()) {
    for (const char* precision : {"fp32", "bf16"}) {
      CAPTURE(spec.name);
      CAPTURE(std::string(precision));
      const Counts large = launches_of(spec.name, 65536, 32, precision);
      const Counts smaller = launches_of(spec.name, 32768, 16, precision);
      CHECK(large.largest_grid > smaller.largest_grid);
      CHECK(large.kernels > 0);
      // At bf16 kernels of our own may compute all products.
      if (std::string(precision) == "fp32") CHECK(large.products > 0);
      // No launch storm: the number of launches does not grow with n or batch; with blocks of rows
      // it grows as n^2, and each of them is a product that fills the device.
      const std::int64_t most = spec.by_rows ? 4 : 1;
      CHECK(large.kernels >= smaller.kernels);
      CHECK(large.kernels <= most * smaller.kernels);
      CHECK(large.products >= smaller.products);
      CHECK(large.products <= most * smaller.products);
    }
  }
}
#endif
