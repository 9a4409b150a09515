// Grids that several processes share through the file system.
#include <stdlib.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <thread>

#include "tests/support/doctest.hpp"
#include "tests/train/cli/workshop.hpp"
#include "tests/train/ranks/job.hpp"
#include "train/lra/claim.hpp"
#include "train/runs/run_folder.hpp"

using namespace skytape;
using namespace skytape::test;
using data::synthetic::read_file;

namespace {

namespace fs = std::filesystem;

/// Four small cells, in the folder `name`.
std::vector<std::string> grid(const Workshop& w, const std::string& name, int steps) {
  std::vector<std::string> words = {"lra",
                                    "--tasks",
                                    "listops",
                                    "--seeds",
                                    "2",
                                    "--attentions",
                                    "softmax,vmean",
                                    "--data",
                                    w.data.string(),
                                    "--out",
                                    w.run(name).string(),
                                    "--device",
                                    "cpu",
                                    "--threads",
                                    "1",
                                    "--steps",
                                    std::to_string(steps)};
  for (const char* set : {"batch=4", "max_length=64", "width=8", "ff_width=8", "eval_every=5000",
                          "eval_examples=8"}) {
    words.insert(words.end(), {"--set", set});
  }
  return words;
}

/// A place for the output of one of several programs.
fs::path scratch(const Workshop& w, const std::string& name) {
  fs::create_directories(w.run(name));
  return w.run(name);
}

void wait_until(Program& program, const std::function<bool()>& seen) {
  while (program.running() && !seen()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

int results_in(const fs::path& runs) {
  int count = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(runs)) {
    count += fs::exists(entry.path() / "result.json");
  }
  return count;
}

}  // namespace

TEST_CASE("two processes share a grid: each cell runs once, and the table is the serial one") {
  if (!program_or_skip()) return;
  const Workshop w;
  REQUIRE(w.finish(grid(w, "serial", 6)).code == 0);
  Program a(scratch(w, "a"), grid(w, "shared", 6)), b(scratch(w, "b"), grid(w, "shared", 6));
  const Finished first = a.wait(), second = b.wait();
  CAPTURE(first.err);
  CAPTURE(second.err);
  CHECK(first.code == 0);
  CHECK(second.code == 0);
  CHECK(count_of(first.err + second.err, ": started") == 4);
  CHECK(read_file(w.run("serial") / "lra.csv") == read_file(w.run("shared") / "lra.csv"));
}

TEST_CASE("a cell is taken over by another process when its own dies") {
  if (!program_or_skip()) return;
  const Workshop w;
  Program a(scratch(w, "a"), grid(w, "shared", 200));
  wait_until(a, [&] { return says(read_file(w.run("a") / "stderr.txt"), ": started"); });
  Program b(scratch(w, "b"), grid(w, "shared", 200));
  wait_until(b, [&] { return says(read_file(w.run("b") / "stderr.txt"), ": started"); });
  a.kill(SIGKILL);
  CHECK(a.wait().code == 128 + SIGKILL);
  const Finished rest = b.wait();
  CAPTURE(rest.err);
  CHECK(rest.code == 0);
  CHECK(results_in(w.run("shared")) == 4);
}

TEST_CASE("a cell that fails is run by one process of a job, and known to all") {
  if (!program_or_skip()) return;
  const Workshop w;
  const fs::path bad = w.run("shared") / "listops-vmean-skytape-s42";
  fs::create_directories(bad);
  w.folder.write("shared/listops-vmean-skytape-s42/config.json", "{\"seed\": 7}");
  ::setenv("SLURM_ARRAY_JOB_ID", "71", 1);
  Program a(scratch(w, "a"), grid(w, "shared", 6)), b(scratch(w, "b"), grid(w, "shared", 6));
  const Finished first = a.wait(), second = b.wait();
  ::unsetenv("SLURM_ARRAY_JOB_ID");
  CHECK(first.code == 1);
  CHECK(second.code == 1);
  CHECK(count_of(first.err + second.err, ": started") == 4);
  CHECK(says(first.err, "1 of 4 cells failed: listops-vmean-skytape-s42"));
  CHECK(says(second.err, "1 of 4 cells failed: listops-vmean-skytape-s42"));
  CHECK(count_of(read_file(bad / "log.txt"), "refuses another configuration") == 1);
}

TEST_CASE("ranks of mpirun share a grid, and the first prints its table") {
  if (!mpirun_or_skip()) return;
  const Workshop w;
  const Finished job = w.finish(grid(w, "shared", 6), ranks(2));
  CAPTURE(job.err);
  CAPTURE(job.out);
  CHECK(job.code == 0);
  CHECK(count_of(job.err, ": started") == 4);
  CHECK(count_of(job.err, "wrote ") == 1);
  CHECK(says(job.out, "| vmean |"));
  CHECK(results_in(w.run("shared")) == 4);
}

TEST_CASE("a claim excludes others until its owner gives it up, or while a run goes on there") {
  const data::synthetic::Folder folder;
  const fs::path cell = folder.path() / "cell";
  std::optional<train::Claim> mine = train::Claim::take(cell);
  REQUIRE(mine.has_value());
  CHECK_FALSE(train::Claim::take(cell).has_value());
  mine.reset();
  {
    const train::RunFolder run(cell, train::RunFolder::Existing::resume);
    CHECK_FALSE(train::Claim::take(cell).has_value());
  }
  CHECK(train::Claim::take(cell).has_value());
}
