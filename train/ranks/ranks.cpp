#include "train/ranks/ranks.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <limits>
#include <mutex>
#include <set>
#include <thread>

#include "tensor/core/suggest.hpp"
#include "train/process/failure.hpp"
#include "train/process/launch.hpp"
#include "train/process/signals.hpp"
#include "train/process/streams.hpp"

namespace skytape::train {
namespace {

constexpr double kForEver = std::numeric_limits<double>::infinity();
constexpr double kTurnSeconds = 1;      // that a rank waits for a lower one to report
constexpr double kJoinTurnSeconds = 5;  // the same where the launcher must end the others
constexpr unsigned kAbortSeconds = 5;

/// Cores that this process may use.
int usable_cores() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

template <class T> std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span<const T>(values));
}

void print_error(const std::string& what) {
  write_stderr(fmt::format("skytape: error: {}\n", what));
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "an unnamed host";
}

/// Ends this process, and with it the job, unless it is gone before the time is over: until all
/// ranks have joined, MPI waits without a limit, for a rank that never comes or cannot be reached.
class JoinLimit {
 public:
  JoinLimit(int rank, double seconds) : thread_([this, rank, seconds] { watch(rank, seconds); }) {}
  ~JoinLimit() {
    {
      const std::lock_guard lock(mutex_);
      joined_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  JoinLimit(const JoinLimit&) = delete;
  JoinLimit& operator=(const JoinLimit&) = delete;

 private:
  void watch(int rank, double seconds) {
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return joined_; })) {
      return;
    }
    if (waits_to_report(rank, kJoinTurnSeconds)) {
      print_error(
          fmt::format("rank {} on {}: the ranks did not meet within {:g} s (--rank-timeout): one "
                      "did not start, or a host cannot reach another",
                      rank, host_name(), seconds));
    }
    std::_Exit(1);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool joined_ = false;
  std::thread thread_;  // last: it reads the others
};

/// The GPU of this rank among those of its host, unless the launcher has given it one already. By
/// number: MPI may have asked the driver for its devices, which then no longer reads the variable.
void select_gpu(const Job::Place& place) {
  const char* const given = std::getenv("CUDA_VISIBLE_DEVICES");
  const bool has_one = given != nullptr && *given != '\0' && std::strchr(given, ',') == nullptr;
  if (!has_one) use_gpu(place.local_rank);
}

}  // namespace

std::string mpi_facts() {
  const std::string library = mpi_library();
  return fmt::format("MPI       {}\n", library.empty() ? "not built in (make MPI=1)" : library);
}

Reduce parse_reduce(const std::string& name) {
  if (name == "auto") return Reduce::automatic;
  if (name == "ordered") return Reduce::ordered;
  if (name == "fast") return Reduce::fast;
  throw UsageError(unknown_name("--reduce", name, {"auto", "ordered", "fast"}));
}

const char* name(Reduce reduce) {
  return reduce == Reduce::automatic ? "auto" : reduce == Reduce::ordered ? "ordered" : "fast";
}

Reduce Ranks::reduce_on(Device device) const {
  if (options_.reduce != Reduce::automatic) return options_.reduce;
  return device == Device::cpu ? Reduce::ordered : Reduce::fast;
}

Ranks Ranks::join(const RanksOptions& options) {
  Ranks ranks;
  ranks.options_ = options;
  const Launch launch = launched();
  if (unconnected_tasks() > 1) {
    throw UsageError(
        fmt::format("srun started {} tasks that do not know each other: srun --mpi=pmix, or mpirun "
                    "inside the allocation, makes them ranks of one job",
                    unconnected_tasks()));
  }
  if (launch.size == 1) return ranks;
  if (mpi_library().empty()) {
    throw UsageError(
        fmt::format("started as one of {} ranks, but this program was built without "
                    "MPI: make MPI=1, which needs libopenmpi-dev or libmpich-dev",
                    launch.size));
  }
  {
    const JoinLimit limit(launch.rank, options.limit_seconds);
    ranks.job_ = join_mpi();
  }
  ranks.rank_ = ranks.job_->place().rank;
  ranks.size_ = ranks.job_->place().size;
  ENSURE(ranks.size_ == launch.size, "MPI finds ", ranks.size_, " ranks, the launcher started ",
         launch.size, ": this program was built with ", mpi_library(),
         "; start it with the launcher of the same");
  select_gpu(ranks.job_->place());
  return ranks;
}

