// Timing whole training steps of the benchmark's model, and the attention alone.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "tensor/device.hpp"

namespace skytape::train {

struct BenchCase {
  std::string attention;
  Device device = Device::cpu;
  std::string precision = "fp32";
  std::int64_t n = 2048;        // positions, all of them real tokens
  std::int64_t batch = 4;       // examples
  std::int64_t features = 128;  // where the method has such an option
  std::int64_t steps = 10;      // timed repetitions, after two that are not
  bool forward_only = false;    // no backward, no update
};

struct Timing {
  double median_ms = 0, min_ms = 0;
};

struct BenchResult {
  std::optional<Timing> step;  // forward, backward, update
  Timing forward;              // of the model, evaluation mode
  Timing attention_forward;    // of one layer's attention, training mode
  std::optional<Timing> attention_forward_backward;
  std::int64_t peak_bytes = 0;  // of the allocator
  std::int64_t rss_bytes = 0;   // of the process, after the case
  std::optional<double> flops;  // of a step (or a forward), if the method's cost is known
};

/// Runs one case with the model and dropout of recipe `skytape`. UsageError for an unknown method.
[[nodiscard]] BenchResult run_bench(const BenchCase& c);

/// Multiply-adds of one head (attention.md 15): n positions, p head width, d features.
struct AttentionCost {
  double forward = 0, backward = 0;
};
[[nodiscard]] std::optional<AttentionCost> attention_cost(std::string_view method, double n,
                                                          double p, double d);

/// One object of the bench's "results" array; gemm_gflops is this machine's own rate.
[[nodiscard]] nlohmann::json to_json(const BenchCase& c, const BenchResult& r, double gemm_gflops);

}  // namespace skytape::train
