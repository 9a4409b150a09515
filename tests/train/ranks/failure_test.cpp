// Ranks that disagree, die, hang or are told to stop.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <thread>

#include "tests/support/doctest.hpp"
#include "tests/train/ranks/job.hpp"

using namespace skytape;
using namespace skytape::test;

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

/// Waits until the run has so many lines of metrics, and gives the processes of its ranks.
std::vector<pid_t> ranks_in_training(Program& job, int count, const fs::path& run, int lines) {
  const auto grown = [&] {
    const std::string text =
        fs::exists(run / "metrics.jsonl") ? data::synthetic::read_file(run / "metrics.jsonl") : "";
    return count_of(text, "\n") >= lines;
  };
  while (job.running() && !grown()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  return processes_of(job, count);
}

double seconds_to_end(Program& job, Finished& end) {
  const auto start = Clock::now();
  end = job.wait();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

TEST_CASE("ranks that disagree stop before the first step, and one message names who and what") {
  if (!mpirun_or_skip()) return;
  const Workshop w;
  data::synthetic::small_listops(w.folder.path() / "other", 120);
  struct Case {
    std::vector<std::string> of_second;
    int code;
    const char* says;
  };
  const std::vector<Case> cases = {
      {{"--seed", "43"}, 2, "seed: 42 there, 43 here"},
      {{"--set", "lr=5e-4"}, 2, "lr: "},
      {{"--threads", "2"}, 2, "threads: 1 on rank 0, 2 here"},
      {{"--data", (w.folder.path() / "other").string()}, 3, "other data than rank 0's"}};
  for (const Case& c : cases) {
    CAPTURE(c.says);
    // mpirun takes several programs, each with its own arguments.
    std::vector<std::string> arguments = train_together(w, "job", 8);
    std::vector<std::string> second = arguments;
    for (std::size_t i = 0; i < c.of_second.size(); i += 2) {
      const auto same = std::find(second.begin(), second.end(), c.of_second[i]);
      const bool replaces = same != second.end() && c.of_second[i] != "--set";
      if (replaces) *(same + 1) = c.of_second[i + 1];
      if (!replaces) second.insert(second.end(), {c.of_second[i], c.of_second[i + 1]});
    }
    arguments.insert(arguments.end(), {":", "-np", "1", program_path()});
    arguments.insert(arguments.end(), second.begin(), second.end());
    const Finished end = w.finish(arguments, ranks(1));
    CAPTURE(end.err);
    CHECK(end.code == c.code);
    CHECK(contains(end.err, "rank 1 on "));
    CHECK(contains(end.err, c.says));
    CHECK(count_of(end.err, "skytape: error") == 1);
    CHECK_FALSE(fs::exists(w.run("job")));
  }
}

TEST_CASE("what is wrong with a command line is said where rank 0 comes too late to say it") {
  if (!mpirun_or_skip()) return;
  const Workshop w;
  std::vector<std::string> arguments = train_together(w, "job", 8, {"--bogus"});
  const std::vector<std::string> second = arguments;
  arguments.insert(arguments.end(), {":", "-np", "1", program_path()});
  arguments.insert(arguments.end(), second.begin(), second.end());
  Place late = ranks(1);
  late.launcher.insert(late.launcher.end(), {"sh", "-c", "sleep 8; exec \"$0\" \"$@\""});
  const Finished end = w.finish(arguments, late);
  CAPTURE(end.err);
  CHECK(end.code == 2);
  CHECK(contains(end.err, "skytape: error: unknown flag --bogus"));
}

TEST_CASE("SIGTERM to any rank stops all after the same step, with a checkpoint and 143") {
  if (!mpirun_or_skip()) return;
  const Workshop w;
  REQUIRE(w.finish(train_together(w, "whole", 60)).code == 0);
  Program job(w.folder.path(), train_together(w, "job", 60), ranks(3));
  const std::vector<pid_t> processes = ranks_in_training(job, 3, w.run("job"), 2);
  REQUIRE(processes.size() == 3);
  ::kill(processes.back(), SIGTERM);
  const Finished end = job.wait();
  CAPTURE(end.err);
  CHECK(end.code == 143);
  CHECK(count_of(end.err, "stopped by a signal after") == 1);
  CHECK(w.finish(train_together(w, "job", 60, {"--resume"}), ranks(2)).code == 0);
  CHECK(same_tensors(w.run("whole") / "last.safetensors", w.run("job") / "last.safetensors"));
}

TEST_CASE("a rank that is killed ends the job, whose last checkpoint can be resumed") {
  if (!mpirun_or_skip()) return;
  const Workshop w;
  REQUIRE(w.finish(train_together(w, "whole", 40)).code == 0);
  for (const std::size_t victim : {0u, 1u}) {
    Program job(w.folder.path(), train_together(w, "job", 40, {"--resume"}), ranks(2));
    const std::vector<pid_t> processes =
        ranks_in_training(job, 2, w.run("job"), victim == 0 ? 2 : 9);
    REQUIRE(processes.size() == 2);
    ::kill(processes[victim], SIGKILL);
    Finished end;
    CHECK(seconds_to_end(job, end) < 60);
    CHECK(end.code != 0);
  }
  const Finished last = w.finish(train_together(w, "job", 40, {"--resume"}), ranks(2));
  CAPTURE(last.err);
  CHECK(last.code == 0);
  CHECK(same_tensors(w.run("whole") / "last.safetensors", w.run("job") / "last.safetensors"));
  CHECK(metrics_of(w.run("whole")) == metrics_of(w.run("job")));
  for (const fs::directory_entry& entry : fs::directory_iterator(w.run("job"))) {
    CHECK(entry.path().extension() != ".tmp");
  }
}

TEST_CASE("a rank that hangs is named, and the job ends within its time limit") {
  if (!mpirun_or_skip()) return;
  const Workshop w;
  Program job(w.folder.path(), train_together(w, "job", 400, {"--rank-timeout", "2"}), ranks(3));
  const std::vector<pid_t> processes = ranks_in_training(job, 3, w.run("job"), 2);
  REQUIRE(processes.size() == 3);
  ::kill(processes[1], SIGSTOP);
  Finished end;
  const double seconds = seconds_to_end(job, end);
  ::kill(processes[1], SIGKILL);
  CAPTURE(end.err);
  CHECK(seconds < 30);
  CHECK(end.code == 1);
  CHECK(count_of(end.err, "skytape: error") == 1);
  CHECK(contains(end.err, "no answer for "));
  CHECK(contains(end.err, "s from rank "));
}

TEST_CASE("ranks that never meet end within their time limit, and one of them says so") {
  if (!mpirun_or_skip()) return;
  const Workshop w;
  std::vector<std::string> arguments = train_together(w, "job", 8, {"--rank-timeout", "2"});
  arguments.insert(arguments.end(), {":", "-np", "1", "sleep", "100"});
  Program job(w.folder.path(), arguments, ranks(2));
  Finished end;
  const double seconds = seconds_to_end(job, end);
  CAPTURE(end.err);
  CHECK(seconds < 30);
  CHECK(end.code == 1);
  CHECK(count_of(end.err, "skytape: error") == 1);
  CHECK(contains(end.err, "the ranks did not meet within 2 s (--rank-timeout)"));
  CHECK_FALSE(fs::exists(w.run("job")));
}
