// Self-pre-training through the program: two phases in one folder, or two runs.
#include <algorithm>
#include <cmath>
#include <csignal>
#include <fstream>
#include <regex>
#include <thread>

#include "data/files/json.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"
#include "tests/train/cli/program.hpp"
#include "train/formats/safetensors.hpp"
#include "train/run/run_folder.hpp"

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
    const auto says = [&](const char* flag) {
      return std::find(more.begin(), more.end(), flag) != more.end();
    };
    Words all = {command,    "--out",       run(name), "--threads", "1",
                 "--device", "cpu",         "--batch", "4",         "--features",
                 "8",        "--log-every", "2",       "--steps",   std::to_string(steps)};
    if (!says("--task")) all = all + Words{"--task", "listops"};
    if (!says("--data")) all = all + Words{"--data", data.string()};
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
    return run_program(folder.path(), arguments(command, name, steps, more));
  }
};

const Words kTwoPhases = {"--set", "pretrain_steps=5", "--set", "pretrain_warmup=2"};

}  // namespace

TEST_CASE("pre-training and training in one folder resume bit for bit in either phase") {
  if (!program_or_skip()) return;
  const Workshop w;
  const Finished whole = w.start("train", "whole", 6, kTwoPhases);
  REQUIRE_MESSAGE(whole.code == 0, whole.err);
  CHECK(contains(whole.err, "pre-training: 15 % of the tokens of train are hidden, and predicted"));
  CHECK(contains(whole.err, "perplexity"));
  CHECK(contains(whole.err, "started from"));
  CHECK(contains(whole.out, "masked accuracy"));
  CHECK(fs::exists(w.run("whole") + "/result.json"));

  for (const Words& stop : {Words{"--stop-after", "3"},                 // in the first phase
                            Words{"--stop-after", "5", "--resume"},     // between the two
                            Words{"--stop-after", "8", "--resume"}}) {  // in the second
    const Finished part = w.start("train", "parts", 6, kTwoPhases + stop);
    REQUIRE_MESSAGE(part.code == 0, part.err);
    CHECK(!fs::exists(w.run("parts") + "/result.json"));
    CHECK(contains(part.err, "stopped as asked after step 3 of 5") == (stop[1] == "3"));
  }
  const Finished rest = w.start("train", "parts", 6, kTwoPhases + Words{"--resume"});
  REQUIRE_MESSAGE(rest.code == 0, rest.err);
  for (const char* file : {"/last.safetensors", "/pretraining/last.safetensors"}) {
    CHECK(same_tensors(w.run("whole") + file, w.run("parts") + file));
  }
}

TEST_CASE("result, metrics and TensorBoard say which phase they are of") {
  if (!program_or_skip()) return;
  const Workshop w;
  REQUIRE(w.start("train", "run", 6, kTwoPhases).code == 0);
  const fs::path run = w.run("run"), phase = run / "pretraining";

  const auto first = data::parse_json(read_file(phase / "result.json"));
  CHECK(first.at("phase") == "pretraining");
  CHECK(first.at("steps") == 5);
  CHECK(first.at("masked_loss").get<double>() > 0);
  CHECK(first.at("perplexity").get<double>() ==
        doctest::Approx(std::exp(first.at("masked_loss").get<double>())));
  CHECK(first.at("steps_per_second").get<double>() > 0);
  CHECK(!first.contains("test_accuracy"));
  const auto second = data::parse_json(read_file(run / "result.json"));
  CHECK(second.at("pretraining").at("steps") == 5);
  CHECK(second.at("pretraining").at("task") == "listops-limited");
  CHECK(second.at("pretraining").at("tokens") == first.at("tokens"));
  CHECK(second.at("pretraining").at("train_seconds").get<double>() > 0);

  const auto lines = train::read_metrics(phase / "metrics.jsonl");
  CHECK(lines.size() > 3);
  for (const data::Json& line : lines) {
    CHECK(line.at("phase") == "pretraining");
    CHECK(line.at("perplexity").get<double>() ==
          doctest::Approx(std::exp(line.at("loss").get<double>())));
  }
  for (const data::Json& line : train::read_metrics(run / "metrics.jsonl")) {
    CHECK_FALSE(line.contains("phase"));
  }
  for (const auto& file : fs::directory_iterator(phase)) {
    if (!file.path().filename().string().starts_with("events.")) continue;
    const std::string events = read_file(file);
    CHECK(contains(events, "pretraining/train/perplexity"));
    CHECK(contains(events, "pretraining/dev/accuracy"));
  }
  const Finished told = run_program(w.folder.path(), {"info", "run", phase});
  CHECK(contains(told.out, "best masked accuracy"));
  CHECK(contains(run_program(w.folder.path(), {"info", "run", run}).out, "pre-trained on listops"));
}

