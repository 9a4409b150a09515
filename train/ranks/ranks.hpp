// The processes that train together, called ranks, and three verbs between them: first, broadcast
// and sum. A program that was started alone is rank 0 of 1, and none of what stands here costs it
// anything.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "tensor/core/error.hpp"
#include "tensor/core/tensor.hpp"
#include "train/process/failure.hpp"
#include "train/ranks/job.hpp"
#include "train/step/share.hpp"

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
  double limit_seconds = 40;  // how long ranks wait for a missing one
};

/// An error that all ranks throw, since they told each other: one of them prints it.
struct AgreedError : CodedError {
  using CodedError::CodedError;
};

class Ranks;

/// Does `work` on every rank. If it threw on one, all throw AgreedError with what the lowest such
/// rank says, its name and host before it unless all say the same. Waits for the slowest.
void together(const Ranks& ranks, const std::function<void()>& work);

class Ranks {
 public:
  Ranks() = default;  ///< one process alone
  /// The ranks of the job that a launcher started; one process alone where none did. UsageError if
  /// a launcher did and this program was built without MPI.
  [[nodiscard]] static Ranks join(const RanksOptions& options);

  [[nodiscard]] const Job::Place& place() const { return place_; }
  [[nodiscard]] int rank() const { return place_.rank; }
  [[nodiscard]] int size() const { return place_.size; }
  [[nodiscard]] bool alone() const { return size() == 1; }
  /// Returns this rank's part of what the ranks share out.
  [[nodiscard]] Share share() const { return {rank(), size()}; }
  [[nodiscard]] Reduce reduce_on(Device device) const;  ///< ordered or fast
  /// CPU threads for this rank where the user says none: the cores that it may use, shared with the
  /// other ranks of its host unless the launcher bound it to cores of its own.
  [[nodiscard]] int default_threads() const;
  /// "4 ranks on 2 hosts".
  [[nodiscard]] std::string text() const;
  /// Returns the same ranks, which wait for one another without a limit.
  [[nodiscard]] Ranks patient() const;

  // The three verbs. All ranks call them in the same order.

  /// Returns whether this is rank 0, which prints and writes: no exchange.
  [[nodiscard]] bool first() const { return rank() == 0; }
  /// Does `work` on rank 0 alone, whose files the folders of a run are. Returns its answer, a text
  /// or a bool if any, on all ranks; all throw what it throws, as together() does.
  template <class Work> std::invoke_result_t<const Work&> first(const Work& work) const {
    using Value = std::invoke_result_t<const Work&>;
    if constexpr (std::is_void_v<Value>) {
      together(*this, [&] {
        if (first()) work();
      });
    } else {
      Value answer{};
      first([&] { answer = work(); });
      broadcast(answer);
      return answer;
    }
  }

  /// Copies rank 0's value to all ranks.
  void broadcast(std::string& text) const;
  void broadcast(bool& yes) const;
  void broadcast(std::span<std::byte> bytes) const;
  void broadcast(Tensor& tensor) const;

  /// Adds up the ranks' numbers in place, in any order: exact for integers, and where all ranks but
  /// one have zeros.
  void sum(std::span<double> numbers) const;
  /// Begins such a sum, during which the rank computes on. Returns what waits for the result; until
  /// then the numbers belong to the sum.
  [[nodiscard]] std::function<void()> begin_sum(std::span<float> numbers) const;
  /// Begins to make `total` the sum of all ranks' rows, from place `at` of a row on. There are
  /// `microbatches` rows of equal size; the k-th of this rank's is that of microbatch
  /// k * size() + rank(), and the sum is made in the order of the microbatches. Moves about as many
  /// numbers in and out as this rank's rows and total have, in two rounds, the second one within
  /// the wait. Reads the rows immediately.
  [[nodiscard]] std::function<void()> begin_sum(std::span<const float> rows,
                                                std::int64_t microbatches, std::size_t at,
                                                std::span<float> total) const;

 private:
  friend int with_ranks(const RanksOptions& options, const std::function<int(const Ranks&)>& work);
  [[noreturn]] void fail(const std::exception& error) const;

  std::shared_ptr<Job> job_;  // null: alone
  RanksOptions options_;
  Job::Place place_;
};

/// A program that was started alone.
inline const Ranks kAlone;

/// Returns every rank's numbers, one rank's behind the other's; all have as many.
[[nodiscard]] std::vector<double> gather(const Ranks& ranks, const std::vector<double>& mine);

/// Does `work` on rank 0, then on one rank of each host: they may have a folder in common, or each
/// its own. However long it takes, the others wait; all throw where one does.
void once_a_host(const Ranks& ranks, const std::function<void()>& work);

/// Runs `work` as a rank of the job. An error that all ranks know is said by rank 0 and gives all
/// its exit code; any other ends the job with one message.
int with_ranks(const RanksOptions& options, const std::function<int(const Ranks&)>& work);

}  // namespace skytape::train
