// Self-pre-training through the program: two phases in one folder, or two runs.
#include <algorithm>
#include <csignal>
#include <fstream>
#include <thread>

#include "data/files/json.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"
#include "tests/train/cli/program.hpp"

using namespace skytape;
using namespace skytape::test;
using data::synthetic::Folder;
using data::synthetic::read_file;

namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

Words operator+(Words list, const Words& more) {
  list.insert(list.end(), more.begin(), more.end());
  return list;
}

/// A small ListOps, and runs of a small model on it.
struct Workshop {
  Folder folder;
  fs::path data = folder.path() / "data";

  Workshop() { data::synthetic::small_listops(data, 150); }

  [[nodiscard]] std::string run(const std::string& name) const { return folder.path() / name; }

  [[nodiscard]] Words arguments(const std::string& command, const std::string& name, int steps,
                                const Words& more = {}) const {
    Words all = {command,
                 "--task",
                 "listops",
                 "--out",
                 run(name),
                 "--threads",
                 "1",
                 "--device",
                 "cpu",
                 "--batch",
                 "4",
                 "--features",
                 "8",
                 "--log-every",
                 "2",
                 "--steps",
                 std::to_string(steps)};
    for (const std::string set : {"max_length=64", "width=8", "ff_width=8", "eval_every=3",
                                  "checkpoint_every=2", "eval_examples=8"}) {
      const std::string key = set.substr(0, set.find('=') + 1);
      const bool given = std::any_of(
          more.begin(), more.end(), [&](const std::string& word) { return word.starts_with(key); });
      if (!given) all = all + Words{"--set", set};
    }
    return all + more;
  }
  [[nodiscard]] Finished start(const std::string& command, const std::string& name, int steps,
                               const Words& more = {}) const {
    return run_program(folder.path(),
                       arguments(command, name, steps, Words{"--data", data.string()} + more));
  }
};

const Words kTwoPhases = {"--set", "pretrain_steps=5", "--set", "pretrain_warmup=2"};

}  // namespace

TEST_CASE("pre-training and training in one folder resume bit for bit in either phase") {
  if (!program_or_skip()) return;
  const Workshop w;
  const Finished whole = w.start("train", "whole", 6, kTwoPhases);
  REQUIRE_MESSAGE(whole.code == 0, whole.err);
  CHECK(says(whole.err, "perplexity of hidden tokens"));
  CHECK(says(whole.err, "started from"));
  CHECK(fs::exists(w.run("whole") + "/result.json"));
  const auto first = data::parse_json(read_file(w.run("whole") + "/pretraining/result.json"));
  CHECK(first.at("steps") == 5);
  CHECK(first.at("masked_loss").get<double>() > 0);
  CHECK(!first.contains("test_accuracy"));

  for (const Words& stop : {Words{"--stop-after", "3"},                 // in the first phase
                            Words{"--stop-after", "8", "--resume"}}) {  // in the second
    const Finished part = w.start("train", "parts", 6, kTwoPhases + stop);
    REQUIRE_MESSAGE(part.code == 0, part.err);
    CHECK(!fs::exists(w.run("parts") + "/result.json"));
  }
  const Finished rest = w.start("train", "parts", 6, kTwoPhases + Words{"--resume"});
  REQUIRE_MESSAGE(rest.code == 0, rest.err);
  for (const char* file : {"/last.safetensors", "/pretraining/last.safetensors"}) {
    CHECK(same_tensors(w.run("whole") + file, w.run("parts") + file));
  }
}

TEST_CASE("two runs, pretrain and train --init, give what one run of two phases gives") {
  if (!program_or_skip()) return;
  const Workshop w;
  const Finished first = w.start("pretrain", "first", 5, {"--set", "pretrain_warmup=2"});
  REQUIRE_MESSAGE(first.code == 0, first.err);
  const Finished whole = w.start("train", "whole", 6, kTwoPhases);
  REQUIRE_MESSAGE(whole.code == 0, whole.err);
  CHECK(same_tensors(w.run("first") + "/last.safetensors",
                     w.run("whole") + "/pretraining/last.safetensors"));

  const Finished asked = run_program(w.folder.path(), {"eval", "--run", w.run("first")});
  CHECK(asked.code == 3);
  CHECK(says(asked.err, "train --init"));
  CHECK(run_program(w.folder.path(), {"info", "run", w.run("first")}).code == 0);

  const Finished second = w.start("train", "second", 6, {"--init", w.run("first")});
  REQUIRE_MESSAGE(second.code == 0, second.err);
  CHECK(says(second.err, "fresh: seq_classifer"));
  CHECK(same_tensors(w.run("second") + "/last.safetensors", w.run("whole") + "/last.safetensors"));

  const Finished other =
      w.start("train", "other", 6, {"--init", w.run("first"), "--attention", "linformer"});
  REQUIRE_MESSAGE(other.code == 0, other.err);
  CHECK(says(other.err, ".mha.attn."));  // Linformer's projection starts fresh

  const Finished eval =
      run_program(w.folder.path(), {"eval", "--run", w.run("second"), "--device", "cpu"});
  CHECK_MESSAGE(eval.code == 0, eval.err);
}