TEST_CASE("a second phase that has begun needs no first, and --force forgets both") {
  if (!program_or_skip()) return;
  const Workshop w;
  REQUIRE(w.start("train", "whole", 6, kTwoPhases).code == 0);
  REQUIRE(w.start("train", "part", 6, kTwoPhases + Words{"--stop-after", "7"}).code == 0);
  fs::remove_all(w.run("part") + "/pretraining");
  const Finished rest = w.start("train", "part", 6, kTwoPhases + Words{"--resume"});
  REQUIRE_MESSAGE(rest.code == 0, rest.err);
  CHECK_FALSE(fs::exists(w.run("part") + "/pretraining"));
  CHECK(same_tensors(w.run("whole") + "/last.safetensors", w.run("part") + "/last.safetensors"));

  // A run of another seed, stopped in the first phase: nothing of the finished run is left to
  // resume.
  const Words other = kTwoPhases + Words{"--seed", "7"};
  REQUIRE(w.start("train", "part", 6, other + Words{"--force", "--stop-after", "3"}).code == 0);
  CHECK_FALSE(fs::exists(w.run("part") + "/last.safetensors"));
  const Finished forced = w.start("train", "part", 6, other + Words{"--resume"});
  CHECK_MESSAGE(forced.code == 0, forced.err);
  REQUIRE(w.start("train", "other", 6, other).code == 0);
  CHECK(same_tensors(w.run("other") + "/last.safetensors", w.run("part") + "/last.safetensors"));
}

TEST_CASE("patience ends the training, never the pre-training before it") {
  if (!program_or_skip()) return;
  const Workshop w;
  const Finished both = w.start(
      "train", "run", 8,
      {"--seed", "3", "--set", "pretrain_steps=16", "--set", "pretrain_warmup=2", "--set",
       "pretrain_lr=2", "--set", "clip_value=0", "--set", "eval_every=2", "--set", "patience=1"});
  REQUIRE_MESSAGE(both.code == 0, both.err);
  const fs::path phase = fs::path(w.run("run")) / "pretraining";
  CHECK(data::parse_json(read_file(phase / "result.json")).at("steps") == 16);
  double best = 1e9;
  int stale = 0;  // evaluations before the last one that patience would have ended it at
  for (const data::Json& line : train::read_metrics(phase / "metrics.jsonl")) {
    if (line.at("kind") != "eval" || line.at("step") == 16) continue;
    stale += line.at("loss").get<double>() >= best;
    best = std::min(best, line.at("loss").get<double>());
  }
  REQUIRE(stale > 0);
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
  CHECK(contains(asked.err, "train --init"));
  CHECK(run_program(w.folder.path(), {"info", "run", w.run("first")}).code == 0);

  const Finished second = w.start("train", "second", 6, {"--init", w.run("first")});
  REQUIRE_MESSAGE(second.code == 0, second.err);
  CHECK(contains(second.err, "fresh: seq_classifer; not used: masked_head\n"));
  CHECK(contains(second.err, "(pre-trained on listops-limited with skyformer, 5 steps"));
  CHECK(same_tensors(w.run("second") + "/last.safetensors", w.run("whole") + "/last.safetensors"));

  const Finished other =
      w.start("train", "other", 6, {"--init", w.run("first"), "--attention", "linformer"});
  REQUIRE_MESSAGE(other.code == 0, other.err);
  CHECK(contains(other.err, "model.transformer_*.mha.attn.E"));  // Linformer's projection is new

  const Finished eval =
      run_program(w.folder.path(), {"eval", "--run", w.run("second"), "--device", "cpu"});
  CHECK_MESSAGE(eval.code == 0, eval.err);
}

