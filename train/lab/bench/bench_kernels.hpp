// The kernels of one training step on a GPU and the time of each, as CUPTI records them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "data/files/json_fwd.hpp"
#include "tensor/timing/kernel_times.hpp"
#include "train/formats/table.hpp"
#include "train/lab/bench/bench.hpp"

namespace skytape::train {

/// A kernel, copy or fill of a replayed step. Times are medians over the replays.
struct KernelRow {
  std::string name;
  std::string part;  // the op, or "optimiser" or "data"; kNoPart: no kernel of a direct step
  std::int64_t blocks = 0, threads = 0, registers = 0, shared_bytes = 0;
  double us = 0;
  double gap_us = 0;  // between the end of whatever ran before and its start; overlapping: 0
  // The time that it adds to the step: without the time in which a kernel that began before it
  // still ran, and it only waited (programmatic dependent launch) or ran in parallel (a second
  // stream).
  double added_us = 0;
};
inline constexpr const char* kNoPart = "unknown";

struct StepKernels {
  std::vector<KernelRow> rows;  // in the order of their starts in the first replay
  double step_us = 0;           // of a step when nothing is traced, one behind the other
  int multiprocessors = 0;
  [[nodiscard]] double sum_us() const;  // of added_us
  [[nodiscard]] double gaps_us() const;
};

/// Returns the kernels of a step from the trace of so many replays of its graph. Their parts are
/// those of a direct step, submitted op by op: the kernels of one name run in the same order in
/// both. Error if the replays differ from each other.
[[nodiscard]] std::vector<KernelRow> rows_of(const std::vector<KernelTime>& traced,
                                             std::size_t replays,
                                             const std::vector<KernelTime>& direct);

/// Runs a case on CUDA and traces c.steps replays of its step. Error if CUPTI records nothing here.
[[nodiscard]] StepKernels measure_kernels(const BenchCase& c);

/// Every kernel; then sums by the op that it belongs to, and by its name and op, the longest first.
[[nodiscard]] std::vector<Table> kernel_tables(const BenchCase& c, const StepKernels& step);
/// A line for each case: its step's time, and the sums of its parts.
[[nodiscard]] Table summary_table(const std::vector<std::pair<BenchCase, StepKernels>>& steps);
/// The same with all that is known of each kernel.
[[nodiscard]] data::Json to_json(const BenchCase& c, const StepKernels& step);

}  // namespace skytape::train
