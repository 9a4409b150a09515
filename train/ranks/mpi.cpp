// The one file that includes MPI's header.
#include "tensor/core/error.hpp"
#include "train/ranks/job.hpp"

#ifdef SKYTAPE_HAVE_MPI

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <numeric>
#include <thread>

namespace skytape::train {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRollTag = 1;
constexpr double kRollSeconds = 5;        // that a rank has to answer the roll call
constexpr double kListenSeconds = 0.5;    // of waiting, after which a rank listens for roll calls
constexpr std::int64_t kSpins = 2000;     // polls before others get the core
constexpr double kYieldSeconds = 0.002;   // of waiting, after which the core may sleep
constexpr std::int64_t kChunk = 1 << 30;  // bytes of one broadcast: MPI counts in ints

void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Error(fmt::format("{}: {}", call, std::string(text, static_cast<std::size_t>(length))));
}

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

int count_of(std::size_t numbers) {
  ENSURE(numbers <= static_cast<std::size_t>(std::numeric_limits<int>::max()),
         "ranks: one exchange holds at most 2^31 - 1 numbers, got ", numbers);
  return static_cast<int>(numbers);
}

std::vector<int> starts_of(const std::vector<int>& counts) {
  std::vector<int> starts(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), starts.begin(), 0);
  return starts;
}

/// The name of every rank's host.
std::vector<std::string> host_names(int size) {
  std::vector<char> mine(MPI_MAX_PROCESSOR_NAME + 1);
  int length = 0;
  MPI_Get_processor_name(mine.data(), &length);
  std::vector<char> all(mine.size() * static_cast<std::size_t>(size));
  const int each = count_of(mine.size());
  check(MPI_Allgather(mine.data(), each, MPI_CHAR, all.data(), each, MPI_CHAR, MPI_COMM_WORLD),
        "MPI_Allgather");
  std::vector<std::string> names;
  for (std::size_t at = 0; at < all.size(); at += mine.size()) names.emplace_back(&all[at]);
  return names;
}

