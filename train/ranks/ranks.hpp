// The processes that train together. A program that was started alone is rank 0 of 1, and none of
// what stands here costs it anything.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tensor/core/error.hpp"
#include "tensor/core/tensor.hpp"
#include "train/ranks/job.hpp"

namespace skytape::train {

/// The order in which a sum over microbatches is made: theirs, with the bits of one process, or the
/// fastest one; automatic: ordered on CPUs, fast on GPUs.
enum class Reduce { automatic, ordered, fast };
/// "auto", "ordered" or "fast"; UsageError for another name.
[[nodiscard]] Reduce parse_reduce(const std::string& name);
[[nodiscard]] const char* name(Reduce reduce);

/// A line for --version: the library of MPI, or that there is none.
[[nodiscard]] std::string mpi_facts();

struct RanksOptions {
  Reduce reduce = Reduce::automatic;
  double limit_seconds = 40;  // that the ranks wait for one of them
};

/// An error that all ranks throw, since they told each other: one of them prints it.
struct AgreedError : Error {
  using Error::Error;
};

class Ranks {
 public:
  Ranks() = default;  ///< one process alone
  /// The ranks of the job that a launcher started; one process alone where none did. UsageError if
  /// a launcher did and this program was built without MPI.
  [[nodiscard]] static Ranks join(const RanksOptions& options);

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] bool alone() const { return size_ == 1; }
  [[nodiscard]] bool first() const { return rank_ == 0; }  ///< it prints and writes
  [[nodiscard]] bool first_of_host() const;
  [[nodiscard]] Reduce reduce_on(Device device) const;  ///< ordered or fast
  /// CPU threads for this rank where the user says none: the cores that it may use, shared with the
  /// other ranks of its host unless the launcher bound it to cores of its own.
  [[nodiscard]] int default_threads() const;
  /// "4 ranks on 2 hosts".
  [[nodiscard]] std::string text() const;

  // All ranks call these in the same order.

  /// Does `work` on every rank. If it threw on one, all throw AgreedError with what the lowest such
  /// rank says, its name and host before it unless all say the same. Waits for the slowest: for
  /// ever if `patient`, as for data that are prepared.
  void together(const std::function<void()>& work, bool patient = false) const;
  /// The same on rank 0 alone: the folders of a run, and what the user reads, are its own.
  void on_first(const std::function<void()>& work) const;
  /// Returns rank 0's answer, on all ranks.
  [[nodiscard]] bool ask_first(const std::function<bool()>& question) const;
  [[nodiscard]] std::string ask_first(const std::function<std::string()>& question) const;
  /// The largest of the ranks' numbers.
  [[nodiscard]] int largest(int mine) const;
  /// Every rank's numbers, by rank; all have as many.
  [[nodiscard]] std::vector<std::vector<double>> gather(const std::vector<double>& mine) const;
  /// Copies rank 0's value to all ranks.
  void broadcast(std::string& text) const;
  void broadcast(std::span<std::byte> bytes) const;
  void broadcast(Tensor& tensor) const;

  /// total: the sum of all ranks' rows of total.size() numbers. There are `microbatches` rows;
  /// the k-th of this rank's is that of microbatch k * size() + rank(), and the sum is made in the
  /// order of the microbatches. Moves about rows.size() + total.size() numbers in and out, in two
  /// rounds. total.size() is a multiple of size().
  void sum_in_order(std::span<const float> rows, std::int64_t microbatches,
                    std::span<float> total) const;
  /// The sum over the ranks, in place, in any order: twice numbers.size() in and out.
  void sum(std::span<float> numbers) const;

  /// A barrier, but no error where a rank does not reach it. A launcher ends the job as soon as one
  /// rank has left it with an error: nobody does before rank 0 has said what went wrong.
  void sync() const;
  /// Says what went wrong here and ends the job. Where several ranks fail at once, the lowest
  /// speaks.
  [[noreturn]] void fail(const std::exception& error) const;

 private:
  [[nodiscard]] std::vector<std::string> gather_texts(const std::string& mine, double limit) const;

  std::shared_ptr<Job> job_;  // null: alone
  RanksOptions options_;
  int rank_ = 0, size_ = 1;
};

/// A program that was started alone.
inline const Ranks kAlone;

/// Runs `work` as a rank of the job. An error that all ranks know is said by rank 0 and gives all
/// its exit code; any other ends the job with one message.
int with_ranks(const RanksOptions& options, const std::function<int(const Ranks&)>& work);

/// Returns how many of `microbatches` a rank of `size` computes: those whose number is `rank`
/// modulo `size`.
[[nodiscard]] constexpr std::int64_t share_of(std::int64_t microbatches, int rank, int size) {
  return (microbatches + size - 1 - rank) / size;
}

}  // namespace skytape::train