TEST_CASE("an init of another width, of nothing, or beside pre-training is refused") {
  if (!program_or_skip()) return;
  const Workshop w;
  REQUIRE(w.start("train", "narrow", 3, {"--stop-after", "1"}).code == 0);
  const Finished wide =
      w.start("train", "wide", 6, {"--init", w.run("narrow"), "--set", "heads=4"});
  CHECK(wide.code == 0);  // the same tensors, cut into other heads
  const Finished deep =
      w.start("train", "deep", 6, {"--init", w.run("narrow"), "--set", "layers=3"});
  CHECK(deep.code == 3);
  CHECK(says(deep.err, "model.transformer_2"));
  const Finished longer =
      w.start("train", "longer", 6, {"--init", w.run("narrow"), "--set", "ff_width=12"});
  CHECK(longer.code == 3);
  CHECK(says(longer.err, "mlpblock"));
  CHECK(w.start("train", "both", 6, kTwoPhases + Words{"--init", w.run("narrow")}).code == 2);
  const Finished nothing = w.start("train", "nothing", 6, {"--init", w.run("nowhere")});
  CHECK(nothing.code == 3);
  CHECK(says(nothing.err, "nowhere"));
  const Finished lone = w.start("train", "lone", 6, {"--set", "mask_rate=0.3"});
  CHECK(lone.code == 2);
  CHECK(says(lone.err, "pretrain_steps is 0"));
}

TEST_CASE("pre-training reads the training split alone: other dev and test sets change nothing") {
  if (!program_or_skip()) return;
  const Workshop w;
  const fs::path files = w.folder.path() / "files";
  const auto program = [&](const Words& arguments) {
    const Finished done = run_program(w.folder.path(), arguments);
    REQUIRE_MESSAGE(done.code == 0, done.err);
  };
  program({"data", "--task", "listops", "--data", w.data, "--export", files});
  const auto pretrained = [&](const std::string& name) {
    const std::string root = w.folder.path() / ("data-" + name);
    program({"data", "--task", "listops", "--data", root, "--from", files});
    program(w.arguments("pretrain", name, 5,
                        {"--data", root, "--set", "pretrain_warmup=2", "--set", "eval_every=1"}));
    return w.run(name) + "/last.safetensors";
  };
  const std::string before = pretrained("before");
  fs::rename(files / "basic_val.tsv", files / "other");
  fs::rename(files / "basic_test.tsv", files / "basic_val.tsv");
  fs::rename(files / "other", files / "basic_test.tsv");
  CHECK(same_tensors(before, pretrained("swapped")));
}

TEST_CASE("kill -9 in either phase loses nothing") {
  if (!program_or_skip()) return;
  const Workshop w;
  const Finished whole = w.start("train", "whole", 6, kTwoPhases);
  REQUIRE_MESSAGE(whole.code == 0, whole.err);
  const auto again = [&] {
    return kTwoPhases + (fs::exists(w.run("killed")) ? Words{"--resume"} : Words{});
  };
  for (int attempt = 1; attempt <= 8; ++attempt) {
    Program program(w.folder.path(),
                    w.arguments("train", "killed", 6, Words{"--data", w.data.string()} + again()));
    std::this_thread::sleep_for(std::chrono::milliseconds(40 * attempt));
    program.kill(SIGKILL);
    (void)program.wait();
  }
  const Finished rest = w.start("train", "killed", 6, again());
  REQUIRE_MESSAGE(rest.code == 0, rest.err);
  CHECK(same_tensors(w.run("whole") + "/last.safetensors", w.run("killed") + "/last.safetensors"));
}
