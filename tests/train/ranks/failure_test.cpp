// Ranks that disagree, die, hang or are told to stop.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <functional>
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

/// Returns whether a process ends within so many seconds.
bool ends_within(double seconds, pid_t process) {
  const auto start = Clock::now();
  while (runs(process)) {
    if (std::chrono::duration<double>(Clock::now() - start).count() > seconds) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
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
      {{"--seeds", "2"}, 2, "flags: --seeds 1 on rank 0, --seeds 2 here"},
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

TEST_CASE("whoever is killed and whenever, the job ends, and its last checkpoint can be resumed") {
  if (!mpirun_or_skip()) return;
  const Workshop w;
  const auto words = [&](const char* name) {
    return train_together(w, name, 720, {"--resume"});  // evaluated every 5 steps
  };
  REQUIRE(w.finish(words("whole")).code == 0);
  const fs::path run = w.run("job");
  const auto writes = [&] {
    const fs::directory_iterator files(run);
    return std::any_of(begin(files), end(files),
                       [](const auto& file) { return file.path().extension() == ".tmp"; });
  };
  // The step before an evaluation is in the metrics, the evaluation is not yet.
  const auto evaluates = [&] {
    const std::string metrics = data::synthetic::read_file(run / "metrics.jsonl");
    const std::string last = metrics.substr(metrics.rfind('{'));
    return contains(last, "\"kind\":\"train\"") && contains(last, "0,\"steps_per_second\"");
  };
  struct Case {
    std::vector<std::size_t> victims;  // ranks
    bool launcher;
    std::function<bool()> moment;  // none: at any
  };
  const std::vector<Case> cases = {
      {{0}, false, {}},     {{1}, false, {}},      {{1}, false, evaluates}, {{0}, false, writes},
      {{1}, false, writes}, {{}, true, evaluates}, {{0, 1}, true, writes}};
  for (const Case& c : cases) {
    CAPTURE(&c - cases.data());
    Program job(w.folder.path(), words("job"), ranks(2));
    wait_for_steps(job, 2);
    const std::vector<pid_t> processes = processes_of(job, 2);
    REQUIRE(processes.size() == 2);
    // The moment may pass unseen, and is not waited for until the end.
    const auto start = Clock::now();
    const auto over = [&] { return Clock::now() - start > std::chrono::milliseconds(100); };
    while (c.moment && !c.moment() && !over()) continue;
    for (const std::size_t victim : c.victims) ::kill(processes[victim], SIGKILL);
    if (c.launcher) job.kill(SIGKILL);
    Finished end;
    CHECK(seconds_to_end(job, end) < 60);
    CHECK(end.code != 0);
    for (const pid_t process : processes) CHECK(ends_within(60, process));
  }
  const Finished last = w.finish(words("job"), ranks(2));
  CAPTURE(last.err);
  CHECK(last.code == 0);
  for (const char* file : {"last.safetensors", "best.safetensors"}) {
    CHECK(same_tensors(w.run("whole") / file, run / file));
  }
  CHECK(metrics_of(w.run("whole")) == metrics_of(run));
  CHECK_FALSE(writes());
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
