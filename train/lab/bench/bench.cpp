#include "train/lab/bench/bench.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <string_view>

#include "attention/registry.hpp"
#include "autograd/tape.hpp"
#include "data/files/json.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/storage.hpp"
#include "tensor/core/suggest.hpp"
#include "tensor/gemm/gemm_rate.hpp"
#include "tensor/gemm/precision.hpp"
#include "tensor/random/random.hpp"
#include "train/config/settings.hpp"
#include "train/process/version.hpp"
#include "train/step/trainer.hpp"

namespace skytape::train {
namespace {

using data::Json;

constexpr int kWarmUps = 2;
// A run on a GPU submits steps ahead and does not wait for each: nor do these.
constexpr std::int64_t kStepsInARow = 10;
constexpr std::int64_t kPartSteps = 3;  // at most, for the split by parts
constexpr std::uint64_t kSeed = 42;
constexpr std::int64_t kTokenKinds = 15;  // ids 1..15, as ListOps has them

constexpr ModelSize kSizes[] = {
    {"papers"}, {"minilm", 6, 384, 12, 1536, 30522}, {"bert-base", 12, 768, 12, 3072, 30522}};

/// The recipe keys that the case's size decides.
std::vector<Setting> settings_of_size(const BenchCase& c) {
  const ModelSize& size = model_size(c.size);
  std::vector<Setting> settings;
  if (size.width > 0) {
    settings = {{"width", std::to_string(size.width), "--size"},
                {"heads", std::to_string(size.heads), "--size"},
                {"head_width", "0", "--size"},
                {"ff_width", std::to_string(size.ff_width), "--size"},
                {"norm", "post", "--size"}};
  }
  const int layers = c.layers > 0 ? c.layers : size.layers;
  if (layers > 0) settings.push_back({"layers", std::to_string(layers), "--size or --layers"});
  return settings;
}

}  // namespace

const ModelSize& model_size(const std::string& name) {
  std::vector<std::string> known;
  for (const ModelSize& size : kSizes) {
    if (size.name == name) return size;
    known.emplace_back(size.name);
  }
  throw UsageError(unknown_name("size", name, known));
}

data::Batch bench_batch(const BenchCase& c, const nn::ModelConfig& model) {
  data::Batch batch;
  batch.size = c.batch;
  batch.sequences = model.sequences;
  batch.width = batch.nominal_length = c.n;
  const std::int64_t kinds = model_size(c.size).vocabulary > 0 ? model.vocabulary - 1 : kTokenKinds;
  const auto cells = static_cast<std::size_t>(c.batch * c.n);
  for (std::size_t t = 0; t < static_cast<std::size_t>(model.sequences); ++t) {
    batch.mask[t].assign(cells, 1);
    batch.lengths[t].assign(static_cast<std::size_t>(c.batch), static_cast<std::int32_t>(c.n));
    batch.unmasked[t] = batch.lengths[t];
    for (std::size_t i = 0; i < cells; ++i) {
      batch.ids[t].push_back(
          static_cast<std::int32_t>(1 + (static_cast<std::int64_t>(i) * 7919) % kinds));
    }
  }
  for (std::int64_t b = 0; b < c.batch; ++b) {
    batch.labels.push_back(static_cast<std::int32_t>(b % model.classes));
  }
  batch.real_tokens = c.batch * c.n * model.sequences;
  return batch;
}

namespace {

Timing measure_forward(const BenchCase& c, const nn::Model& model, const data::Batch& batch,
                       StepGraphs& graphs) {
  const nn::StepContext context = nn::answer_context(kSeed);
  const DeviceBatch on_device = upload(batch, c.device);
  return measure(c, [&] {
    graphs.run({}, [&] {
      Tape tape(Tape::Mode::eval);
      (void)model.logits(tape, on_device.input, context);
    });
  });
}

/// Returns the times of a step's parts. They take separate steps: reading the clock after each op
/// costs a little.
StepParts measure_parts(const BenchCase& c, Trainer& trainer, const data::Batch& batch) {
  const std::int64_t steps = std::min<std::int64_t>(c.steps, kPartSteps);
  OpSeconds seconds;
  trainer.time_ops(&seconds);
  for (std::int64_t i = 0; i < steps; ++i) trainer.step(batch);
  trainer.time_ops(nullptr);
  return step_parts(seconds, steps);
}

/// Measures the memory of the model and its optimiser; the peak counts from here.
void start_memory(const BenchCase& c, BenchResult& result) {
  reset_peak_bytes(c.device);
  result.fixed_bytes = memory_stats(c.device).live_bytes;
}

/// The peak GEMM throughput, measured before and after the steps: others use the machine.
void add_rate(const BenchCase& c, BenchResult& result) {
  if (c.gemm_rate) result.gemm_rates.push_back(tensor::measure_gemm_gflops(c.device));
}

/// One layer's attention alone, on inputs of the size that a fresh model gives it.
void time_attention(const BenchCase& c, const RunConfig& config, BenchResult& result) {
  const attention::Spec& spec = *config.method;
  const nn::ModelConfig& m = config.model;
  ParameterStore store;
  const auto method =
      spec.make({0, m.heads, m.head_width, c.n, "attn.", &store, m.width}, m.attention_options);
  store.pack(DType::f32, c.device, kSeed);

  const Shape shape{c.batch, m.heads, c.n, m.head_width};
  const auto numbers = [&](std::uint64_t which) {
    return tensor::normal(shape, Random{which, {}}, DType::f32, c.device);  // [B, H, N, D]
  };
  const Tensor q = numbers(1), k = numbers(2), v = numbers(3), dout = numbers(4);
  const Tensor x =
      tensor::normal({c.batch, c.n, m.width}, Random{5, {}}, DType::f32, c.device);  // [B, N, E]
  const Tensor mask = Tensor::full({c.batch, c.n}, 1, DType::f32, c.device);         // [B, N]
  attention::Call call;
  call.training = !c.forward_only;
  call.random.key = kSeed;
  call.fewest_tokens = Tensor::full({1}, static_cast<double>(c.n), DType::i32, c.device);

  const auto forward = [&](Tape& tape) {
    const Var k_var = spec.shared_qk ? Var() : tape.input(k);
    const Var x_var = spec.reads_x ? tape.input(x) : Var();
    return attention::apply(*method, {tape.input(q), k_var, tape.input(v), x_var}, mask, call);
  };
  StepGraphs graphs(c.device, c.graphs);
  const auto evaluated = [&] {
    Tape tape(Tape::Mode::eval);
    (void)forward(tape);
  };
  const auto differentiated = [&] {
    store.zero_gradients();
    Tape tape;
    tape.backward(forward(tape), dout);
  };
  result.attention_forward = measure(c, [&] { graphs.run({0}, evaluated); });
  if (c.forward_only) return;
  result.attention_forward_backward = measure(c, [&] { graphs.run({1}, differentiated); });
}

}  // namespace

Timing measure(const BenchCase& c, const std::function<void()>& f, std::int64_t in_a_row) {
  const auto milliseconds = [&](std::int64_t count = 1) {
    const auto start = std::chrono::steady_clock::now();
    for (std::int64_t i = 0; i < count; ++i) f();
    synchronize(c.device);
    const std::chrono::duration<double, std::milli> all = std::chrono::steady_clock::now() - start;
    return all.count() / static_cast<double>(count);
  };
  const double patience_ms = c.patience_seconds > 0 ? 1e3 * c.patience_seconds : 1e300;
  double last = 0;
  for (int i = 0; i < kWarmUps && last <= patience_ms; ++i) last = milliseconds();
  std::vector<double> ms;
  if (last > patience_ms) ms.push_back(last);
  while (last <= patience_ms && static_cast<std::int64_t>(ms.size()) < c.steps) {
    ms.push_back(milliseconds(in_a_row));
  }
  std::sort(ms.begin(), ms.end());
  const std::size_t half = ms.size() / 2;
  const double median = ms.size() % 2 == 1 ? ms[half] : (ms[half - 1] + ms[half]) / 2;
  return {median, ms.front()};
}

RunConfig configure(const BenchCase& c) {
  Choices choices;
  choices.task = c.task;
  choices.recipe = c.recipe;
  choices.attention = c.attention;
  choices.device = c.device;
  choices.seed = kSeed;
  choices.settings = {{"batch", std::to_string(c.batch), "--batch"},
                      {"accumulate", "1", "the bench"},  // the batch is not the recipe's
                      {"max_length", std::to_string(c.n), "--n"},
                      {"precision", c.precision, "--precision"}};
  if (attention::find(c.attention).has_option("features")) {
    choices.settings.push_back({"features", std::to_string(c.features), "--features"});
  }
  const std::vector<Setting> of_size = settings_of_size(c);
  choices.settings.insert(choices.settings.end(), of_size.begin(), of_size.end());
  // The recipe that trains best changes as we learn; the model that is timed stays the papers'.
  if (c.recipe == "skytape" && c.papers_model) {
    const std::vector<Setting> papers = recipe_settings("skyformer", c.task, c.attention);
    for (const KeyInfo& key : recipe_keys()) {
      const bool shapes = key.category == Category::encoder || key.category == Category::model;
      // The caller says the length and, of the options that methods share, the features.
      if (!shapes || is_shared(key.key) || key.key == "max_length") continue;
      if (find_setting(of_size, key.key) != nullptr) continue;
      if (!idle_because(papers, key).empty()) continue;
      choices.settings.push_back(
          {std::string(key.key), value_of(papers, key), "bench: the papers' model"});
    }
  }
  for (const auto& [key, value] : c.options) {
    choices.settings.push_back({c.attention + "." + key, value, "the experiment"});
  }
  RunConfig config = resolve(choices);
  config.model.nominal_length = c.n;  // also where n is no power of two
  if (model_size(c.size).vocabulary > 0) config.model.vocabulary = model_size(c.size).vocabulary;
  if (config.model.classes == 0) config.model.classes = 2;  // custom data tell later
  return config;
}

BenchResult run_bench(const BenchCase& c) {
  const RunConfig config = configure(c);
  set_precision(c.device, config.precision);
  BenchResult result;
  release_cached_memory(c.device);
  reset_peak_resident();
  {
    nn::Model model(config.model, DType::f32, c.device, kSeed);
    const data::Batch batch = bench_batch(c, config.model);
    result.parameters = model.parameters().parameter_count();
    StepGraphs forward_graphs(c.device, c.graphs);
    const auto keep_counts = [&](const StepGraphs& graphs) {
      result.counts = graphs.counts();
      result.graph_nodes = graphs.nodes();
    };
    add_rate(c, result);
    if (c.forward_only) {
      start_memory(c, result);
      result.forward = measure_forward(c, model, batch, forward_graphs);
      result.peak_bytes = memory_stats(c.device).peak_bytes;
      add_rate(c, result);
      keep_counts(forward_graphs);
    } else {
      Trainer trainer(model, config.adamw, config.schedule, kSeed, config.microbatch_limits(),
                      c.graphs);
      start_memory(c, result);
      const auto step = [&] { trainer.step(batch); };
      result.step = measure(c, step, c.device == Device::cuda ? kStepsInARow : 1);
      result.peak_bytes = memory_stats(c.device).peak_bytes;
      if (c.device == Device::cuda) result.waited_step = measure(c, step);
      add_rate(c, result);
      keep_counts(trainer.graphs());
      if (c.attention_alone) result.parts = measure_parts(c, trainer, batch);
      if (c.device == Device::cpu) {
        result.serial_share = serial_share([&] {
          for (std::int64_t i = 0; i < c.steps; ++i) step();
        });
      }
      result.forward = measure_forward(c, model, batch, forward_graphs);
    }
  }
  result.rss_bytes = peak_resident_bytes();
  if (c.attention_alone) time_attention(c, config, result);
  result.flops = model_flops(config.model,
                             {static_cast<double>(c.n), static_cast<double>(c.features),
                              static_cast<double>(config.model.head_width)},
                             c.batch, c.forward_only);
  return result;
}

std::int64_t peak_at_once(const BenchCase& c) {
  const RunConfig config = configure(c);
  set_precision(c.device, config.precision);
  release_cached_memory(c.device);
  nn::Model model(config.model, DType::f32, c.device, kSeed);
  Trainer trainer(model, config.adamw, config.schedule, kSeed, MicrobatchLimits(), c.graphs);
  reset_peak_bytes(c.device);
  trainer.step(bench_batch(c, config.model));
  synchronize(c.device);
  return memory_stats(c.device).peak_bytes;
}

namespace {

double step_ms(const BenchResult& r) { return r.step ? r.step->median_ms : r.forward.median_ms; }

}  // namespace

void run_in_turn(std::span<const BenchCase> cases, int rounds,
                 const std::function<void(const BenchCase&, const BenchResult&)>& done) {
  std::vector<std::vector<BenchResult>> results(cases.size());
  for (int round = 1; round <= rounds; ++round) {
    for (std::size_t i = 0; i < cases.size(); ++i) {
      std::vector<BenchResult>& of_case = results[i];
      of_case.push_back(run_bench(cases[i]));
      if (round < rounds) continue;
      std::vector<double> rates;
      for (const BenchResult& r : of_case) {
        rates.insert(rates.end(), r.gemm_rates.begin(), r.gemm_rates.end());
      }
      const auto middle = of_case.begin() + (rounds - 1) / 2;
      std::nth_element(
          of_case.begin(), middle, of_case.end(),
          [](const BenchResult& a, const BenchResult& b) { return step_ms(a) < step_ms(b); });
      middle->gemm_rates = std::move(rates);
      done(cases[i], *middle);
    }
  }
}

double model_flops(const nn::ModelConfig& model, const attention::CostSizes& sizes,
                   std::int64_t batch, bool forward_only) {
  const attention::Spec& spec = attention::find(model.attention);
  const auto heads = static_cast<double>(model.heads), width = static_cast<double>(model.width);
  const auto ff_width = static_cast<double>(model.ff_width);
  attention::CombinedCost combined{sizes.n, {}, spec.cost_at(sizes)};
  // Turned keys are no projections of combined rows.
  const bool combines = spec.combined_cost_at && model.positions != nn::Positions::rotary;
  if (combines) combined = spec.combined_cost_at(sizes, width);
  // Rows that W_q, W_k, W_v and W_o project, and those that pass the feed-forward network.
  const double queries = spec.values_only ? 0 : sizes.n;
  const double keys = spec.shared_qk || spec.values_only ? 0 : combined.rows;
  const double projected = queries + keys + combined.rows + sizes.n;
  const double linear = projected * width * heads * sizes.width + sizes.n * 2 * width * ff_width;
  const double features = model.sequences == 2 ? 4 * width : width;
  const double head = features * ff_width + ff_width * static_cast<double>(model.classes);
  const auto times = [&](double forward, double backward) {
    return forward_only ? forward : forward + backward;
  };
  const double layer =
      times(linear + combined.combining.forward + heads * combined.attention.forward,
            2 * linear + combined.combining.backward + heads * combined.attention.backward);
  const double example = model.sequences * model.layers * layer + times(head, 2 * head);
  return 2 * static_cast<double>(batch) * example;
}

Json to_json(const BenchCase& c, const BenchResult& r) {
  const auto median = [](const std::optional<Timing>& timing) {
    return timing ? Json(timing->median_ms) : Json();
  };
  Json j = {
      {"attention", c.attention},
      {"device", name(c.device)},
      {"precision", c.precision},
      {"n", c.n},
      {"batch", c.batch},
      {"features", attention::find(c.attention).has_option("features") ? Json(c.features) : Json()},
      {"step_ms_median", median(r.step)},
      {"step_ms_min", r.step ? Json(r.step->min_ms) : Json()},
      {"forward_ms_median", r.forward.median_ms},
      {"forward_ms_min", r.forward.min_ms},
      {"attention_forward_ms_median", median(r.attention_forward)},
      {"attention_forward_backward_ms_median", median(r.attention_forward_backward)},
      {"peak_bytes", r.peak_bytes},
      {"rss_bytes", r.rss_bytes},
      {"steps_replayed", r.counts.replayed},
      {"graph_nodes", r.graph_nodes}};
  if (!c.papers_model) j["recipe"] = c.recipe;
  if (model_size(c.size).width > 0) j["size"] = c.size;
  if (c.layers > 0) j["layers"] = c.layers;
  if (r.waited_step) j["waited_step_ms_median"] = r.waited_step->median_ms;
  if (r.parts) j["step_parts_ms"] = to_json(*r.parts);
  j["serial_share"] = r.serial_share ? Json(*r.serial_share) : Json();
  j["gflops"] = r.flops / (step_ms(r) * 1e6);
  j["gemm_gflops"] = j["gemm_share"] = nullptr;
  if (!r.gemm_rates.empty()) {
    const double rate = std::accumulate(r.gemm_rates.begin(), r.gemm_rates.end(), 0.0) /
                        static_cast<double>(r.gemm_rates.size());
    j["gemm_gflops"] = rate;
    j["gemm_share"] = r.flops / (step_ms(r) * 1e6) / rate;
    j["gemm_gflops_measured"] = r.gemm_rates;
  }
  return j;
}

}  // namespace skytape::train
