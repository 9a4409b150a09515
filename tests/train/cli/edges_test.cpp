// The program at its edges: a full standard output, signals, folders that cannot be written.
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "tests/support/doctest.hpp"
#include "tests/train/cli/workshop.hpp"

using namespace skytape;
using namespace skytape::test;

namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

}  // namespace

TEST_CASE("every command fails when its standard output is full") {
  if (!program_or_skip()) return;
  if (!fs::exists("/dev/full")) {
    MESSAGE("skipped: no /dev/full here");
    return;
  }
  const Workshop w;
  const std::string run = w.run("run").string();
  REQUIRE(w.finish(w.train("run", 3)).code == 0);
  fs::create_directories(w.folder.path() / "goldens");
  fs::copy("tests/goldens/vmean", w.folder.path() / "goldens" / "vmean",
           fs::copy_options::recursive);
  w.folder.write("lines.txt", "( ( [MAX 2 ) ] )\n");
  Words pretrain = w.train("pre", 3, {"--print-config", "--set", "warmup=2"});
  pretrain.front() = "pretrain";
  const Words tiny = {"--n", "16", "--features", "4", "--threads", "1"};
  const auto with = [](Words first, const Words& more) {
    first.insert(first.end(), more.begin(), more.end());
    return first;
  };
  for (const Words& command : {
           Words{"--help"},
           Words{"--version"},
           Words{"train", "--help"},
           Words{"info"},
           Words{"info", "attention"},
           Words{"info", "run", run},
           w.train("run", 3, {"--resume"}),
           w.train("other", 3, {"--print-config"}),
           w.train("short", 3),
           pretrain,
           Words{"eval", "--run", run, "--device", "cpu"},
           Words{"predict", "--run", run, "--from", (w.folder.path() / "lines.txt").string()},
           Words{"data", "--data", w.data.string()},
           Words{"lra", "--table-only", "--tasks", "listops", "--attentions", "softmax", "--out",
                 w.folder.path().string()},
           Words{"report", "--runs", w.folder.path().string()},
           Words{"gradcheck", "--attention", "vmean"},
           Words{"goldens", "--dir", (w.folder.path() / "goldens").string()},
           // bench measures the machine for many seconds before it prints a line.
           Words{"bench", "--help"},
           with({"approx", "--attention", "linformer", "--trials", "1", "--best-rank-trials", "0",
                 "--out", (w.folder.path() / "approx").string()},
                tiny),
           with({"spectrum", "--examples", "1", "--out", (w.folder.path() / "spectrum").string()},
                tiny),
           Words{"theory", "--seeds", "1", "--n", "16", "--width", "4"},
           Words{"cost", "--tables", "parameters", "--tasks", "listops", "--attention", "vmean"},
           Words{"stability", "--attention", "vmean", "--tasks", "listops", "--steps", "1",
                 "--batch", "1", "--train-steps", "0", "--data", w.data.string()},
           Words{"tape", "--n", "4"},
       }) {
    const Finished f = w.finish(command, {.output = "/dev/full"});
    CAPTURE(command.front());
    CAPTURE(f.err);
    CHECK(f.code == 1);
    CHECK(contains(f.err,
                   program_of(command.front()) + ": error: standard output: cannot write to it"));
  }
}

namespace {

/// Returns the result of a program that gets a signal while it works. A busy machine may not have
/// started it when the signal comes: it ends without a word, and the next one gets longer.
Finished signalled(const fs::path& folder, const Words& command, int signal) {
  for (auto pause = std::chrono::milliseconds(250);; pause *= 3) {
    Program program(folder, command);
    std::this_thread::sleep_for(pause);
    REQUIRE(program.running());
    program.kill(signal);
    Finished f = program.wait();
    const bool not_yet = f.killed && f.err.empty() && f.out.empty();
    if (!not_yet || pause > std::chrono::seconds(5)) return f;
  }
}

}  // namespace

