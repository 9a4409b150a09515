// Grids and seeds through the program: what is skipped, resumed, named and left alone.
#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <thread>

#include "data/files/json.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/data/tasks/official_files.hpp"
#include "tests/support/doctest.hpp"
#include "tests/support/table_rows.hpp"
#include "tests/train/cli/program.hpp"
#include "train/lab/lra/pack.hpp"

using namespace skytape;
using namespace skytape::test;
using data::synthetic::Folder;
using data::synthetic::read_file;

namespace {

namespace fs = std::filesystem;

/// A small ListOps, and commands for runs of a small model on it.
struct Workshop {
  Folder folder;
  fs::path data = folder.path() / "data", runs = folder.path() / "runs";

  Workshop() { data::synthetic::small_listops(data, 150); }

  [[nodiscard]] std::vector<std::string> small(std::vector<std::string> command, int steps,
                                               const std::vector<std::string>& more) const {
    command.insert(command.end(),
                   {"--data", data.string(), "--out", runs.string(), "--device", "cpu", "--threads",
                    "1", "--features", "8", "--steps", std::to_string(steps)});
    for (const char* set : {"batch=4", "max_length=64", "width=8", "ff_width=8", "eval_every=5000",
                            "checkpoint_every=5000"}) {
      command.insert(command.end(), {"--set", set});
    }
    command.insert(command.end(), more.begin(), more.end());
    return command;
  }
  [[nodiscard]] Finished lra(int steps, const std::vector<std::string>& more) const {
    return run_program(folder.path(), small({"lra"}, steps, more));
  }
  [[nodiscard]] bool exists(const std::string& file) const { return fs::exists(runs / file); }
};

void wait_until(Program& program, const std::function<bool()>& seen) {
  while (program.running() && !seen()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

}  // namespace

TEST_CASE("a grid runs its cells, shows missing ones as missing, and does nothing twice") {
  if (!program_or_skip()) return;
  const Workshop w;
  const std::vector<std::string> grid = {
      "--tasks", "listops,text", "--attentions", "softmax,skyformer", "--seeds", "2", "--jobs",
      "2"};
  const Finished first = w.lra(4, grid);
  CAPTURE(first.err);
  CAPTURE(first.out);
  CHECK(first.code == 1);  // text is not prepared
  CHECK(contains(first.err, "no cell of text can run: text: cannot be generated"));
  CHECK(contains(first.err, "8 cells: 0 finished before, 4 without data, 4 to run"));
  CHECK(contains(first.err, "4 of 8 cells have no data: text-softmax-skytape-s42"));
  CHECK_FALSE(contains(first.err, "failed"));
  for (const char* method : {"softmax", "skyformer"}) {
    for (const char* seed : {"42", "43"}) {
      const std::string run = std::string("listops-") + method + "-skytape-s" + seed;
      CAPTURE(run);
      CHECK(w.exists(run + "/result.json"));
      CHECK(contains(read_file(w.runs / run / "log.txt"), "test accuracy"));
    }
  }
  CHECK(contains(test::in_bars(first.out), "| softmax | Skyformer paper | – | 61.95 ↓ |"));
  CHECK(contains(test::in_bars(first.out), ", 2 seeds) | – |"));
  CHECK(read_file(w.runs / "lra.txt") == first.out);
  CHECK(
      contains(read_file(w.runs / "lra.csv"), ",text,43,,,66.2,,n-grams of up to 5 tokens,,,,\n"));

  const auto written = fs::last_write_time(w.runs / "listops-softmax-skytape-s42/result.json");
  const Finished again = w.lra(4, grid);
  CHECK(contains(again.err, "8 cells: 4 finished before, 4 without data, 0 to run"));
  CHECK(again.out == first.out);
  const auto now = fs::last_write_time(w.runs / "listops-softmax-skytape-s42/result.json");
  CHECK((now - written).count() == 0);

  // Finished cells stay finished when their data cannot be read.
  const std::string dev = read_file(w.data / "listops/dev.skydata");
  w.folder.write("data/listops/dev.skydata", "cut");
  const Finished broken = w.lra(4, grid);
  CHECK(contains(broken.err, "8 cells: 4 finished before, 4 without data, 0 to run"));
  CHECK_FALSE(contains(broken.err, "no cell of listops can run"));
  w.folder.write("data/listops/dev.skydata", dev);

  std::vector<std::string> show = {"--tasks",           "listops,text", "--attentions",
                                   "softmax,skyformer", "--seeds",      "2",
                                   "--table-only"};
  const Finished shown = w.lra(4, show);
  CHECK(shown.code == 0);
  CHECK(shown.out == first.out);
  const auto names_ngrams = [&] {
    return contains(read_file(w.runs / "lra.csv"), ",text,43,,,66.2,,n-grams");
  };
  CHECK(names_ngrams());
  show.emplace_back("--without-additions");
  CHECK(w.lra(4, show).code == 0);
  CHECK_FALSE(names_ngrams());
}

TEST_CASE("a grid continues from its archive in another folder, and refuses one it cannot write") {
  if (!program_or_skip()) return;
  const Workshop w;
  const std::string pack = (w.folder.path() / "results.tar.gz").string();
  const std::vector<std::string> grid = {"--tasks",         "listops", "--attentions",
                                         "vmean,linformer", "--pack",  pack};
  CHECK(w.lra(4, grid).code == 0);
  fs::remove_all(w.runs);
  const Finished again = w.lra(4, grid);
  CAPTURE(again.err);
  CHECK(again.code == 0);
  CHECK(contains(again.err, "2 finished runs unpacked"));
  CHECK(contains(again.err, "2 cells: 2 finished before, 0 without data, 0 to run"));
  CHECK(contains(test::in_bars(again.out), "| vmean | "));

  std::vector<std::string> nowhere = grid;
  nowhere.back() = (w.folder.path() / "no such folder/results.tar.gz").string();
  fs::remove_all(w.runs);
  CHECK(w.lra(4, nowhere).code == 1);
  CHECK_FALSE(w.exists("listops-vmean-skytape-s42"));
}

TEST_CASE("a grid replaces no file that is no archive of results") {
  if (!program_or_skip()) return;
  const Workshop w;
  const auto folder = w.folder.path();
  w.folder.write("my.csv", "label,text\n");
  w.folder.write("named.tar.gz", "label,text\n");
  data::synthetic::write_tar(folder / "others.tar.gz", {{"a/config.json", "{}"}, {"a/b.txt", "b"}});
  for (const auto& [name, found] :
       {std::pair("my.csv", "is no archive"), std::pair("named.tar.gz", "cannot be read"),
        std::pair("others.tar.gz", "holds 'a/b.txt'")}) {
    const std::string before = read_file(folder / name);
    const Finished f = w.lra(
        4, {"--tasks", "listops", "--attentions", "skyformer", "--pack", (folder / name).string()});
    CAPTURE(f.err);
    CHECK(f.code == 2);
    CHECK(contains(f.err, found));
    CHECK(read_file(folder / name) == before);
    CHECK_FALSE(w.exists("listops-skyformer-skytape-s42"));
  }
  // The archive of a grid without a finished cell holds nothing, and is one.
  train::pack_results(folder / "data", folder / "empty.tar.gz");
  CHECK_NOTHROW(train::refuse_other_file(folder / "empty.tar.gz"));
}

TEST_CASE("cells side by side give the table of cells one by one, in the same order") {
  if (!program_or_skip()) return;
  const auto table = [](const std::string& jobs) {
    const Workshop w;
    const Finished f = w.lra(6, {"--tasks", "listops", "--attentions", "skyformer,linformer",
                                 "--seeds", "2", "--jobs", jobs});
    CAPTURE(f.err);
    CHECK(f.code == 0);
    std::string out = f.out;
    for (std::size_t at; (at = out.find(w.runs.string())) != std::string::npos;) {
      out.erase(at, w.runs.string().size());
    }
    const std::size_t times = out.find("Training time until");  // what a clock says differs
    REQUIRE(times != std::string::npos);
    return out.substr(0, times);
  };
  const std::string one = table("1");
  CHECK(contains(test::in_bars(one), "| skyformer |"));
  CHECK(table("4") == one);
}

TEST_CASE("a grid's cells share its threads, and its table is of the results in their folders") {
  if (!program_or_skip()) return;
  const Workshop w;
  const std::vector<std::string> grid = {"lra",
                                         "--tasks",
                                         "listops",
                                         "--attentions",
                                         "linformer",
                                         "--seed",
                                         "5",
                                         "--seeds",
                                         "4",
                                         "--data",
                                         w.data.string(),
                                         "--out",
                                         w.runs.string(),
                                         "--device",
                                         "cpu",
                                         "--features",
                                         "8",
                                         "--steps",
                                         "6",
                                         "--set",
                                         "batch=4",
                                         "--set",
                                         "max_length=64",
                                         "--set",
                                         "width=8"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> command = grid;
    command.insert(command.end(), more.begin(), more.end());
    return run_program(w.folder.path(), command);
  };
  const Finished ran = with({"--jobs", "2", "--threads", "6"});
  CAPTURE(ran.err);
  REQUIRE(ran.code == 0);
  CHECK(contains(ran.err, "4 to run, 2 at a time with 3 threads each"));
  const auto folder = [&](int seed) {
    return w.runs / ("listops-linformer-skytape-s" + std::to_string(seed));
  };
  std::vector<double> tests;
  for (const int seed : {5, 6, 7}) {
    const auto result = data::parse_json(read_file(folder(seed) / "result.json"));
    CHECK(result.at("seed") == seed);
    CHECK(result.at("machine").at("threads") == 3);
    CHECK(contains(read_file(folder(seed) / "log.txt"), "on cpu (3 threads)"));
    const double test = 100 * result.at("test_accuracy").get<double>();
    const double dev = 100 * result.at("dev_accuracy").get<double>();
    CHECK(contains(read_file(w.runs / "lra.csv"),
                   fmt::format(",listops-limited,{},{:.4f},{:.4f},36.2,", seed, test, dev)));
    CHECK(contains(ran.err, fmt::format("s{}: dev {:.2f} %, test {:.2f} %, ", seed, dev, test)));
    tests.push_back(test);
  }
  fs::remove(folder(8) / "result.json");
  const Finished shown = with({"--table-only"});
  CAPTURE(shown.out);
  const double mean = (tests[0] + tests[1] + tests[2]) / 3;
  double squares = 0;
  for (const double test : tests) squares += (test - mean) * (test - mean);
  std::sort(tests.begin(), tests.end());
  const std::string cell =
      fmt::format("| {:.2f} ± {:.2f}{} ({:.2f}–{:.2f}, 3 of 4 seeds) |", mean,
                  std::sqrt(squares / 2), mean <= 36.2 ? " ↓" : "", tests[0], tests[2]);
  CAPTURE(cell);
  CHECK(contains(test::in_bars(shown.out), cell));
  CHECK(contains(shown.out, "- listops-linformer-skytape-s8: not finished"));
  CHECK(contains(read_file(w.runs / "lra.csv"), ",listops-limited,8,,,36.2,,"));
}

TEST_CASE("axes make cells of their own, and a cell that fails does not stop the others") {
  if (!program_or_skip()) return;
  const Workshop w;
  w.folder.write("runs/listops-vmean-skytape-lr1e-3-s42/config.json", "{\"seed\": 7");
  const Finished f = run_program(
      w.folder.path(), {"lra", "--tasks", "listops", "--attentions", "vmean", "--lr", "1e-3,1e-4",
                        "--data", w.data.string(), "--out", w.runs.string(), "--device", "cpu",
                        "--steps", "3", "--set", "batch=4", "--set", "max_length=64"});
  CAPTURE(f.err);
  CHECK(f.code == 1);
  CHECK(contains(f.err,
                 "listops-vmean-skytape-lr1e-3-s42: FAILED: exit code 3: skytape-lab: error: "));
  CHECK(contains(f.err, "config.json: not a JSON object"));
  CHECK(contains(f.err, "1 of 2 cells failed: listops-vmean-skytape-lr1e-3-s42"));
  CHECK(w.exists("listops-vmean-skytape-lr1e-4-s42/result.json"));
  CHECK(contains(test::in_bars(f.out),
                 "| vmean | skytape, batch=4, lr=1e-3, max_length=64, steps=3 | – |"));
  CHECK(contains(f.out, "- listops-vmean-skytape-lr1e-3-s42: broken: "));
}

TEST_CASE("a killed grid leaves no process behind and resumes where it was") {
  if (!program_or_skip()) return;
  const Workshop w;
  const std::vector<std::string> grid = {"--tasks", "listops", "--attentions",
                                         "vmean",   "--seeds", "2"};
  const std::string first = "listops-vmean-skytape-s42", second = "listops-vmean-skytape-s43";
  std::vector<std::string> command = w.small({"lra"}, 150, grid);
  std::erase(command, "--features");  // vmean has none, and train would refuse it
  std::erase(command, "8");
  {
    Program program(w.folder.path(), command);
    wait_until(program, [&] { return w.exists(first + "/metrics.jsonl"); });
    program.kill(SIGKILL);
    CHECK(program.wait().code == 128 + SIGKILL);
  }
  CHECK_FALSE(w.exists(second));
  // The child got SIGTERM: it ends after its step, with a checkpoint.
  const auto log = [&] { return read_file(w.runs / first / "log.txt"); };
  for (int i = 0; i < 500 && !contains(log(), "stopped by a signal"); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  CHECK(contains(log(), "stopped by a signal"));
  CHECK_FALSE(w.exists(first + "/result.json"));

  const Finished again = run_program(w.folder.path(), command);
  CAPTURE(again.err);
  CHECK(again.code == 0);
  CHECK(contains(log(), "resuming"));
  for (const std::string& run : {first, second}) {
    const auto result = data::parse_json(read_file(w.runs / run / "result.json"));
    CHECK(result["steps"] == 150);
  }
}

TEST_CASE("a grid refuses to be several processes of a launcher") {
  if (!program_or_skip()) return;
  const Workshop w;
  ::setenv("OMPI_COMM_WORLD_RANK", "1", 1);
  ::setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  const Finished one = w.lra(4, {"--tasks", "listops", "--attentions", "vmean"});
  ::unsetenv("OMPI_COMM_WORLD_RANK");
  ::unsetenv("OMPI_COMM_WORLD_SIZE");
  CHECK(one.code == 2);
  CHECK(contains(one.err, "lra: started as 2 processes"));
  CHECK_FALSE(fs::exists(w.runs));
}

TEST_CASE("SIGTERM stops a grid with 143: running cells keep their state, no other starts") {
  if (!program_or_skip()) return;
  const Workshop w;
  Program program(
      w.folder.path(),
      w.small({"lra"}, 4000, {"--tasks", "listops", "--attentions", "skyformer", "--seeds", "3"}));
  wait_until(program, [&] { return w.exists("listops-skyformer-skytape-s42/metrics.jsonl"); });
  program.kill(SIGTERM);
  const Finished f = program.wait();
  CAPTURE(f.err);
  CHECK(f.code == 143);
  CHECK(contains(f.err, "listops-skyformer-skytape-s42: stopped, its state is kept"));
  CHECK(contains(f.err, "the same command continues it"));
  CHECK(w.exists("listops-skyformer-skytape-s42/last.safetensors"));
  CHECK_FALSE(w.exists("listops-skyformer-skytape-s43"));
  CHECK(contains(test::in_bars(f.out), "| skyformer | skytape"));
}

TEST_CASE("seeds run one after another like single runs, are summed up, and not run again") {
  if (!program_or_skip()) return;
  const Workshop w;
  const auto train = [&](const std::vector<std::string>& more) {
    return run_program(w.folder.path(), w.small({"train", "--task", "listops"}, 4, more));
  };
  const auto run_of = [&](int seed) {
    return w.runs / ("listops-skyformer-skytape-s" + std::to_string(seed));
  };
  const Finished both = train({"--seeds", "2", "--seed", "7"});
  CAPTURE(both.err);
  REQUIRE(both.code == 0);
  double sum = 0;
  for (const int seed : {7, 8}) {
    const auto result = data::parse_json(read_file(run_of(seed) / "result.json"));
    CHECK(result["seed"] == seed);
    sum += 100 * result["test_accuracy"].get<double>();
  }
  const std::string text = read_file(w.runs / "listops-skyformer-skytape-s7-8.txt");
  const std::string table = test::in_bars(text);
  CAPTURE(table);
  char mean[64];
  std::snprintf(mean, sizeof mean, " | %.2f | ", sum / 2);
  CHECK(both.out.ends_with(text));
  CHECK(contains(table.substr(table.find("| mean")), mean));
  CHECK(contains(table, "| highest |"));

  auto alone = w.small({"train", "--task", "listops"}, 4, {"--seed", "8"});
  const fs::path single = w.folder.path() / "single";
  *std::find(alone.begin(), alone.end(), w.runs.string()) = single.string();
  CHECK(run_program(w.folder.path(), alone).code == 0);
  CHECK(same_tensors(single / "last.safetensors", run_of(8) / "last.safetensors"));

  const Finished refused = train({"--seeds", "3", "--seed", "6"});
  CHECK(refused.code == 2);
  CHECK(contains(refused.err, "-s7: holds a run already"));
  CHECK_FALSE(fs::exists(run_of(6)));  // nothing had started
  const Finished more = train({"--seeds", "3", "--seed", "6", "--resume"});
  CAPTURE(more.err);
  CHECK(more.code == 0);
  CHECK(contains(more.err, "-s7: finished before, not run again"));
  CHECK(contains(more.err, "seed 6, on cpu"));
  CHECK_FALSE(contains(more.err, "seed 7, on cpu"));
}

TEST_CASE("a signal ends a series of seeds with its exit code, and no later seed starts") {
  if (!program_or_skip()) return;
  const Workshop w;
  const auto command = w.small({"train", "--task", "listops"}, 4000, {"--seeds", "3"});
  Program program(w.folder.path(), command);
  wait_until(program, [&] { return w.exists("listops-skyformer-skytape-s42/metrics.jsonl"); });
  program.kill(SIGINT);
  const Finished f = program.wait();
  CAPTURE(f.err);
  CHECK(f.code == 130);
  CHECK(w.exists("listops-skyformer-skytape-s42/last.safetensors"));
  CHECK_FALSE(w.exists("listops-skyformer-skytape-s43"));
  CHECK(contains(test::in_bars(f.out), "| 42 | - | - | - | - |"));
}

TEST_CASE("a grid with a budget gives every seed the steps of the first, also when it is resumed") {
  if (!program_or_skip()) return;
  const Workshop w;
  std::vector<std::string> words = w.small(
      {"lra"}, 4,
      {"--tasks", "listops", "--attentions", "linformer", "--seeds", "2", "--budget", "1s"});
  const auto steps = std::find(words.begin(), words.end(), "--steps");
  const Finished both = run_program(w.folder.path(), words);
  CHECK(both.code == 2);
  CHECK(contains(both.err, "--budget chooses the steps"));
  words.erase(steps, steps + 2);
  for (const char* found : {"2 cells: 0 finished before", "2 cells: 2 finished before"}) {
    const Finished run = run_program(w.folder.path(), words);
    CAPTURE(run.err);
    CHECK(run.code == 0);
    CHECK(contains(run.err, found));
    CHECK(contains(run.out, ", 2 seeds)"));  // in one row
  }
}

TEST_CASE("a cell whose folder holds a run by other settings runs in a separate folder") {
  if (!program_or_skip()) return;
  const Workshop w;
  const auto grid = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"--tasks", "listops", "--attentions", "skyformer",
                                          "--seed",  "7",       "--seeds",      "2"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return w.lra(4, arguments);
  };
  const auto value_in = [&](const std::string& folder, const char* key) {
    const auto config = data::parse_json(read_file(w.runs / folder / "config.json"));
    return config["settings"][key]["value"].get<std::string>();
  };
  const std::string first = "listops-skyformer-skytape-s7";
  const Finished set = grid({"--set", "lr=0.02", "--set", "dropout=0.3"});
  REQUIRE_MESSAGE(set.code == 0, set.err);
  const Finished dropped = grid({});
  CAPTURE(dropped.err);
  CHECK(dropped.code == 0);
  CHECK(contains(dropped.err, first +
                                  " holds another run (dropout: 0.3 there, 0 here; lr: 0.02 "
                                  "there, 1e-3 here): this cell's is " +
                                  first + "-2"));
  CHECK(contains(dropped.err, "2 cells: 0 finished before, 0 without data, 2 to run"));
  CHECK(value_in(first, "lr") == "0.02");
  CHECK(value_in(first + "-2", "lr") == "1e-3");
  const auto rows = [](const std::string& out) {
    const std::size_t end = out.find("\n\n", out.find("| skyformer | skytape"));  // of that table
    std::size_t count = 0;
    for (std::size_t at = 0; (at = out.find("| skyformer | skytape", at)) < end; ++at) ++count;
    return count;
  };
  CAPTURE(dropped.out);
  const std::string table = test::in_bars(dropped.out);
  CHECK(rows(table) == 2);
  CHECK(contains(table, "lr=0.02"));
  for (const auto& [folder, row] : {std::pair<std::string, std::string>{first, "lr=0.02"},
                                    {first + "-2", "| skyformer | skytape, batch=4, checkpoint"}}) {
    double sum = 0;
    for (const char* seed : {"7", "8"}) {
      std::string of_seed = folder;
      of_seed.replace(of_seed.find("-s7") + 2, 1, seed);
      const auto result = data::parse_json(read_file(w.runs / of_seed / "result.json"));
      sum += 100 * result["test_accuracy"].get<double>();
    }
    char mean[32];
    std::snprintf(mean, sizeof mean, "%.2f ± ", sum / 2);
    const std::size_t line = table.find(row);
    REQUIRE(line != std::string::npos);
    CHECK(contains(table.substr(line, table.find('\n', line) - line), mean));
  }
  const Finished again = grid({});
  CHECK(contains(again.err, "2 cells: 2 finished before"));
  CHECK(again.out == dropped.out);
  const Finished shown = grid({"--table-only"});
  CHECK(shown.out == dropped.out);
  CHECK(contains(grid({"--set", "lr=0.02", "--set", "dropout=0.3"}).err, "2 finished before"));
  // Another interval of checkpoints makes no other run.
  CHECK(contains(grid({"--set", "dropout=0.0"}).err, "2 finished before"));
}

TEST_CASE("a recipe file that is edited between two calls of a grid is another setting") {
  if (!program_or_skip()) return;
  const Workshop w;
  const fs::path file = w.folder.path() / "skyformer.recipe";
  const auto grid = [&](const std::string& rate, const std::vector<std::string>& more = {}) {
    w.folder.write("skyformer.recipe",
                   "steps=90 warmup=3\n[listops] lr=" + rate + " dropout=0.25\n");
    std::vector<std::string> arguments = {"--tasks",  "listops",     "--attentions", "skyformer",
                                          "--recipe", file.string(), "--seed",       "7"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return w.lra(4, arguments);
  };
  REQUIRE(grid("1e-6").code == 0);
  const std::string first = "listops-skyformer-skyformer.recipe-s7";
  CHECK(contains(read_file(w.runs / first / "recipe/skyformer.recipe"), "lr=1e-6"));
  const Finished edited = grid("3e-2");
  CAPTURE(edited.err);
  CAPTURE(edited.out);
  CHECK(edited.code == 0);
  CHECK(contains(edited.err, "(lr: 1e-6 there, 3e-2 here)"));
  CHECK(w.exists(first + "-2/result.json"));
  // A row each, by what they compute; and none is taken for the program's own recipe.
  for (const char* rate : {"1e-6", "3e-2"}) {
    CHECK(contains(test::in_bars(edited.out), std::string("steps=4, width=8, lr=") + rate + " | "));
  }
  CHECK(contains(test::in_bars(edited.out), "| skyformer | skyformer.recipe (file), "));
  CHECK_FALSE(contains(test::in_bars(edited.out), "| skyformer | skyformer, "));
  CHECK_FALSE(contains(test::in_bars(edited.out), "seeds)"));
  CHECK(contains(grid("3e-2").err, "1 cells: 1 finished before"));
}

TEST_CASE("--table-only times no step for a budget, and prepares no data") {
  if (!program_or_skip()) return;
  const Workshop w;
  fs::create_directory(w.runs);
  const fs::path none = w.folder.path() / "none";
  const Finished f = run_program(
      w.folder.path(), {"lra", "--tasks", "listops", "--attentions", "vmean", "--budget", "1s",
                        "--table-only", "--data", none.string(), "--out", w.runs.string()});
  CHECK_MESSAGE(f.code == 0, f.err);
  CHECK_FALSE(fs::exists(none));
}

TEST_CASE("features that some methods lack have a flag of their own in a grid, which is named") {
  if (!program_or_skip()) return;
  const Workshop w;
  const Finished f = run_program(
      w.folder.path(), {"lra", "--tasks", "listops", "--attentions", "skyformer,softmax", "--data",
                        w.data.string(), "--out", w.runs.string(), "--set", "features=9"});
  CHECK(f.code == 2);
  CHECK(contains(f.err, "features=9 has no effect on softmax"));
  CHECK(contains(f.err, "--features 9"));
}

TEST_CASE("a grid takes its recipe from a pipe, which is read once") {
  if (!program_or_skip()) return;
  const Workshop w;
  const Place piped{
      .launcher = {"bash", "-c",
                   R"("$0" "$@" --recipe <(echo steps=3 lr=0.01 warmup=2 batch=4 eval_every=7))"}};
  const Finished f =
      run_program(w.folder.path(),
                  {"lra", "--tasks", "listops", "--attentions", "vmean", "--seeds", "2", "--jobs",
                   "2", "--set", "max_length=64", "width=8", "ff_width=8", "--device", "cpu",
                   "--data", w.data.string(), "--out", w.runs.string()},
                  piped);
  CHECK_MESSAGE(f.code == 0, f.err);
  const std::string table = test::in_bars(read_file(w.runs / "lra.txt"));
  CHECK_MESSAGE(contains(table, "| vmean | pipe (file), "), table);
  CHECK(contains(table, ", 2 seeds)"));
}