TEST_CASE("projections that the method of an init did not train are not counted as trained") {
  if (!program_or_skip()) return;
  const Workshop w;
  const auto said = [&](const char* method, const std::string& name, const Words& more) {
    Words all = w.arguments("train", name, 3, more + Words{"--attention", method});
    const auto features = std::find(all.begin(), all.end(), "--features");  // these have none
    all.erase(features, features + 2);
    const Finished f = run_program(w.folder.path(), all);
    REQUIRE_MESSAGE(f.code == 0, f.err);
    return f.err;
  };
  const auto from = [&](const char* method, const std::string& init) {
    return said(method, init + "-" + method, {"--init", w.run(init)});
  };
  for (const char* method : {"reformer", "vmean"}) said(method, method, {});
  const std::string keys = "model.transformer_*.mha.W_k";
  CHECK(contains(from("softmax", "reformer"),
                 " tensors loaded, and " + keys + ", which reformer did not train; fresh: "));
  CHECK(contains(from("softmax", "vmean"), " tensors loaded, and model.transformer_*.mha.W_q, " +
                                               keys + ", which vmean did not train; fresh: "));
  const std::string same = from("reformer", "reformer");
  CHECK(contains(same, " tensors loaded; fresh: "));
  CHECK(contains(same, "; not used: " + keys));
}

TEST_CASE("a pre-training continues from another with its head and a fresh schedule") {
  if (!program_or_skip()) return;
  const Workshop w;
  REQUIRE(w.start("pretrain", "first", 5).code == 0);
  const Finished second = w.start("pretrain", "second", 5, {"--init", w.run("first")});
  REQUIRE_MESSAGE(second.code == 0, second.err);
  CHECK(contains(second.err, "fresh: nothing; not used: nothing"));
  const auto loss = [&](const char* run) {
    return data::parse_json(read_file(w.run(run) + "/result.json")).at("masked_loss").get<double>();
  };
  CHECK(loss("second") < loss("first"));
  // Its weights are those of a run that says what it started from.
  const Finished resumed = run_program(
      w.folder.path(), {"pretrain", "--resume", "--out", w.run("second"), "--device", "cpu"});
  CHECK_MESSAGE(resumed.code == 0, resumed.err);
}

TEST_CASE("a run has the encoder's sizes of the one it starts from, unless it says others") {
  if (!program_or_skip()) return;
  const Workshop w;
  REQUIRE(w.start("train", "deep", 3,
                  {"--stop-after", "1", "--set", "layers=3", "--set", "both_ends=0", "--set",
                   "rotary_base=500"})
              .code == 0);
  const Finished shown = w.start("train", "next", 6, {"--init", w.run("deep"), "--print-config"});
  CHECK_MESSAGE(shown.code == 0, shown.err);
  const std::regex layers("layers +3 +--init"), ends("both_ends +0 +--init");
  CHECK(std::regex_search(shown.out, layers));
  CHECK(std::regex_search(shown.out, ends));
  CHECK(std::regex_search(shown.out, std::regex("rotary_base +500 +--init")));
  // Without rotary positions their base is of no use, and no error: nobody said it.
  const Finished learned =
      w.start("train", "next", 6,
              {"--init", w.run("deep"), "--set", "positions=learned", "--print-config"});
  CHECK_MESSAGE(learned.code == 0, learned.err);
  const Finished next = w.start("train", "next", 6, {"--init", w.run("deep"), "--stop-after", "2"});
  CHECK_MESSAGE(next.code == 0, next.err);
  const auto config = data::parse_json(read_file(w.run("next") + "/config.json"));
  CHECK(config.contains("init"));
  CHECK_FALSE(config.contains("pretraining"));  // which its start was not
  // The settings that were taken over are the run's own from then on.
  const Finished rest = w.start("train", "next", 6, {"--init", w.run("deep"), "--resume"});
  CHECK_MESSAGE(rest.code == 0, rest.err);
}