TEST_CASE("a signal ends eval, bench, approx and data with 130 or 143, and nothing half written") {
  if (!program_or_skip()) return;
  const Workshop w;
  const auto data = [&](const char* folder, const char* examples) {
    return Words{"data",      "--limit", examples, "--data", (w.folder.path() / folder).string(),
                 "--threads", "1"};
  };
  REQUIRE(w.finish(data("many", "8000")).code == 0);
  // A model whose evaluation takes seconds, stopped before its own: eval reads the checkpoint.
  const std::string run = w.run("run").string();
  REQUIRE(w.finish({"train", "--data", (w.folder.path() / "many").string(), "--out", run, "--steps",
                    "3", "--batch", "4", "--threads", "1", "--device", "cpu", "--stop-after", "1",
                    "--set", "select=last"})
              .code == 0);
  struct Case {
    Words command;
    int signal;
  };
  for (const Case& c : {Case{{"eval", "--run", run, "--threads", "1"}, SIGINT},
                        Case{{"eval", "--run", run, "--threads", "1"}, SIGTERM},
                        Case{{"bench", "--attention", "softmax", "--n", "1024", "--steps", "100000",
                              "--threads", "1"},
                             SIGINT},
                        Case{{"approx", "--attention", "linformer", "--trials", "100000",
                              "--threads", "1", "--out", (w.folder.path() / "approx").string()},
                             SIGTERM},
                        Case{data("interrupted", "90000"), SIGTERM}}) {
    const Finished f = signalled(w.folder.path(), c.command, c.signal);
    CAPTURE(c.command.front());
    CAPTURE(f.err);
    CHECK_FALSE(f.killed);
    CHECK(f.code == 128 + c.signal);
    CHECK(contains(f.err, "stopped by a signal"));
    CHECK_FALSE(contains(f.out, "accuracy"));
  }
  const fs::path left = w.folder.path() / "interrupted" / "listops";
  for (const auto& file : fs::directory_iterator(left)) {
    CHECK(file.path().filename() == ".lock");
  }
}

TEST_CASE(
    "with its standard streams closed or full a run ends well, and no file takes their text") {
  if (!program_or_skip()) return;
  const Workshop w;
  REQUIRE(w.finish(w.train("open", 6)).code == 0);
  const auto through_shell = [&](const char* run, const std::string& streams) {
    return w.finish(w.train(run, 6), {.launcher = {"sh", "-c", "exec \"$0\" \"$@\" " + streams}});
  };
  CHECK(through_shell("closed", "<&- >&- 2>&-").code == 0);
  CHECK(through_shell("silent", "2>&-").code == 0);
  CHECK(through_shell("full", "2>/dev/full").code == 0);
  for (const char* run : {"closed", "silent", "full"}) {
    CAPTURE(run);
    CHECK(same_tensors(w.run("open") / "last.safetensors", w.run(run) / "last.safetensors"));
    CHECK(fs::file_size(w.run(run) / ".lock") == 0);
    CHECK_FALSE(contains(data::synthetic::read_file(w.run(run) / "metrics.jsonl"), "step 2/6"));
  }
  const Finished wrong =
      w.finish({"unknown"}, {.launcher = {"sh", "-c", "exec \"$0\" \"$@\" 2>&-"}});
  CHECK(wrong.code == 2);
}

TEST_CASE("a signal ends the waiting for a named pipe that nobody writes to; what comes is read") {
  if (!program_or_skip()) return;
  const Workshop w;
  for (const char* name : {"rows", "rows.csv", "rows.tar", "rows.tar.gz"}) {
    CAPTURE(name);
    const std::string pipe = (w.folder.path() / name).string();
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    const Words data = {
        "data", "--task", "tsv", "--from", pipe, "--data", (w.folder.path() / "own").string()};
    const Finished f = signalled(w.folder.path(), data, SIGTERM);
    CAPTURE(f.err);
    CHECK_FALSE(f.killed);
    CHECK(f.code == 128 + SIGTERM);
    CHECK(contains(f.err, "stopped by a signal"));
  }
  const std::string pipe = (w.folder.path() / "rows").string();
  const std::string run = w.run("run").string();
  REQUIRE(w.finish(w.train("run", 3)).code == 0);
  Program program(w.folder.path(), {"predict", "--run", run, "--from", pipe});
  std::ofstream(pipe) << "( ( [MAX 2 ) ] )\n";
  const Finished read = program.wait();
  CAPTURE(read.err);
  CHECK(read.code == 0);
  CHECK(read.out.size() == 2);  // a digit and the line's end
}

