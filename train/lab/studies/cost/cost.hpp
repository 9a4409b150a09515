// The costs of attention methods: parameters, operations, step time, memory, against length, and
// until convergence. All timing is bench.hpp's.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "attention/method.hpp"
#include "tensor/core/device.hpp"
#include "train/formats/table.hpp"
#include "train/lab/bench/bench.hpp"

namespace skytape::train {

struct CostOptions {
  std::vector<std::string> methods, tasks;
  std::string recipe = "skyformer";  // whose tables the papers print
  Device device = Device::cpu;
  std::string precision = "fp32";
  std::string size = "papers";  // of the model, see model_size()
  int layers = 0;               // in place of the size's
  std::int64_t steps = 3;       // timed repetitions
  double patience_seconds = 5;  // what takes longer is timed once
  std::int64_t batch = 2;       // examples that the tasks are timed with
  std::int64_t operations_n = 4096, operations_features = 256;  // of the table of operations
  std::vector<std::int64_t> lengths = {256, 512, 1024, 2048, 4096, 8192};
  std::int64_t features = 128;  // against length
  std::int64_t tokens = 8192;   // of a batch where their number is fixed
  std::vector<std::int64_t> inference_lengths = {512, 1024, 2048, 4096, 8192, 16384, 32768, 65536};
  std::vector<std::int64_t> projected = {128, 256, 512, 1024, 2048};  // k
  double memory_gb = 16;           // of the machine that batches are compared on
  double materialised_gb = 4;      // most that the n x n arrays may take
  std::optional<double> limit_gb;  // find the largest batch of each task that fits
};

/// The configuration of a method on a task, with the recipe.
[[nodiscard]] RunConfig recipe_config(const CostOptions& options, const std::string& method,
                                      const std::string& task);
/// Returns the benchmark case of a method on so many examples of n tokens.
[[nodiscard]] BenchCase bench_case(const CostOptions& options, const std::string& method,
                                   std::int64_t n, std::int64_t batch);

/// Trainable numbers of the whole model, by method and task.
[[nodiscard]] Table parameter_table(const CostOptions& options);

/// Multiply-adds of one head and example of length operations_n: as the Skeinformer paper's Table 3
/// states them, and those of our methods' matrix products by their formulas (Spec::cost_at).
[[nodiscard]] Table operation_table(const CostOptions& options);

/// Step time and memory of each method on each task (Skyformer, Table 2; Skeinformer, Table 2).
[[nodiscard]] Table task_table(const CostOptions& options);

/// Linformer's forward pass against exact attention (its Table 3).
[[nodiscard]] Table inference_table(const CostOptions& options);

/// Step times by length, of one example and of a fixed number of tokens.
struct LengthStudy {
  struct Times {
    double step_ms = 0, attention_ms = 0;  // attention: one layer, forward and backward
    std::int64_t peak_bytes = 0;
  };
  struct Row {
    std::string method;
    std::int64_t n = 0, batch = 0;  // batch: of fixed_tokens; 0: they are fewer than n
    Times one_example, fixed_tokens;
  };
  std::int64_t tokens = 0;  // of a batch where their number is fixed
  std::vector<Row> rows;
};
[[nodiscard]] LengthStudy measure_lengths(const CostOptions& options);
[[nodiscard]] Table length_table(const LengthStudy& study);

/// Length from which a method's attention is cheaper than softmax's, by time and by operations.
[[nodiscard]] Table crossover_table(const CostOptions& options, const LengthStudy& study);

/// The point from which the first curve is below the second for good, on log axes; x is ascending,
/// and both curves have equally many points. below: at all points; never: at none of the last.
struct Crossing {
  enum class Where { below, at, never } where = Where::never;
  double x = 0;
};
[[nodiscard]] Crossing crossing(const std::vector<double>& x, const std::vector<double>& first,
                                const std::vector<double>& second);

/// Steps and seconds of the finished runs below `folder` until their dev loss had not improved for
/// `patience` evaluations (Skeinformer preprint, Table 3). DataError if there is none.
[[nodiscard]] Table convergence_table(const std::filesystem::path& folder, std::int64_t patience);

}  // namespace skytape::train
