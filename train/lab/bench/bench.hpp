// Timing whole training steps of the benchmark's model, and the attention alone.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "attention/method.hpp"
#include "data/files/json_fwd.hpp"
#include "tensor/core/device.hpp"
#include "train/config/run_config.hpp"
#include "train/lab/bench/bench_parts.hpp"
#include "train/step/step_graphs.hpp"

namespace skytape::train {

/// The shape of a known encoder, to be timed with random weights. It normalises behind every sum.
struct ModelSize {
  std::string_view name;
  int layers = 0;
  std::int64_t width = 0, heads = 0, ff_width = 0, vocabulary = 0;
};
/// Returns the shape of "minilm" or "bert-base"; all zeros for "papers", whose model is as the
/// recipe and the task say. UsageError for another name.
[[nodiscard]] const ModelSize& model_size(const std::string& name);

struct BenchCase {
  std::string attention;
  std::string task = "listops";  // whose vocabulary, classes and number of sequences the model has
  std::string recipe = "skytape";
  bool papers_model = true;     // recipe skytape: with the model and dropout of recipe skyformer
  std::string size = "papers";  // see model_size()
  int layers = 0;               // in place of the size's; 0: as many as it has
  attention::OptionValues options;  // of the method, besides features
  Device device = Device::cpu;
  std::string precision = "fp32";
  std::int64_t n = 2048;        // positions, all of them real tokens
  std::int64_t batch = 4;       // examples
  std::int64_t features = 128;  // where the method has such an option
  std::int64_t steps = 10;      // timed repetitions (on a GPU of ten steps), after two that are not
  double patience_seconds = 0;  // what takes longer is timed once and not repeated; 0: no limit
  bool forward_only = false;    // no backward, no update
  bool attention_alone = true;  // time one layer's attention as well
  bool gemm_rate = false;       // measure the device's products just before and after the steps
  bool graphs = true;           // replay CUDA graphs, where the device has them
};

struct Timing {
  double median_ms = 0, min_ms = 0;
};

struct BenchResult {
  std::optional<StepParts> parts;           // of a step
  std::optional<double> serial_share;       // of a step, see bench_parts.hpp
  std::optional<Timing> step;               // forward, backward, update; as in a run
  std::optional<Timing> waited_step;        // on a GPU: the host waits for each before the next one
  Timing forward;                           // of the model, evaluation mode
  std::optional<Timing> attention_forward;  // of one layer's, in the mode of the case
  std::optional<Timing> attention_forward_backward;
  std::int64_t parameters = 0;     // trainable numbers
  std::int64_t fixed_bytes = 0;    // held before the first step, whatever the batch
  std::int64_t peak_bytes = 0;     // of the allocator, from the first step on
  std::int64_t rss_bytes = 0;      // of the process: the most during the case
  StepCounts counts;               // how the steps, or forward passes, were run
  std::int64_t graph_nodes = 0;    // kernels, copies and fills of a replayed one
  std::vector<double> gemm_rates;  // GFLOP/s, see BenchCase::gemm_rate: both
  double flops = 0;                // of a step or forward pass, by the stated costs
};

/// Calls f as often as the case says, times `in_a_row`, and waits for its device behind each row.
[[nodiscard]] Timing measure(const BenchCase& c, const std::function<void()>& f,
                             std::int64_t in_a_row = 1);

/// Full-length sequences of arbitrary tokens: what is timed.
[[nodiscard]] data::Batch bench_batch(const BenchCase& c, const nn::ModelConfig& model);

/// Runs one case with the recipe's model; what the recipe accumulates does not count. A CPU
/// computes the batch in parts that suit its caches, as runs do. UsageError for an unknown name. By
/// default recipe skytape stands for the method options of today with the model and dropout of
/// recipe skyformer, so that figures of different years compare (BenchCase::papers_model).
[[nodiscard]] BenchResult run_bench(const BenchCase& c);

/// Peak bytes of the allocator in a training step that computes all examples of the case at once,
/// on a CPU, too: model and optimiser are among them.
[[nodiscard]] std::int64_t peak_at_once(const BenchCase& c);

/// Floating-point operations of a model's matrix products on `batch` examples of sizes.n tokens: of
/// a training step or, with forward_only, of a forward pass. The method's options but `features`
/// are at their defaults.
[[nodiscard]] double model_flops(const nn::ModelConfig& model, const attention::CostSizes& sizes,
                                 std::int64_t batch, bool forward_only);

/// The model that a case runs. UsageError for an unknown name or option.
[[nodiscard]] RunConfig configure(const BenchCase& c);

/// Runs the cases in turn, `rounds` times: what changes the machine's speed meanwhile, changes that
/// of all. Of each case the round counts whose step, or forward pass, is the median; `done` gets it
/// with the rates of all rounds, as soon as the last round has it.
void run_in_turn(std::span<const BenchCase> cases, int rounds,
                 const std::function<void(const BenchCase&, const BenchResult&)>& done);

/// One object of the bench's "results" array.
[[nodiscard]] data::Json to_json(const BenchCase& c, const BenchResult& r);

}  // namespace skytape::train
