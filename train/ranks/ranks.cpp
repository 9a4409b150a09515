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
#include <iterator>
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

/// "rank 1 on alpha".
std::string name_of(const Job::Place& place, std::size_t rank) {
  return fmt::format("rank {} on {}", rank, place.hosts[rank]);
}

/// Every rank's text.
std::vector<std::string> gather_texts(const Ranks& ranks, const std::string& mine) {
  const std::vector<double> lengths = gather(ranks, {static_cast<double>(mine.size())});
  const auto most = static_cast<std::size_t>(*std::max_element(lengths.begin(), lengths.end()));
  std::vector<double> padded(mine.begin(), mine.end());
  padded.resize(most);
  const std::vector<double> all = gather(ranks, padded);
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < lengths.size(); ++r) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(r * most);
    std::string& text = texts.emplace_back();
    std::transform(begin, begin + static_cast<std::ptrdiff_t>(lengths[r]), std::back_inserter(text),
                   [](double c) { return static_cast<char>(c); });
  }
  return texts;
}

/// A barrier, but no error where a rank does not reach it. A launcher ends the job as soon as one
/// rank has left it with an error: nobody does before rank 0 has said what went wrong.
void wait_for_all(const Ranks& ranks) {
  try {
    (void)gather(ranks, {0});
  } catch (const Error&) {  // a rank that is missing has no error to print either
  }
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
  ranks.place_ = ranks.job_->place();
  ENSURE(ranks.size() == launch.size, "MPI finds ", ranks.size(), " ranks, the launcher started ",
         launch.size, ": this program was built with ", mpi_library(),
         "; start it with the launcher of the same");
  select_gpu(ranks.place_);
  return ranks;
}

int Ranks::default_threads() const {
  const int usable = usable_cores();
  const bool bound = usable < static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  if (alone() || bound) return usable;
  return std::max(1, usable / place_.local_size);
}

std::string Ranks::text() const {
  if (alone()) return "1 rank";
  const auto& hosts = place_.hosts;
  const std::size_t different = std::set<std::string>(hosts.begin(), hosts.end()).size();
  return fmt::format("{} ranks on {} host{}", size(), different, different == 1 ? "" : "s");
}

Ranks Ranks::patient() const {
  Ranks patient = *this;
  patient.options_.limit_seconds = kForEver;
  return patient;
}

void Ranks::broadcast(std::string& text) const {
  if (alone()) return;
  std::int64_t length = std::ssize(text);
  broadcast(std::as_writable_bytes(std::span(&length, 1)));
  text.resize(static_cast<std::size_t>(length));
  broadcast(std::as_writable_bytes(std::span(text)));
}

void Ranks::broadcast(bool& yes) const { broadcast(std::as_writable_bytes(std::span(&yes, 1))); }

void Ranks::broadcast(std::span<std::byte> bytes) const {
  if (!alone()) job_->broadcast(bytes, options_.limit_seconds);
}

void Ranks::broadcast(Tensor& tensor) const {
  if (alone()) return;
  Tensor host = tensor.to(Device::cpu);  // the tensor itself where it is there
  broadcast(std::span(static_cast<std::byte*>(host.raw()), host.bytes()));
  if (tensor.device() != Device::cpu) tensor.copy_from(host);
}

void Ranks::sum(std::span<double> numbers) const {
  if (!alone()) job_->begin_sum(numbers)(options_.limit_seconds);
}

std::function<void()> Ranks::begin_sum(std::span<float> numbers) const {
  if (alone()) return [] {};
  return [wait = job_->begin_sum(numbers), limit = options_.limit_seconds] { wait(limit); };
}

