#include "train/bench.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>

#include "attention/registry.hpp"
#include "autograd/tape.hpp"
#include "tensor/random.hpp"
#include "tensor/storage.hpp"
#include "train/run_config.hpp"
#include "train/trainer.hpp"
#include "train/version.hpp"

namespace skytape::train {
namespace {

using nlohmann::json;

constexpr int kWarmUps = 2;
constexpr std::uint64_t kSeed = 42;
constexpr std::int64_t kTokenKinds = 15;  // ids 1..15, as ListOps has them

Timing time(const BenchCase& c, const std::function<void()>& f) {
  for (int i = 0; i < kWarmUps; ++i) f();
  synchronize(c.device);
  std::vector<double> ms;
  for (std::int64_t i = 0; i < c.steps; ++i) {
    const auto start = std::chrono::steady_clock::now();
    f();
    synchronize(c.device);
    ms.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
                     .count());
  }
  std::sort(ms.begin(), ms.end());
  const std::size_t half = ms.size() / 2;
  return {ms.size() % 2 == 1 ? ms[half] : (ms[half - 1] + ms[half]) / 2, ms.front()};
}

bool has_features(const std::string& method) {
  const auto& options = attention::find(method).options;
  return std::any_of(options.begin(), options.end(),
                     [](const auto& option) { return option.key == "features"; });
}

/// Recipe `skytape` on ListOps at the wanted length and batch.
RunConfig configure(const BenchCase& c) {
  Choices choices;
  choices.attention = c.attention;
  choices.device = c.device;
  choices.seed = kSeed;
  choices.values = {{"batch", std::to_string(c.batch), "--batch"},
                    {"max_length", std::to_string(c.n), "--n"},
                    {"precision", c.precision, "--precision"}};
  if (has_features(c.attention)) {
    choices.values.push_back({"features", std::to_string(c.features), "--features"});
  }
  RunConfig config = resolve(choices);
  config.model.nominal_length = c.n;  // also where n is no power of two
  return config;
}

/// Full-length sequences of arbitrary tokens.
data::Batch make_batch(const BenchCase& c, std::int64_t classes) {
  data::Batch batch;
  batch.size = c.batch;
  batch.width = batch.nominal_length = c.n;
  const auto cells = static_cast<std::size_t>(c.batch * c.n);
  batch.mask[0].assign(cells, 1);
  batch.lengths[0].assign(static_cast<std::size_t>(c.batch), static_cast<std::int32_t>(c.n));
  batch.unmasked[0] = batch.lengths[0];
  for (std::size_t i = 0; i < cells; ++i) {
    batch.ids[0].push_back(static_cast<std::int32_t>(1 + (i * 7919) % kTokenKinds));
  }
  for (std::int64_t b = 0; b < c.batch; ++b) {
    batch.labels.push_back(static_cast<std::int32_t>(b % classes));
  }
  batch.real_tokens = c.batch * c.n;
  return batch;
}

Timing time_forward(const BenchCase& c, const nn::Model& model, const data::Batch& batch) {
  nn::StepContext context;
  context.random = {kSeed, {}};
  context.fewest_tokens = fewest_tokens(batch);
  return time(c, [&] {
    const Feed feed = upload(batch, whole(batch), c.device);
    Tape tape(Tape::Mode::eval);
    (void)model.logits(tape, feed.input, context);
  });
}

/// One layer's attention alone, on inputs of the size that a fresh model gives it.
void time_attention(const BenchCase& c, const RunConfig& config, BenchResult& result) {
  const attention::Spec& spec = *config.method;
  const nn::ModelConfig& m = config.model;
  ParameterStore store;
  const auto method =
      spec.make({0, m.heads, m.head_width, c.n, "attn.", &store}, m.attention_options);
  store.pack(DType::f32, c.device, kSeed);

  const Shape shape{c.batch, m.heads, c.n, m.head_width};
  const auto numbers = [&](std::uint64_t which) {
    return tensor::normal(shape, Random{which, {}}, DType::f32, c.device);  // [B, H, N, D]
  };
  const Tensor q = numbers(1), k = numbers(2), v = numbers(3), dout = numbers(4);
  const Tensor mask = Tensor::full({c.batch, c.n}, 1, DType::f32, c.device);  // [B, N]
  attention::Call call;
  call.training = true;
  call.random.key = kSeed;
  call.fewest_tokens = c.n;

  const auto forward = [&](Tape& tape) {
    const Var k_var = spec.shared_qk ? Var() : tape.input(k);
    return attention::apply(*method, tape.input(q), k_var, tape.input(v), mask, call);
  };
  result.attention_forward = time(c, [&] {
    Tape tape(Tape::Mode::eval);
    (void)forward(tape);
  });
  if (c.forward_only) return;
  result.attention_forward_backward = time(c, [&] {
    store.zero_gradients();
    Tape tape;
    tape.backward(forward(tape), dout);
  });
}

/// Floating-point operations of a step (backward of a product: two products) or of a forward pass.
std::optional<double> count_flops(const BenchCase& c, const nn::ModelConfig& m) {
  const auto n = static_cast<double>(c.n);
  const auto head_width = static_cast<double>(m.head_width);
  const auto attention =
      attention_cost(c.attention, n, head_width, static_cast<double>(c.features));
  if (!attention) return std::nullopt;
  const auto heads = static_cast<double>(m.heads);
  const auto width = static_cast<double>(m.width);
  const double linear =
      n * (4 * width * heads * head_width + 2 * width * static_cast<double>(m.ff_width));
  const double forward = linear + heads * attention->forward;
  const double backward = 2 * linear + heads * attention->backward;
  const double per_example = m.layers * (c.forward_only ? forward : forward + backward);
  return 2 * static_cast<double>(c.batch) * per_example;
}

}  // namespace

