// Runs the program as several ranks, under the mpirun of this machine.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "tests/train/cli/workshop.hpp"

namespace skytape::test {

/// True when the program was built with MPI and mpirun starts it; otherwise says that the case is
/// skipped.
[[nodiscard]] bool mpirun_or_skip();

/// Starts so many ranks, more than there are cores if need be.
[[nodiscard]] Place ranks(int count);

/// The processes of the ranks of a running job, in no order; empty before all have started.
[[nodiscard]] std::vector<pid_t> processes_of(const Program& job, int count);

/// Waits until a job has said so many lines of steps, or has ended.
void wait_for_steps(Program& job, int lines);

/// Returns whether a process is there and has not ended.
[[nodiscard]] bool runs(pid_t process);

/// `train` of a small model: batches of 8 examples in 4 microbatches.
[[nodiscard]] std::vector<std::string> train_together(const Workshop& w, const std::string& name,
                                                      int steps,
                                                      const std::vector<std::string>& more = {});

/// metrics.jsonl of a run without what a clock says.
[[nodiscard]] std::string metrics_of(const std::filesystem::path& run);

/// Returns how often a text has a part.
[[nodiscard]] int count_of(const std::string& text, const std::string& part);

/// The largest difference between two checkpoints' tensors.
[[nodiscard]] double largest_difference(const std::filesystem::path& a,
                                        const std::filesystem::path& b);

}  // namespace skytape::test
