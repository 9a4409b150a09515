// A run and its data from outside: no number is shown about other data than those of the run.
#include <algorithm>

#include "data/files/json.hpp"
#include "tests/support/doctest.hpp"
#include "tests/train/cli/workshop.hpp"

using namespace skytape;
using namespace skytape::test;
using data::synthetic::read_file;

namespace {

namespace fs = std::filesystem;

/// Forty lines label<TAB>text with so many labels.
std::string own_lines(int labels, const std::string& word) {
  std::string lines;
  for (int i = 0; i < 40; ++i) {
    lines += "label" + std::to_string(i % labels) + "\t" + word + std::to_string(i) + "\n";
  }
  return lines;
}

std::string test_fingerprint(const std::string& task, const fs::path& root) {
  return data::open(data::find_task(task), root, "test").fingerprint();
}

/// A run on custom data below the folder, as a user types it there.
struct CustomFolder {
  data::synthetic::Folder folder;

  CustomFolder() {
    REQUIRE(type({"data", "--task", "tsv", "--from", write("three.tsv", 3, "a")}).code == 0);
    const Finished run =
        type({"train",   "--task",        "tsv",   "--steps",   "3",     "--batch",     "4",
              "--set",   "max_length=32", "--set", "width=8",   "--set", "ff_width=8",  "--set",
              "heads=2", "--device",      "cpu",   "--threads", "1",     "--attention", "softmax"});
    REQUIRE_MESSAGE(run.code == 0, run.err);
  }

  [[nodiscard]] std::string write(const std::string& name, int labels,
                                  const std::string& word) const {
    return folder.write(name, own_lines(labels, word)).string();
  }
  [[nodiscard]] Finished type(const std::vector<std::string>& arguments) const {
    return run_program(folder.path(), arguments, {.folder = folder.path()});
  }
};

const std::string kRun = "runs/tsv-softmax-skytape-s42";

}  // namespace

TEST_CASE("eval and studies find a run's data from any folder, and generate none") {
  if (!program_or_skip()) return;
  const Workshop w;
  std::vector<std::string> train = w.train("run", 3);
  *(std::find(train.begin(), train.end(), "--data") + 1) = "data";  // as users type it
  const Finished trained = w.finish(train, {.folder = w.folder.path()});
  REQUIRE_MESSAGE(trained.code == 0, trained.err);

  const fs::path elsewhere = w.folder.path() / "elsewhere";
  fs::create_directories(elsewhere);
  const std::string run = w.run("run").string();
  const Finished eval = w.finish({"eval", "--run", run}, {.folder = elsewhere});
  CHECK_MESSAGE(eval.code == 0, eval.err);
  CHECK(fs::is_empty(elsewhere));

  fs::rename(w.data, w.folder.path() / "moved");
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"eval", "--run", run},
        {"approx", "--run", run, "--n", "32", "--features", "8"},
        {"spectrum", "--run", run, "--n", "32"},
        {"eval", "--weights", run + "/last.safetensors", "--data", "nowhere", "--features", "8",
         "--set", "max_length=64", "width=8", "ff_width=8"}}) {
    const Finished lost = w.finish(command, {.folder = elsewhere});
    CAPTURE(lost.err);
    CHECK(lost.code == 3);
    CHECK(contains(lost.err, command[1] == "--run" ? "--data FOLDER" : "make data TASK=listops"));
    CHECK(lost.out.empty());
  }
  CHECK(fs::is_empty(elsewhere));
  CHECK_FALSE(fs::exists(w.data));
  const std::string moved = (w.folder.path() / "moved").string();
  CHECK(w.finish({"eval", "--run", run, "--data", moved}).code == 0);
}

TEST_CASE("a run on other data than its own is refused with both fingerprints") {
  if (!program_or_skip()) return;
  const Workshop w;
  REQUIRE(w.finish(w.train("run", 3)).code == 0);
  const fs::path other = w.folder.path() / "other";
  data::synthetic::small_listops(other, 150, 1, 2);
  const std::string run = w.run("run").string();
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"eval", "--run", run, "--data", other.string()},
        {"approx", "--run", run, "--n", "32", "--features", "8", "--data", other.string()},
        {"spectrum", "--run", run, "--n", "32", "--data", other.string()}}) {
    const Finished refused = w.finish(command);
    CAPTURE(refused.err);
    CHECK(refused.code == 3);
    CHECK(contains(refused.err, test_fingerprint("listops", w.data)));
    CHECK(contains(refused.err, test_fingerprint("listops", other)));
    CHECK(refused.out.empty());
  }
  // --resume says which split differs, not a page about all of them.
  std::vector<std::string> again = w.train("run", 3, {"--resume"});
  *(std::find(again.begin(), again.end(), "--data") + 1) = other.string();
  const Finished resumed = w.finish(again);
  CHECK(resumed.code == 2);
  CHECK(contains(resumed.err, "data, train: fingerprint "));
  CHECK(contains(resumed.err, " here; test and dev differ as well; --data FOLDER says where"));
  CHECK(resumed.err.size() < 300);
}