TEST_CASE(
    "how much a run of --init reads is the encoder's with learned positions, else the task's") {
  if (!program_or_skip()) return;
  const Workshop w;
  for (const auto& [positions, length] :
       {std::pair("learned", "max_length +64 +--init"), std::pair("rotary", "max_length +2000 ")}) {
    REQUIRE(w.start("train", positions, 3,
                    {"--stop-after", "1", "--set", std::string("positions=") + positions})
                .code == 0);
    const Finished shown =
        run_program(w.folder.path(), {"train", "--data", w.data.string(), "--device", "cpu",
                                      "--init", w.run(positions), "--print-config"});
    CHECK_MESSAGE(shown.code == 0, shown.err);
    CHECK_MESSAGE(std::regex_search(shown.out, std::regex(length)), positions, ": ", shown.out);
  }
}

TEST_CASE("an init of another width, of nothing, or with pre-training is refused") {
  if (!program_or_skip()) return;
  const Workshop w;
  REQUIRE(w.start("train", "narrow", 3, {"--stop-after", "1"}).code == 0);
  const Finished heads =
      w.start("train", "heads", 6, {"--init", w.run("narrow"), "--set", "heads=4"});
  CHECK(heads.code == 0);  // the same tensors, cut into other heads
  const Finished wide =
      w.start("train", "wide", 6, {"--init", w.run("narrow"), "--set", "width=12"});
  CHECK(wide.code == 3);
  CHECK(contains(wide.err,
                 "tensor model.embeddings.word_embeddings.weight is f32[32, 8]@cpu, this run's is "
                 "f32[32, 12]@cpu"));
  CHECK_FALSE(fs::exists(w.run("wide")));  // refused before anything is made
  const Finished deep =
      w.start("train", "deep", 6, {"--init", w.run("narrow"), "--set", "layers=3"});
  CHECK(deep.code == 3);
  CHECK(contains(deep.err, "model.transformer_2"));
  const Finished longer =
      w.start("train", "longer", 6, {"--init", w.run("narrow"), "--set", "ff_width=12"});
  CHECK(longer.code == 3);
  CHECK(contains(longer.err, "mlpblock"));
  CHECK(w.start("train", "both", 6, kTwoPhases + Words{"--init", w.run("narrow")}).code == 2);
  const Finished nothing = w.start("train", "nothing", 6, {"--init", w.run("nowhere")});
  CHECK(nothing.code == 3);
  CHECK(contains(nothing.err, "nowhere"));
  const Finished lone = w.start("train", "lone", 6, {"--set", "mask_rate=0.3"});
  CHECK(lone.code == 2);
  CHECK(contains(lone.err, "pretrain_steps is 0"));
}

TEST_CASE("an init of other words, another vocabulary or another task is refused by its tensor") {
  if (!program_or_skip()) return;
  const Workshop w;
  // Two sets of as many words each, and the first one as bytes.
  const auto prepare = [&](const std::string& name, const std::string& tokens,
                           const std::string& words) {
    std::string lines;
    for (int i = 0; i < 40; ++i) lines += std::string(i % 2 ? "spam" : "ham") + "\t" + words + "\n";
    const std::string file = w.folder.write(name + ".tsv", lines);
    const std::string root = w.folder.path() / name;
    const Finished done = run_program(w.folder.path(), {"data", "--task", "tsv", "--from", file,
                                                        "--tokens", tokens, "--data", root});
    REQUIRE_MESSAGE(done.code == 0, done.err);
  };
  prepare("first", "words", "one one one two two three");
  prepare("second", "words", "one one one two two four");
  prepare("more", "words", "one one one one two two two three three four");
  prepare("bytes", "bytes", "one two three");
  const auto start = [&](const std::string& command, const std::string& data,
                         const std::string& run, const Words& more) {
    return w.start(command, run, 5,
                   Words{"--task", "tsv", "--data", w.folder.path() / data} + more);
  };
  const Finished first = start("pretrain", "first", "words", {});
  REQUIRE_MESSAGE(first.code == 0, first.err);
  const Words init = {"--init", w.run("words")};
  const Finished same = start("train", "first", "same", init);
  CHECK_MESSAGE(same.code == 0, same.err);
  const Finished other = start("train", "second", "other", init);
  CHECK(other.code == 3);
  CHECK(contains(other.err,
                 "word_embeddings.weight is f32[6, 8]@cpu, this run's is f32[6, 8]@cpu; "));
  CHECK(contains(other.err, " of its vocabulary is \"three\", this run's is \"four\""));
  const Finished more = start("train", "more", "longer", init);
  CHECK(more.code == 3);
  CHECK(contains(more.err, "is f32[6, 8]@cpu, this run's is f32[7, 8]@cpu"));
  const Finished bytes = start("train", "bytes", "letters", init);
  CHECK(bytes.code == 3);
  CHECK(contains(bytes.err, "word_embeddings.weight is f32[6, 8]@cpu, this run's is f32["));
  const Finished task = w.start("train", "task", 6, init);
  CHECK(task.code == 3);
  CHECK(
      contains(task.err, "word_embeddings.weight is f32[6, 8]@cpu, this run's is f32[32, 8]@cpu"));
}

