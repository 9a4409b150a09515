#include "train/lab/bench/roofline.hpp"

#include <algorithm>

#include "tensor/core/error.hpp"
#include "tensor/core/on_device.hpp"
#include "tensor/gemm/precision.hpp"
#include "train/step/trainer.hpp"

namespace skytape::train {
namespace {

constexpr std::uint64_t kSeed = 42;

/// A second step is counted: the first one fills caches.
template <class Count> void count_step(const BenchCase& c, OpSeconds* parts, const Count& count) {
  const RunConfig config = configure(c);
  nn::Model model(config.model, DType::f32, c.device, kSeed);
  const data::Batch examples = bench_batch(c, config.model);
  Trainer trainer(model, config.adamw, config.schedule, kSeed, {}, false);
  trainer.step(examples);
  trainer.time_ops(parts);
  count([&] { trainer.step(examples); });
}

/// One step of so many examples, computed at once as on a GPU.
std::vector<Work> counted_launches(BenchCase c, std::int64_t batch) {
  c.batch = batch;
  std::vector<Work> launches;
  count_step(c, nullptr, [&](const auto& step) {
    const TrafficCount count;
    step();
    launches = count.launches();
  });
  return launches;
}

constexpr int kMultiprocessors = 132;  // of an H100 or H200

/// The rate of a kernel whose products take three on tensor cores each, as its name then says; else
/// 0.
double split_product_tflops(const GpuKernel& kernel, const Rates& rates) {
  if (kernel.name.ends_with("3xTF32")) return rates.product_tflops("tf32") / 3;
  if (kernel.name.ends_with("bf16x3")) return rates.product_tflops("bf16") / 3;
  return 0;
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
std::vector<Work> cpu_step_launches(const BenchCase& c) {
  BenchCase small = c;
  small.device = Device::cpu;
  small.precision = "fp32";
  const std::vector<Work> two = counted_launches(small, 2), three = counted_launches(small, 3);
  ENSURE(two.size() == three.size(), "roofline: ", c.attention, " calls ", two.size(),
         " kernels for two examples and ", three.size(), " for three");
  std::vector<Work> launches = two;
  for (std::size_t i = 0; i < launches.size(); ++i) {
    launches[i].bytes += (c.batch - 2) * (three[i].bytes - two[i].bytes);
    launches[i].multiply_adds += (c.batch - 2) * (three[i].multiply_adds - two[i].multiply_adds);
  }
  return launches;
}

const char* counted_kernels() { return name(kHaveCuda ? Device::cuda : Device::cpu); }

std::vector<GpuKernel> step_kernels(const BenchCase& c) {
  std::vector<GpuKernel> kernels;
  if (!kHaveCuda) {
    for (const Work& launch : cpu_step_launches(c)) kernels.push_back({{}, {}, launch});
    return kernels;
  }
  const GpuCount count;  // outlives what it gave addresses to
  BenchCase on_gpu = c;
  on_gpu.device = Device::cuda;
  const PrecisionScope precision(Device::cuda, parse_precision(c.precision));
  OpSeconds parts;  // asked for so that the step's parts are told apart
  count_step(on_gpu, &parts, [&](const auto& step) {
    const auto before = static_cast<std::ptrdiff_t>(count.kernels().size());
    step();
    kernels.assign(count.kernels().begin() + before, count.kernels().end());
  });
  return kernels;
}

StepWork predict(const std::vector<GpuKernel>& kernels, const Rates& rates,
                 const std::string& precision) {
  StepWork work;
  OpSeconds parts;
  for (const GpuKernel& kernel : kernels) {
    const Work& launch = kernel.work;
    const double split = split_product_tflops(kernel, rates);
    const double tflops = split > 0        ? split
                          : launch.product ? rates.product_tflops(precision)
                                           : rates.fp32_tflops;
    // A grid with fewer blocks than the GPU has multiprocessors leaves some idle.
    const double busy = kernel.blocks == 0
                            ? 1
                            : std::min(1.0, static_cast<double>(kernel.blocks) / kMultiprocessors);
    const double flops = 2 * static_cast<double>(launch.multiply_adds);
    const auto bytes = static_cast<double>(launch.bytes);
    const double seconds = std::max(flops / (1e12 * tflops * busy), bytes / (1e9 * rates.copy_gbs));
    work.flops += flops;
    work.bytes += bytes;
    work.seconds += seconds;
    if (!launch.product) work.own_flops += flops;
    parts[kernel.part] += seconds;
  }
  work.launches = std::ssize(kernels);
  if (parts.contains("optimiser")) work.parts = step_parts(parts, 1);
  return work;
}

std::map<std::string, StepWork> step_work(const BenchCase& c, const Rates& rates) {
  std::map<std::string, StepWork> work;
  std::vector<GpuKernel> kernels;
  for (const char* precision : {"fp32", "tf32", "bf16"}) {
    BenchCase in = c;
    in.precision = precision;
    // The CPU's are counted once: it takes a while, and they are the same.
    if (kHaveCuda || kernels.empty()) kernels = step_kernels(in);
    work[precision] = predict(kernels, rates, precision);
  }
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
                   {"fp32 or split", "{:.1f}"},
                   {"GB", "{:.2f}"},
                   {"FLOP/byte", "{:.1f}"},
                   {"kernels", "{:.0f}"},
                   {"ms fp32", "{:.2f}"},
                   {"ms tf32", "{:.2f}"},
                   {"ms bf16", "{:.2f}"},
                   {join("s for ", options.steps, " steps, bf16"), "{:.0f}"},
                   {"attention %", "{:.0f}"},
                   {"products %", "{:.0f}"},
                   {"rest %", "{:.0f}"},
                   {"optimiser %", "{:.0f}"}};
  for (const std::string& method : options.methods) {
    BenchCase c;
    c.attention = method;
    c.n = options.n;
    c.batch = options.batch;
    c.features = options.features;
    const std::map<std::string, StepWork> all = step_work(c, options.rates);
    const StepWork& work = all.at("bf16");
    const auto share = [&](double StepParts::*part) {
      return work.parts ? Cell(100 * (*work.parts).*part / work.parts->total()) : Cell();
    };
    table.add({method, 1e-9 * work.flops, 1e-9 * work.own_flops, 1e-9 * work.bytes,
               work.flops / work.bytes, static_cast<double>(work.launches),
               1e3 * all.at("fp32").seconds, 1e3 * all.at("tf32").seconds, 1e3 * work.seconds,
               work.seconds * static_cast<double>(options.steps), share(&StepParts::attention),
               share(&StepParts::products), share(&StepParts::rest), share(&StepParts::optimiser)});
  }
  const Rates& r = options.rates;
  table.notes = {
      join("Rates: copy ", r.copy_gbs, " GB/s (measured on an H200, read plus written); products ",
           r.bf16_tflops, " TFLOP/s in bf16 (measured), ", r.product_tflops("tf32"),
           " in tf32 (half of bf16), ", r.fp32_tflops,
           " in fp32 (data sheet). Tiled attention, blocks of at least 16 rows and fused kernel "
           "products run on tensor cores as products do at tf32 and bf16, other own kernels in "
           "fp32; "
           "the iterative inverse takes three products of that precision for each of its own."),
      kHaveCuda
          ? "GFLOP, GB, kernels and shares: at bf16, of the kernels, products and copies that this "
            "program would submit to a GPU. GB: every array that one takes, once; caches may serve "
            "some of it. Launching costs nothing here, and one kernel with fewer blocks than 132 "
            "multiprocessors computes at that share of the rate."
          : "Counted are the CPU's kernels, as this program has none for a GPU: a GPU's are other "
            "ones. GB: every array that a kernel takes, once per kernel."};
  return table;
}

}  // namespace skytape::train
