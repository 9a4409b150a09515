// Linformer's forward pass against exact attention, as in its Table 3.
//
// Two kinds of exact attention: ours, which never stores an n x n array, and the one that the paper
// measured, which stores the scores and their softmax.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tensor/core/error.hpp"
#include "tensor/core/storage.hpp"
#include "tensor/gemm/gemm.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/norm/softmax.hpp"
#include "tensor/random/random.hpp"
#include "train/lab/papers/paper_costs.hpp"
#include "train/lab/studies/cost/cost.hpp"
#include "train/process/progress.hpp"

namespace skytape::train {
namespace {

constexpr double kGiga = 1e9;

BenchCase inference_case(const CostOptions& options, const std::string& method, std::int64_t n) {
  BenchCase c = bench_case(options, method, n, std::max<std::int64_t>(1, options.tokens / n));
  c.forward_only = true;
  return c;
}

/// Time and memory of one example.
struct Inference {
  double model_ms = 0, attention_ms = 0;  // the whole model; one layer's attention
  double fixed_bytes = 0, per_example = 0;

  explicit Inference(const BenchCase& c) {
    const BenchResult r = run_bench(c);
    const auto examples = static_cast<double>(c.batch);
    model_ms = r.forward.min_ms / examples;
    attention_ms = r.attention_forward->min_ms / examples;
    fixed_bytes = static_cast<double>(r.fixed_bytes);
    per_example = static_cast<double>(r.peak_bytes - r.fixed_bytes) / examples;
  }

  /// Examples that a machine of so many bytes computes at once.
  [[nodiscard]] double batch(double bytes) const {
    return std::max(0.0, std::floor((bytes - fixed_bytes) / per_example));
  }
};

/// Bytes of scores and softmax of all heads of one example.
double materialised_bytes(const nn::ModelConfig& m, std::int64_t n) {
  return 2.0 * static_cast<double>(m.heads) * static_cast<double>(n) * static_cast<double>(n) *
         static_cast<double>(size_of(DType::f32));
}

/// One layer's exact attention that stores them, milliseconds per example; nothing where they are
/// more than `most_bytes`.
std::optional<double> materialised_ms(const BenchCase& c, double most_bytes) {
  const nn::ModelConfig model = configure(c).model;
  if (static_cast<double>(c.batch) * materialised_bytes(model, c.n) > most_bytes) {
    return std::nullopt;
  }
  const Shape shape{c.batch, model.heads, c.n, model.head_width};
  const auto numbers = [&](std::uint64_t which) {
    return tensor::normal(shape, Random{which, {}}, DType::f32, c.device);  // [B, H, N, D]
  };
  const double scale = 1 / std::sqrt(static_cast<double>(model.head_width));
  const Tensor q = tensor::affine(numbers(1), scale), k = numbers(2), v = numbers(3);
  const Timing timing = measure(c, [&] {
    const Tensor scores = tensor::matmul(q, k, Op::none, Op::transpose);  // [B, H, N, N]
    (void)tensor::matmul(tensor::softmax(scores), v);
  });
  release_cached_memory(c.device);
  return timing.min_ms / static_cast<double>(c.batch);
}

/// The costs of exact attention, with which those of one length are compared.
struct Exact {
  Inference ours;
  std::optional<double> stored_ms;  // one layer's attention
  double stored_bytes;              // per example, with the n x n arrays
};

Exact measure_exact(const CostOptions& options, std::int64_t n) {
  const BenchCase c = inference_case(options, "softmax", n);
  Exact exact{Inference(c), materialised_ms(c, options.materialised_gb * kGiga), 0};
  exact.stored_bytes = exact.ours.per_example + materialised_bytes(configure(c).model, n);
  return exact;
}

}  // namespace

Table inference_table(const CostOptions& options) {
  Table table;
  table.name = "inference";
  table.title = "Linformer's forward pass: times faster and times less memory than exact attention";
  table.columns = {{"n", "{:.0f}"},
                   {"k", "{:.0f}"},
                   {"exact ms", "{:.1f}"},
                   {"Linformer ms", "{:.1f}"},
                   {"faster", "{:.2f}"},
                   {"attention alone", "{:.2f}"},
                   {"than stored n x n", "{:.2f}"},
                   {"paper", "{:g}"},
                   {"less memory", "{:.2f}"},
                   {"than stored n x n", "{:.1f}"},
                   {"by batches that fit", "{:.2f}"},
                   {"paper", "{:g}"}};
  const auto [least, most] =
      std::pair{std::ranges::min(options.projected), std::ranges::max(options.inference_lengths)};
  if (most <= least) {
    throw UsageError(fmt::format(
        "cost: table inference: no length is above a projected one: --inference-lengths up to {}, "
        "--projected from {} on",
        most, least));
  }
  Progress progress;
  std::int64_t done = 0;
  const auto total =
      static_cast<std::int64_t>(options.inference_lengths.size() * (options.projected.size() + 1));
  const double memory = options.memory_gb * kGiga;
  for (const std::int64_t n : options.inference_lengths) {
    progress.at("inference", done++, total);
    const Exact exact = measure_exact(options, n);
    for (const std::int64_t k : options.projected) {
      progress.at("inference", done++, total);
      if (k >= n) continue;  // no shorter than the sequence
      BenchCase c = inference_case(options, "linformer", n);
      c.features = k;
      c.options = {{"sharing", "layerwise"}, {"frozen", "1"}};
      const Inference linformer(c);
      const auto paper = linformer_gain(static_cast<int>(n), static_cast<int>(k));
      const double fits = exact.ours.batch(memory);
      table.add({n, k, exact.ours.model_ms, linformer.model_ms,
                 exact.ours.model_ms / linformer.model_ms,
                 exact.ours.attention_ms / linformer.attention_ms,
                 exact.stored_ms ? Cell(*exact.stored_ms / linformer.attention_ms) : Cell(),
                 paper ? Cell(paper->times_faster) : Cell(),
                 exact.ours.per_example / linformer.per_example,
                 exact.stored_bytes / linformer.per_example,
                 fits > 0 ? Cell(linformer.batch(memory) / fits) : Cell(),
                 paper ? Cell(paper->times_less_memory) : Cell()});
    }
  }
  table.notes = {
      "Fastest of the repetitions. faster: the whole model against our exact attention, which "
      "stores no n x n array; attention "
      "alone: one layer's; than stored n x n: against an exact attention that stores scores and "
      "softmax, timed where they fit.",
      fmt::format(
          "less memory: per example, beyond the model; than stored n x n: with these arrays "
          "added; by batches that fit: on {:g} GB, the model included.",
          options.memory_gb),
      "A projected length that is not below n has no row."};
  return table;
}

}  // namespace skytape::train