class MpiJob : public Job {
 public:
  MpiJob() {
    int provided = 0;
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    check(MPI_Comm_dup(MPI_COMM_WORLD, &roll_), "MPI_Comm_dup");
    MPI_Comm_rank(MPI_COMM_WORLD, &place_.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &place_.size);
    MPI_Comm local = MPI_COMM_NULL;
    check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &local),
          "MPI_Comm_split_type");
    MPI_Comm_rank(local, &place_.local_rank);
    MPI_Comm_size(local, &place_.local_size);
    MPI_Comm_free(&local);
    place_.hosts = host_names(place_.size);
    answers_.resize(place_.hosts.size());
  }
  ~MpiJob() override {
    MPI_Comm_free(&roll_);
    MPI_Finalize();
  }

  [[nodiscard]] const Place& place() const override { return place_; }
  void abort(int code) override { MPI_Abort(MPI_COMM_WORLD, code); }

  void broadcast(std::span<std::byte> bytes, double limit) override {
    while (!bytes.empty()) {
      const auto part = bytes.first(std::min<std::size_t>(bytes.size(), kChunk));
      MPI_Request request = MPI_REQUEST_NULL;
      check(MPI_Ibcast(part.data(), count_of(part.size()), MPI_BYTE, 0, MPI_COMM_WORLD, &request),
            "MPI_Ibcast");
      wait(request, "MPI_Ibcast", limit);
      bytes = bytes.subspan(part.size());
    }
  }

  void all_gather(std::span<const float> mine, std::span<float> all, double limit) override {
    MPI_Request request = MPI_REQUEST_NULL;
    const int each = count_of(mine.size());
    check(MPI_Iallgather(mine.data(), each, MPI_FLOAT, all.data(), each, MPI_FLOAT, MPI_COMM_WORLD,
                         &request),
          "MPI_Iallgather");
    wait(request, "MPI_Iallgather", limit);
  }

  Wait begin_all_to_all(std::span<const float> send, const std::vector<int>& send_counts,
                        std::span<float> receive, const std::vector<int>& receive_counts) override {
    (void)count_of(send.size());
    (void)count_of(receive.size());
    struct Parts {
      std::vector<int> counts, starts;
    };
    const auto sent = std::make_shared<Parts>(Parts{send_counts, starts_of(send_counts)});
    const auto received = std::make_shared<Parts>(Parts{receive_counts, starts_of(receive_counts)});
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Ialltoallv(send.data(), sent->counts.data(), sent->starts.data(), MPI_FLOAT,
                         receive.data(), received->counts.data(), received->starts.data(),
                         MPI_FLOAT, MPI_COMM_WORLD, &request),
          "MPI_Ialltoallv");
    // MPI reads the parts until the end.
    return [sent, received, wait = begun(request, "MPI_Ialltoallv")](double limit) { wait(limit); };
  }

  Wait begin_sum(std::span<float> numbers) override {
    return begin_sum(numbers.data(), numbers.size(), MPI_FLOAT);
  }
  Wait begin_sum(std::span<double> numbers) override {
    return begin_sum(numbers.data(), numbers.size(), MPI_DOUBLE);
  }

 private:
  Wait begin_sum(void* numbers, std::size_t count, MPI_Datatype type) {
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Iallreduce(MPI_IN_PLACE, numbers, count_of(count), type, MPI_SUM, MPI_COMM_WORLD,
                         &request),
          "MPI_Iallreduce");
    return begun(request, "MPI_Iallreduce");
  }

  /// MPI moves data within its calls only: a test of one collective moves all that have begun.
  Wait begun(MPI_Request request, const char* call) {
    int done = 0;
    check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), call);
    return [this, request, call](double limit) { wait(request, call, limit); };
  }

  [[nodiscard]] std::string with_host(int rank) const {
    return fmt::format("rank {} on {}", rank, place_.hosts[static_cast<std::size_t>(rank)]);
  }

  /// Finds out who does not answer and says so. Whoever waits in a collective takes part, so a rank
  /// that stays silent computes for too long, hangs, or is gone.
  [[noreturn]] void call_roll(double waited) {
    std::vector<MPI_Request> sent, heard;
    std::vector<int> others;
    static constexpr char kHere = 1;
    for (int other = 0; other < place_.size; ++other) {
      if (other == place_.rank) continue;
      others.push_back(other);
      check(MPI_Irecv(&answers_[static_cast<std::size_t>(other)], 1, MPI_CHAR, other, kRollTag,
                      roll_, &heard.emplace_back()),
            "MPI_Irecv");
      check(MPI_Isend(&kHere, 1, MPI_CHAR, other, kRollTag, roll_, &sent.emplace_back()),
            "MPI_Isend");
    }
    const auto start = Clock::now();
    int all = 0;
    while (all == 0 && since(start) < kRollSeconds) {
      check(MPI_Testall(static_cast<int>(heard.size()), heard.data(), &all, MPI_STATUSES_IGNORE),
            "MPI_Testall");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::string silent;
    for (std::size_t i = 0; i < heard.size(); ++i) {
      int here = 1;
      if (heard[i] != MPI_REQUEST_NULL) MPI_Test(&heard[i], &here, MPI_STATUS_IGNORE);
      if (here == 0) silent += (silent.empty() ? "" : ", ") + with_host(others[i]);
    }
    if (silent.empty()) {
      throw Error(
          fmt::format("the ranks waited {:.0f} s for each other although all answer: is the "
                      "time limit of --rank-timeout too short?",
                      waited));
    }
    throw Error(fmt::format("no answer for {:.0f} s from {}", waited + since(start), silent));
  }

  /// Waits for a collective. While it does, others may need the core: first it polls, then it
  /// yields, then it sleeps.
  void wait(MPI_Request request, const char* call, double limit) {
    const auto start = Clock::now();
    for (std::int64_t polls = 0;; ++polls) {
      int done = 0;
      check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), call);
      if (done != 0) return;
      if (polls < kSpins) continue;
      const double waited = since(start);
      if (waited < kYieldSeconds) {
        std::this_thread::yield();
        continue;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      if (waited < kListenSeconds) continue;
      int called = 0;
      check(MPI_Iprobe(MPI_ANY_SOURCE, kRollTag, roll_, &called, MPI_STATUS_IGNORE), "MPI_Iprobe");
      if (called != 0 || waited > limit) call_roll(waited);
    }
  }

  Place place_;
  MPI_Comm roll_ = MPI_COMM_NULL;  // of roll calls, so that they meet no other message
  std::vector<char> answers_;      // to a roll call, by rank; written to until the end
};

}  // namespace

std::shared_ptr<Job> join_mpi() { return std::make_shared<MpiJob>(); }

std::string mpi_library() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  std::string name(text, static_cast<std::size_t>(length));
  name = name.substr(0, name.find_first_of(",\n"));
  std::replace(name.begin(), name.end(), '\t', ' ');
  return name;
}

}  // namespace skytape::train

#else

namespace skytape::train {

std::shared_ptr<Job> join_mpi() {
  throw Error("ranks: this program was built without MPI (make MPI=1)");
}

std::string mpi_library() { return {}; }

}  // namespace skytape::train

#endif
