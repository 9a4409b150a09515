// The kernels of one training step on a GPU: the time of each, and the bytes and operations of its
// work.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "data/files/json_fwd.hpp"
#include "tensor/core/gpu_count.hpp"
#include "tensor/timing/kernel_times.hpp"
#include "train/formats/table.hpp"
#include "train/lab/bench/bench.hpp"

namespace skytape::train {

/// A kernel, product or copy that a step submits, and how it ran.
struct KernelRow {
  GpuKernel submitted;       // its name, part and work (step_kernels)
  std::string library;       // a product: the library's kernel
  std::int64_t kernels = 0;  // that ran for it: a product may take several, 0: it was not seen
  std::int64_t blocks = 0, threads = 0, registers = 0, shared_bytes = 0;
  double us = 0;      // of all of them, as are the medians over the replays
  double gap_us = 0;  // between the end of whatever ran before and its start; overlapping: 0
  // The time that it adds to the step: without the time in which a kernel that began before it
  // still ran, and it only waited (programmatic dependent launch) or ran in parallel (a second
  // stream).
  double added_us = 0;
};

struct StepKernels {
  std::vector<KernelRow> rows;  // in the order of their submission
  KernelRow unexplained;      // what ran beyond them, together; counts 0 kernels where all is well
  std::int64_t by_order = 0;  // kernels of ours of which no function has the traced name
  std::string why_events;     // why launches were timed, and no replays traced; empty: they were
  double step_us = 0;         // of a step when nothing is traced, one behind the other
  int multiprocessors = 0;
  [[nodiscard]] double sum_us() const;
  [[nodiscard]] double gaps_us() const;
};

/// Gives the traced kernels of so many replays of one step to what the step submitted, in order:
/// our own by their names, a library's and copies by what stands between. Error if the replays
/// differ from each other.
void match_kernels(const std::vector<KernelTime>& traced, std::size_t replays,
                   const std::vector<GpuKernel>& submitted, StepKernels& step);
/// The same of launches that were timed one by one, in several equal steps. Error if they are not
/// those that were counted.
void match_launches(const std::vector<std::vector<LaunchTime>>& steps,
                    const std::vector<GpuKernel>& submitted, StepKernels& step);

/// Runs a case on CUDA: c.steps replays traced by CUPTI, or without it launches timed by events.
[[nodiscard]] StepKernels measure_kernels(const BenchCase& c);

/// Rates of this GPU that times are compared with; 0: not measured.
struct GpuRates {
  double copy_gbs = 0;        // read plus written
  double product_tflops = 0;  // of the case's precision
  double fp32_tflops = 0;     // products without tensor cores
};
/// Every kernel; then sums by the op that it belongs to, and by its name, the longest first.
[[nodiscard]] std::vector<Table> kernel_tables(const BenchCase& c, const StepKernels& step,
                                               const GpuRates& rates);
/// A line for each case: its step's time, and the sums of its parts.
[[nodiscard]] Table summary_table(const std::vector<std::pair<BenchCase, StepKernels>>& steps);
/// The same with all that is known of each kernel.
[[nodiscard]] data::Json to_json(const BenchCase& c, const StepKernels& step);

}  // namespace skytape::train