TEST_CASE("replacing prepared data needs --force and names the runs that used them") {
  if (!program_or_skip()) return;
  const CustomFolder custom;
  CHECK(custom.type({"data", "--task", "tsv", "--from", "three.tsv"}).code == 0);  // the same ones
  const std::string before = test_fingerprint("tsv", custom.folder.path() / "datasets");
  const std::string two = custom.write("two.tsv", 2, "b");
  const Finished refused = custom.type({"data", "--task", "tsv", "--from", two});
  CAPTURE(refused.err);
  CHECK(refused.code == 2);
  CHECK(contains(refused.err, "--force"));
  CHECK(contains(refused.err, kRun));
  CHECK(test_fingerprint("tsv", custom.folder.path() / "datasets") == before);

  const Finished forced = custom.type({"data", "--task", "tsv", "--from", two, "--force"});
  CHECK(forced.code == 0);
  CHECK(contains(forced.err, kRun));
  const Finished eval = custom.type({"eval", "--run", kRun});
  CAPTURE(eval.err);
  CHECK(eval.code == 3);
  CHECK(eval.out.empty());
  // Weights without a run have no fingerprints, but a number of classes.
  const Finished weights = custom.type(
      {"eval", "--weights", kRun + "/last.safetensors", "--task", "tsv", "--attention", "softmax",
       "--set", "max_length=32", "--set", "width=8", "--set", "ff_width=8", "--set", "heads=2"});
  CHECK(weights.code == 3);
  CHECK_MESSAGE(contains(weights.err, "label2"), weights.err);
}

TEST_CASE("eval --weights takes the saved configuration and refuses another one") {
  if (!program_or_skip()) return;
  const CustomFolder custom;
  const auto line = [](const Finished& f) { return f.out.substr(0, f.out.find(" over ")); };
  const Finished run = custom.type({"eval", "--run", kRun, "--checkpoint", "last"});
  const std::string weights = kRun + "/last.safetensors";
  for (const std::vector<std::string>& same :
       {std::vector<std::string>{}, {"--task", "tsv", "--set", "width=8"}, {"--seed", "42"}}) {
    std::vector<std::string> command = {"eval", "--weights", weights};
    command.insert(command.end(), same.begin(), same.end());
    const Finished f = custom.type(command);
    CHECK_MESSAGE(f.code == 0, f.err);
    CHECK(contains(f.out, "tsv softmax: test accuracy"));
    CHECK(line(f) == line(run));
  }
  for (const auto& [flags, expected] :
       {std::pair<std::vector<std::string>, std::string>{
            {"--attention", "skyformer"}, "attention: softmax there, skyformer here"},
        {{"--task", "listops"}, "task: tsv there, listops here"},
        {{"--seed", "7"}, "seed: 42 there, 7 here"},
        {{"--set", "pooling=max"}, ", max here"},
        {{"--recipe", "skyformer"}, "by recipe skyformer: "}}) {
    std::vector<std::string> command = {"eval", "--weights", weights};
    command.insert(command.end(), flags.begin(), flags.end());
    const Finished f = custom.type(command);
    CAPTURE(f.err);
    CHECK(f.code == 2);
    CHECK(contains(f.err, weights + ": --weights refuses another configuration: "));
    CHECK(contains(f.err, expected));
    CHECK(f.out.empty());
  }
}

TEST_CASE("an export that is refused prepares nothing") {
  if (!program_or_skip()) return;
  const Workshop w;
  const std::string root = (w.folder.path() / "new").string();
  const std::string from = w.folder.write("own/train.tsv", own_lines(2, "a")).string();
  const auto refused = [&](const std::vector<std::string>& more, const char* expected) {
    std::vector<std::string> command = {"data", "--data", root};
    command.insert(command.end(), more.begin(), more.end());
    const Finished f = w.finish(command);
    CAPTURE(f.err);
    CHECK(f.code == 2);
    CHECK(contains(f.err, expected));
    CHECK_FALSE(fs::exists(fs::path(root) / "tsv" / "train.skydata"));
  };
  const std::string folder = fs::path(from).parent_path().string();
  refused({"--task", "tsv", "--from", from, "--export", folder}, "train.tsv is there already");
  refused({"--task", "tsv", "--from", from, "--export", from}, "is a file, expected a folder");
  std::string pairs = "label\ttext\ttext2\n";
  for (int i = 0; i < 20; ++i) pairs += std::to_string(i % 2) + "\ta\tb\n";
  const std::string paired = w.folder.write("pairs.tsv", pairs).string();
  refused({"--task", "tsv", "--from", paired, "--tokens", "words", "--export", root + "-out"},
          "pairs of words are stored without an end between them");
  refused({"--task", "text", "--from", from, "--export", folder}, "are not ours to write");
}

TEST_CASE("only config.json says where the data are") {
  if (!program_or_skip()) return;
  const CustomFolder custom;
  const fs::path run = custom.folder.path() / kRun;
  const std::string place = custom.folder.path().string();
  const auto config = data::parse_json(read_file(run / "config.json"));
  CHECK(config.at("data_root") == (fs::canonical(custom.folder.path()) / "datasets").string());
  for (const char* file : {"result.json", "metrics.jsonl", "last.safetensors"}) {
    CHECK_MESSAGE(!contains(read_file(run / file), place), file);
  }
}

TEST_CASE("eval refuses a config.json that does not say where the data are, or which") {
  if (!program_or_skip()) return;
  const CustomFolder custom;
  const std::string file = kRun + "/config.json";
  const auto config = data::parse_json(read_file(custom.folder.path() / file));
  for (const char* key : {"data_root", "data"}) {
    auto less = config;
    less.erase(key);
    custom.folder.write(file, less.dump());
    const Finished eval = custom.type({"eval", "--run", kRun});
    CAPTURE(eval.err);
    CHECK(eval.code == 3);
    CHECK(contains(eval.err, "config.json: does not say what data the run was trained on"));
  }
}