BenchResult run_bench(const BenchCase& c) {
  const RunConfig config = configure(c);
  set_precision(c.device, config.precision);
  BenchResult result;
  release_cached_memory(c.device);
  reset_peak_bytes(c.device);
  {
    nn::Model model(config.model, DType::f32, c.device, kSeed);
    const data::Batch batch = make_batch(c, config.model.classes);
    if (!c.forward_only) {
      Trainer trainer(model, config.adamw, config.schedule, kSeed, config.chunk_limits());
      result.step = time(c, [&] { trainer.step(batch); });
      result.peak_bytes = memory_stats(c.device).peak_bytes;
    }
    result.forward = time_forward(c, model, batch);
    if (c.forward_only) result.peak_bytes = memory_stats(c.device).peak_bytes;
  }
  result.rss_bytes = resident_bytes();
  time_attention(c, config, result);
  result.flops = count_flops(c, config.model);
  return result;
}

std::optional<AttentionCost> attention_cost(std::string_view method, double n, double p, double d) {
  constexpr double kInverseSteps = 6;
  constexpr double kHashes = 2, kChunk = 64;  // Reformer: rounds, and queries that share keys
  constexpr double kBlockKeys = 640;          // BigBird: keys of a query
  const auto twice = [](double forward) { return AttentionCost{forward, 2 * forward}; };
  if (method == "softmax" || method == "kernelized") {
    return AttentionCost{2 * n * n * p, 5 * n * n * p};  // the tiles are computed again
  }
  if (method == "vmean") return AttentionCost{n * p, n * p};
  if (method == "skyformer" || method.starts_with("nystrom")) {
    const double inverse = 4 * kInverseSteps * d * d * d;
    return twice(4 * n * d * p + d * d * p + inverse);
  }
  if (method == "linformer" || method == "performer" || method.starts_with("skein")) {
    return twice(4 * n * d * p);
  }
  if (method == "linformer_jlt")
    return AttentionCost{2 * n * n * p + 2 * n * d * p, 5 * n * n * p + 4 * n * d * p};
  if (method == "informer" || method == "informer_mask") return twice(3 * n * d * p);
  if (method == "reformer")
    return twice(4 * kHashes * n * kChunk * p + kHashes * n * n / kChunk / 2 * p);
  if (method == "bigbird") return twice(2 * kBlockKeys * n * p);
  return std::nullopt;
}

json to_json(const BenchCase& c, const BenchResult& r, double gemm_gflops) {
  json j = {{"attention", c.attention},
            {"device", name(c.device)},
            {"precision", c.precision},
            {"n", c.n},
            {"batch", c.batch},
            {"features", has_features(c.attention) ? json(c.features) : json()},
            {"step_ms_median", nullptr},
            {"step_ms_min", nullptr},
            {"forward_ms_median", r.forward.median_ms},
            {"forward_ms_min", r.forward.min_ms},
            {"attention_forward_ms_median", r.attention_forward.median_ms},
            {"attention_forward_backward_ms_median", nullptr},
            {"peak_bytes", r.peak_bytes},
            {"rss_bytes", r.rss_bytes},
            {"gflops", nullptr},
            {"gemm_share", nullptr}};
  if (r.step) {
    j["step_ms_median"] = r.step->median_ms;
    j["step_ms_min"] = r.step->min_ms;
  }
  if (r.attention_forward_backward) {
    j["attention_forward_backward_ms_median"] = r.attention_forward_backward->median_ms;
  }
  if (r.flops) {
    const double ms = r.step ? r.step->median_ms : r.forward.median_ms;
    j["gflops"] = *r.flops / (ms * 1e6);
    j["gemm_share"] = *r.flops / (ms * 1e6) / gemm_gflops;
  }
  return j;
}

}  // namespace skytape::train