bool Ranks::first_of_host() const { return job_ == nullptr || job_->place().local_rank == 0; }

int Ranks::default_threads() const {
  const int usable = usable_cores();
  const bool bound = usable < static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  if (alone() || bound) return usable;
  return std::max(1, usable / job_->place().local_size);
}

std::string Ranks::text() const {
  if (alone()) return "1 rank";
  const auto& hosts = job_->place().hosts;
  const std::size_t different = std::set<std::string>(hosts.begin(), hosts.end()).size();
  return fmt::format("{} ranks on {} host{}", size_, different, different == 1 ? "" : "s");
}

std::vector<std::string> Ranks::gather_texts(const std::string& mine, double limit) const {
  const auto count = static_cast<std::size_t>(size_);
  std::vector<std::int64_t> length = {std::ssize(mine)}, lengths(count);
  job_->all_gather(bytes_of(length), std::as_writable_bytes(std::span(lengths)), limit);
  const auto most = static_cast<std::size_t>(*std::max_element(lengths.begin(), lengths.end()));
  std::vector<char> padded(mine.begin(), mine.end()), all(most * count);
  padded.resize(most);
  job_->all_gather(bytes_of(padded), std::as_writable_bytes(std::span(all)),
                   options_.limit_seconds);
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < count; ++i) {
    texts.emplace_back(all.data() + i * most, static_cast<std::size_t>(lengths[i]));
  }
  return texts;
}

void Ranks::together(const std::function<void()>& work, bool patient) const {
  if (alone()) return work();
  std::string mine;  // exit code, a space, what went wrong; empty: nothing did
  try {
    work();
  } catch (const std::exception& error) {
    mine = fmt::format("{} {}", exit_code_of(error), describe(error));
  }
  const std::vector<std::string> all =
      gather_texts(mine, patient ? kForEver : options_.limit_seconds);
  const auto failed =
      std::find_if(all.begin(), all.end(), [](const auto& t) { return !t.empty(); });
  if (failed == all.end()) return;
  const std::size_t space = failed->find(' ');
  std::string text = failed->substr(space + 1);
  if (std::count(all.begin(), all.end(), *failed) < size_) {
    const auto rank = static_cast<std::size_t>(failed - all.begin());
    text = fmt::format("rank {} on {}: {}", rank, job_->place().hosts[rank], text);
  }
  throw AgreedError(text, std::stoi(failed->substr(0, space)));
}

void Ranks::on_first(const std::function<void()>& work) const {
  together([&] {
    if (first()) work();
  });
}

bool Ranks::ask_first(const std::function<bool()>& question) const {
  bool yes = false;
  on_first([&] { yes = question(); });
  return largest(yes) == 1;
}

std::string Ranks::ask_first(const std::function<std::string()>& question) const {
  std::string text;
  on_first([&] { text = question(); });
  broadcast(text);
  return text;
}

int Ranks::largest(int mine) const {
  if (alone()) return mine;
  std::vector<int> one = {mine}, all(static_cast<std::size_t>(size_));
  job_->all_gather(bytes_of(one), std::as_writable_bytes(std::span(all)), options_.limit_seconds);
  return *std::max_element(all.begin(), all.end());
}

std::vector<std::vector<double>> Ranks::gather(const std::vector<double>& mine) const {
  if (alone()) return {mine};
  std::vector<double> all(mine.size() * static_cast<std::size_t>(size_));
  job_->all_gather(bytes_of(mine), std::as_writable_bytes(std::span(all)), options_.limit_seconds);
  std::vector<std::vector<double>> parts;
  for (std::size_t at = 0; at < all.size(); at += mine.size()) {
    parts.emplace_back(all.data() + at, all.data() + at + mine.size());
  }
  return parts;
}

