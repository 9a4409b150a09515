// The interface by which several processes of one job communicate, and MPI behind it.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace skytape::train {

/// The job that a launcher started. Every collective is called by all ranks in the same order and
/// has a time limit: Error naming the ranks and hosts that do not answer.
class Job {
 public:
  struct Place {
    int rank = 0, size = 1;
    int local_rank = 0, local_size = 1;  // among the ranks of this host
    std::vector<std::string> hosts;      // of each rank
  };
  /// Waits for a collective that has begun. Until then its buffers must stay, and nothing else may
  /// touch what it writes. All that have begun move on within any call of the job.
  using Wait = std::function<void(double limit_seconds)>;

  Job() = default;
  virtual ~Job() = default;  ///< leaves the job, once all ranks do
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  [[nodiscard]] virtual const Place& place() const = 0;
  /// Ends the whole job immediately; the launcher's exit code is `code`.
  virtual void abort(int code) = 0;

  /// Copies rank 0's bytes to all ranks.
  virtual void broadcast(std::span<std::byte> bytes, double limit_seconds) = 0;
  /// all: what every rank has, one behind the other in the ranks' order, each of mine.size().
  virtual void all_gather(std::span<const float> mine, std::span<float> all,
                          double limit_seconds) = 0;
  /// Begins to send the j-th part of `send` to rank j; `receive` gets one part from each. Counts
  /// are numbers.
  [[nodiscard]] virtual Wait begin_all_to_all(std::span<const float> send,
                                              const std::vector<int>& send_counts,
                                              std::span<float> receive,
                                              const std::vector<int>& receive_counts) = 0;
  /// Begins the sum over the ranks, in the order that is fastest.
  [[nodiscard]] virtual Wait begin_sum(std::span<float> numbers) = 0;
  [[nodiscard]] virtual Wait begin_sum(std::span<double> numbers) = 0;
};

/// Joins the job through MPI, once in a process. Error in a build without MPI.
[[nodiscard]] std::shared_ptr<Job> join_mpi();

/// "Open MPI v4.1.4"; empty in a build without MPI.
[[nodiscard]] std::string mpi_library();

}  // namespace skytape::train