TEST_CASE("a number of threads that OpenMP cannot take is refused, not a segmentation fault") {
  if (!program_or_skip()) return;
  const Workshop w;
  for (const Words& command :
       {w.train("run", 2), Words{"bench", "--attention", "vmean", "--n", "16"}}) {
    for (const std::string threads : {"99999", "99999999999", "many"}) {
      const Finished f = w.finish(command, {.launcher = {"env", "OMP_NUM_THREADS=" + threads}});
      CAPTURE(f.err);
      CHECK(f.code == 2);
      CHECK(contains(f.err, "OMP_NUM_THREADS: expected 1..4096, got " + threads));
    }
  }
}

TEST_CASE("an empty value is refused, as an unset variable leaves it") {
  if (!program_or_skip()) return;
  const Workshop w;
  for (const char* flag : {"--init", "--steps", "--lr", "--budget", "--out", "--threads"}) {
    Words command = {"train", "--data", w.data.string(), flag, ""};
    const Finished f = w.finish(command);
    CAPTURE(f.err);
    CHECK(f.code == 2);
    CHECK(contains(f.err, std::string(flag) + ": expected a value, got ''"));
  }
}

TEST_CASE("a run outlives the reader of its progress") {
  if (!program_or_skip()) return;
  const Workshop w;
  // The reader takes one line, and goes.
  const Words shell = {"bash", "-c", R"("$@" 2> >(head -n 1 > /dev/null))", "bash"};
  const Finished f = w.finish(w.train("run", 60), {.launcher = shell});
  CAPTURE(f.err);
  CHECK(f.code == 0);
  CHECK(fs::exists(w.run("run") / "result.json"));
}

TEST_CASE("a run can be stopped and resumed where paths are no UTF-8") {
  if (!program_or_skip()) return;
  Workshop w;
  const fs::path data = w.folder.path() / "d\xe4ta";
  fs::rename(w.data, data);
  w.data = data;
  const Finished stopped = w.finish(w.train("r\xfcn", 7, {"--stop-after", "3"}));
  CAPTURE(stopped.err);
  CHECK(stopped.code == 0);
  const Finished resumed = w.finish(w.train("r\xfcn", 7, {"--resume"}));
  CAPTURE(resumed.err);
  CHECK(resumed.code == 0);
  CHECK(contains(resumed.err, "at step 3"));
}

TEST_CASE("a folder that cannot be made is reported with the reason") {
  if (!program_or_skip()) return;
  const Workshop w;
  // No user may make a folder in a file, whoever runs the test.
  const std::string file = (w.data / "file").string(), folder = file + "/skytape";
  std::ofstream(file).close();
  for (const Words& command : {Words{"data", "--limit", "100", "--data", folder},
                               Words{"train", "--data", w.data.string(), "--out", folder + "/run"},
                               Words{"data", "--data", w.data.string(), "--export", folder}}) {
    const Finished f = w.finish(command);
    CAPTURE(f.err);
    CHECK(f.code == 1);
    CHECK(contains(f.err, folder));
    CHECK_FALSE(contains(f.err, "No such file"));
    CHECK_FALSE(contains(f.err, "filesystem error"));
  }
}

TEST_CASE("make passes names with spaces on whole") {
  const auto said_by_make = [](const std::string& variables) {
    // As typed, not as a part of the make that runs the tests.
    const std::string command =
        "env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS make -n -j1 CUDA=0 train data " + variables +
        " 2>&1";
    std::string text;
    FILE* const pipe = ::popen(command.c_str(), "r");
    REQUIRE(pipe != nullptr);
    char part[4096];
    while (std::fgets(part, sizeof part, pipe) != nullptr) text += part;
    ::pclose(pipe);
    return text;
  };
  const std::string text = said_by_make(R"(TASK=tsv FROM="my texts.tsv" OUT="it's here")");
  CAPTURE(text);
  CHECK(contains(text, "skytape data --task tsv --from 'my texts.tsv'"));
  CHECK(contains(text, R"(--out 'it'\''s here')"));
}