void Ranks::broadcast(std::string& text) const {
  if (alone()) return;
  std::int64_t length = std::ssize(text);
  broadcast(std::as_writable_bytes(std::span(&length, 1)));
  text.resize(static_cast<std::size_t>(length));
  broadcast(std::as_writable_bytes(std::span(text)));
}

void Ranks::broadcast(std::span<std::byte> bytes) const {
  if (!alone()) job_->broadcast(bytes, options_.limit_seconds);
}

void Ranks::broadcast(Tensor& tensor) const {
  if (alone()) return;
  Tensor host = tensor.to(Device::cpu);  // the tensor itself where it is there
  broadcast(std::span(static_cast<std::byte*>(host.raw()), host.bytes()));
  if (tensor.device() != Device::cpu) tensor.copy_from(host);
}

// Rank r owns the r-th slice of the total: it gets that slice of every row, adds them up in the
// order of the microbatches, and hands the result to all.
void Ranks::sum_in_order(std::span<const float> rows, std::int64_t microbatches,
                         std::span<float> total) const {
  const auto size = static_cast<std::size_t>(size_), width = total.size();
  const std::size_t slice = width / size;
  const auto mine = static_cast<std::size_t>(share_of(microbatches, rank_, size_));
  ENSURE(slice * size == width && rows.size() == mine * width, "sum_in_order: ", rows.size(),
         " numbers of ", mine, " rows for a sum of ", width, " on ", size_, " ranks");
  std::vector<float> sent(rows.size());  // [rank, row, slice]
  std::vector<int> send_counts(size, static_cast<int>(mine * slice)), receive_counts(size);
  for (std::size_t to = 0; to < size; ++to) {
    for (std::size_t row = 0; row < mine; ++row) {
      std::memcpy(&sent[(to * mine + row) * slice], &rows[row * width + to * slice],
                  slice * sizeof(float));
    }
    receive_counts[to] = static_cast<int>(share_of(microbatches, static_cast<int>(to), size_)) *
                         static_cast<int>(slice);
  }
  std::vector<float> received(static_cast<std::size_t>(microbatches) *
                              slice);  // [rank, row, slice]
  job_->all_to_all(sent, send_counts, received, receive_counts, options_.limit_seconds);

  std::vector<const float*> from(size);  // each rank's next row
  const float* start = received.data();
  for (std::size_t r = 0; r < size; ++r) {
    from[r] = start;
    start += receive_counts[r];
  }
  std::vector<float> own(from[0], from[0] + slice);
  from[0] += slice;
  for (std::int64_t i = 1; i < microbatches; ++i) {
    const float*& row = from[static_cast<std::size_t>(i) % size];
    for (std::size_t j = 0; j < slice; ++j) own[j] += row[j];
    row += slice;
  }
  job_->all_gather(bytes_of(own), std::as_writable_bytes(total), options_.limit_seconds);
}

void Ranks::sum(std::span<float> numbers) const {
  if (!alone()) job_->sum(numbers, options_.limit_seconds);
}

void Ranks::sync() const {
  try {
    (void)largest(0);
  } catch (const Error&) {  // a rank that is missing has no error to print either
  }
}

void Ranks::fail(const std::exception& error) const {
  if (signal_received() == 0 && waits_to_report(rank_, kTurnSeconds)) {
    print_error(fmt::format("rank {} on {}: {}", rank_,
                            job_->place().hosts[static_cast<std::size_t>(rank_)], describe(error)));
  }
  ::alarm(kAbortSeconds);  // where the launcher cannot be reached, MPI would wait for it
  job_->abort(exit_code_of(error));
  std::_Exit(exit_code_of(error));
}

int with_ranks(const RanksOptions& options, const std::function<int(const Ranks&)>& work) {
  const Ranks ranks = Ranks::join(options);
  if (ranks.alone()) return work(ranks);
  try {
    return work(ranks);
  } catch (const AgreedError& error) {
    if (ranks.first()) print_error(error.what());
    ranks.sync();
    return error.exit_code();
  } catch (const std::exception& error) {
    ranks.fail(error);
  }
}

}  // namespace skytape::train