// Rank r owns the r-th slice of the total: it gets that slice of every row, adds them up in the
// order of the microbatches, and hands the result to all. The last slice is filled up with zeros.
std::function<void()> Ranks::begin_sum(std::span<const float> rows, std::int64_t microbatches,
                                       std::size_t at, std::span<float> total) const {
  const auto count = static_cast<std::size_t>(size()), width = total.size();
  const std::size_t slice = ceil_div(width, count);
  const auto mine = static_cast<std::size_t>(share().of(microbatches));
  const std::size_t row_size = mine == 0 ? at + width : rows.size() / mine;
  ENSURE(rows.size() == mine * row_size && at + width <= row_size, "sum: ", rows.size(),
         " numbers of ", mine, " rows for a sum of ", width, " from place ", at, " on");
  const auto sent =
      std::make_shared<std::vector<float>>(count * mine * slice);  // [rank, row, slice]
  std::vector<int> send_counts(count, static_cast<int>(mine * slice)), receive_counts(count);
  for (std::size_t to = 0; to < count; ++to) {
    const std::size_t begin = std::min(width, to * slice);
    const std::size_t bytes = std::min(slice, width - begin) * sizeof(float);
    for (std::size_t row = 0; row < mine; ++row) {
      std::memcpy(sent->data() + (to * mine + row) * slice,
                  rows.data() + row * row_size + at + begin, bytes);
    }
    const Share theirs{static_cast<std::int64_t>(to), size()};
    receive_counts[to] = static_cast<int>(theirs.of(microbatches)) * static_cast<int>(slice);
  }
  const auto received = std::make_shared<std::vector<float>>(
      static_cast<std::size_t>(microbatches) * slice);  // [rank, row, slice]
  const Job::Wait wait = job_->begin_all_to_all(*sent, send_counts, *received, receive_counts);

  return [job = job_, limit = options_.limit_seconds, wait, sent, received, receive_counts, count,
          slice, microbatches, total] {
    wait(limit);
    std::vector<const float*> from(count);  // each rank's next row
    const float* start = received->data();
    for (std::size_t r = 0; r < count; ++r) {
      from[r] = start;
      start += receive_counts[r];
    }
    std::vector<float> own(from[0], from[0] + slice), all(count * slice);
    from[0] += slice;
    for (std::int64_t i = 1; i < microbatches; ++i) {
      const float*& row = from[static_cast<std::size_t>(i) % count];
      for (std::size_t j = 0; j < slice; ++j) own[j] += row[j];
      row += slice;
    }
    job->all_gather(own, all, limit);
    std::copy_n(all.begin(), total.size(), total.begin());
  };
}

std::vector<double> gather(const Ranks& ranks, const std::vector<double>& mine) {
  std::vector<double> all(mine.size() * static_cast<std::size_t>(ranks.size()));
  const auto place = static_cast<std::ptrdiff_t>(mine.size()) * ranks.rank();
  std::copy(mine.begin(), mine.end(), all.begin() + place);
  ranks.sum(all);
  return all;
}

void together(const Ranks& ranks, const std::function<void()>& work) {
  if (ranks.alone()) return work();
  int code = 0;
  std::string text;  // says what went wrong
  try {
    work();
  } catch (const std::exception& error) {
    code = exit_code_of(error);
    text = describe(error);
  }
  const std::vector<double> codes = gather(ranks, {static_cast<double>(code)});
  const auto failed = std::find_if(codes.begin(), codes.end(), [](double c) { return c != 0; });
  if (failed == codes.end()) return;
  const auto rank = static_cast<std::size_t>(failed - codes.begin());
  const std::vector<std::string> texts = gather_texts(ranks, text);
  const bool alike = std::count(codes.begin(), codes.end(), *failed) == ranks.size() &&
                     std::count(texts.begin(), texts.end(), texts[rank]) == ranks.size();
  throw AgreedError(
      alike ? texts[rank] : fmt::format("{}: {}", name_of(ranks.place(), rank), texts[rank]),
      static_cast<int>(*failed));
}

void once_a_host(const Ranks& ranks, const std::function<void()>& work) {
  const Ranks patient = ranks.patient();
  patient.first(work);
  together(patient, [&] {
    if (!ranks.first() && ranks.place().local_rank == 0) work();
  });
}

/// Says what went wrong here and ends the job. Where several ranks fail at once, the lowest
/// speaks.
void Ranks::fail(const std::exception& error) const {
  if (signal_received() == 0 && waits_to_report(rank(), kTurnSeconds)) {
    print_error(
        fmt::format("{}: {}", name_of(place_, static_cast<std::size_t>(rank())), describe(error)));
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
    wait_for_all(ranks);
    return error.exit_code;
  } catch (const std::exception& error) {
    ranks.fail(error);
  }
}

}  // namespace skytape::train