TEST_CASE("an init whose texts are cut into tokens in another way is refused by what differs") {
  if (!program_or_skip()) return;
  const Workshop w;
  std::string lines;
  for (int i = 0; i < 40; ++i) lines += i % 2 ? "spam\tone two one\n" : "ham\ttwo two\n";
  const std::string root = w.folder.path() / "words";
  const Words own = {"--task", "tsv", "--data", root};
  REQUIRE(run_program(w.folder.path(),
                      {"data", "--task", "tsv", "--from", w.folder.write("own.tsv", lines),
                       "--tokens", "words", "--data", root})
              .code == 0);
  const Finished first = w.start("pretrain", "first", 3, own);
  REQUIRE_MESSAGE(first.code == 0, first.err);
  const fs::path last = fs::path(w.run("first")) / "last.safetensors";
  const train::SafetensorsFile file = train::read_safetensors(last);
  for (const char* key : {"lower_case", "strip_accents", "split_cjk", "merges", "space_in_front"}) {
    CAPTURE(key);
    auto metadata = file.metadata;
    data::Json config = data::parse_json(metadata.at("skytape.config"));
    config["data_provenance"][key] = "another";
    metadata["skytape.config"] = data::json_text(config);
    train::write_safetensors(last, {file.tensors.begin(), file.tensors.end()}, metadata);
    const Finished refused = w.start("train", "next", 3, own + Words{"--init", last});
    CAPTURE(refused.err);
    CHECK(refused.code == 3);
    CHECK(
        contains(refused.err, std::string("; its texts are cut into tokens by another \"") + key));
  }
  train::write_safetensors(last, {file.tensors.begin(), file.tensors.end()}, file.metadata);
  const Finished next = w.start("train", "next", 3, own + Words{"--init", last});
  CHECK_MESSAGE(next.code == 0, next.err);
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

TEST_CASE("a pre-training that is killed before it writes its result evaluates again") {
  if (!program_or_skip()) return;
  const Workshop w;
  const fs::path result = fs::path(w.run("run")) / "result.json";
  const auto scores = [&](const Words& more) {
    const Finished done = w.start("pretrain", "run", 4, Words{"--set", "eval_examples=2"} + more);
    REQUIRE_MESSAGE(done.code == 0, done.err);
    const auto said = data::parse_json(read_file(result));
    CHECK(said.at("dev_examples") == 2);
    return std::pair(said.at("masked_loss").get<double>(),
                     said.at("masked_accuracy").get<double>());
  };
  const auto before = scores({});
  fs::remove(result);
  CHECK(scores({"--resume"}) == before);
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
    Program program(w.folder.path(), w.arguments("train", "killed", 6, again()));
    std::this_thread::sleep_for(std::chrono::milliseconds(40 * attempt));
    program.kill(SIGKILL);
    (void)program.wait();
  }
  const Finished rest = w.start("train", "killed", 6, again());
  REQUIRE_MESSAGE(rest.code == 0, rest.err);
  CHECK(same_tensors(w.run("whole") + "/last.safetensors", w.run("killed") + "/last.safetensors"));
}
