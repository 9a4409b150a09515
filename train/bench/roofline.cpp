#include "train/bench/roofline.hpp"

#include <algorithm>

#include "tensor/core/error.hpp"
#include "train/step/trainer.hpp"

namespace skytape::train {
namespace {

constexpr std::uint64_t kSeed = 42;

/// One step of so many examples, computed at once as on a GPU, after one that fills caches.
std::vector<Launch> counted_launches(BenchCase c, std::int64_t batch) {
  c.batch = batch;
  const RunConfig config = configure(c);
  nn::Model model(config.model, DType::f32, c.device, kSeed);
  const data::Batch examples = bench_batch(c, config.model);
  Trainer trainer(model, config.adamw, config.schedule, kSeed, {});
  trainer.step(examples);
  const TrafficCount count;
  trainer.step(examples);
  return count.launches();
}

}  // namespace

double Rates::product_tflops(const std::string& precision) const {
  if (precision == "fp32") return fp32_tflops;
  if (precision == "tf32") return bf16_tflops / 2;
  if (precision == "bf16") return bf16_tflops;
  throw UsageError(join("roofline: precision ", precision, " is not fp32, tf32 or bf16"));
}

// A step of 32 long examples takes a CPU seconds. Per kernel, work is what the parameters need plus
// a share for each example, so two small batches say what any batch does.
std::vector<Launch> step_launches(const BenchCase& c) {
  BenchCase small = c;
  small.device = Device::cpu;
  small.precision = "fp32";
  const std::vector<Launch> two = counted_launches(small, 2), three = counted_launches(small, 3);
  ENSURE(two.size() == three.size(), "roofline: ", c.attention, " calls ", two.size(),
         " kernels for two examples and ", three.size(), " for three");
  std::vector<Launch> launches = two;
  for (std::size_t i = 0; i < launches.size(); ++i) {
    launches[i].bytes += (c.batch - 2) * (three[i].bytes - two[i].bytes);
    launches[i].multiply_adds += (c.batch - 2) * (three[i].multiply_adds - two[i].multiply_adds);
  }
  return launches;
}

StepWork predict(const std::vector<Launch>& launches, const Rates& rates,
                 const std::string& precision) {
  StepWork work;
  for (const Launch& launch : launches) {
    const double tflops = launch.product ? rates.product_tflops(precision) : rates.fp32_tflops;
    const double flops = 2 * static_cast<double>(launch.multiply_adds);
    const auto bytes = static_cast<double>(launch.bytes);
    work.flops += flops;
    work.bytes += bytes;
    work.seconds += std::max(flops / (1e12 * tflops), bytes / (1e9 * rates.copy_gbs));
  }
  work.launches = std::ssize(launches);
  return work;
}

Table roofline_table(const RooflineOptions& options) {
  Table table;
  table.name = "roofline";
  table.title =
      join("Work of one training step and the least time of it on a GPU: ListOps, n = ", options.n,
           ", batch ", options.batch, ", features ", options.features);
  table.columns = {{"method"},
                   {"GFLOP", "{:.1f}"},
                   {"always fp32", "{:.1f}"},
                   {"GB", "{:.2f}"},
                   {"FLOP/byte", "{:.1f}"},
                   {"kernels", "{:.0f}"},
                   {"ms fp32", "{:.2f}"},
                   {"ms tf32", "{:.2f}"},
                   {"ms bf16", "{:.2f}"},
                   {join("s for ", options.steps, " steps, bf16"), "{:.0f}"}};
  for (const std::string& method : options.methods) {
    BenchCase c;
    c.attention = method;
    c.n = options.n;
    c.batch = options.batch;
    c.features = options.features;
    const std::vector<Launch> launches = step_launches(c);
    std::int64_t own = 0;
    for (const Launch& launch : launches) own += launch.product ? 0 : launch.multiply_adds;
    const auto in = [&](const char* precision) {
      return predict(launches, options.rates, precision);
    };
    const StepWork work = in("bf16");
    table.add({method, 1e-9 * work.flops, 2e-9 * static_cast<double>(own), 1e-9 * work.bytes,
               work.flops / work.bytes, static_cast<double>(work.launches),
               1e3 * in("fp32").seconds, 1e3 * in("tf32").seconds, 1e3 * work.seconds,
               work.seconds * static_cast<double>(options.steps)});
  }
  const Rates& r = options.rates;
  table.notes = {
      join("Rates: copy ", r.copy_gbs, " GB/s (measured on an H200, read plus written); products ",
           r.bf16_tflops, " TFLOP/s in bf16 (measured), ", r.product_tflops("tf32"),
           " in tf32 (half of bf16), ", r.fp32_tflops,
           " in fp32 (data sheet). Tiled attention runs on tensor cores as products do, other own "
           "kernels "
           "in fp32."),
      "GB: every array that a kernel takes, once per kernel; caches may serve some of it. Kernels "
      "are calls of kernel functions, some of which launch two or three; launching costs nothing "
      "here."};
  return table;
}

}  // namespace skytape::train
