// --resume from outside: what need not be said again, and what is refused before the first step.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "data/files/json.hpp"
#include "tests/support/doctest.hpp"
#include "tests/train/cli/workshop.hpp"
#include "train/formats/safetensors.hpp"

using namespace skytape;
using namespace skytape::test;
using data::synthetic::read_file;

namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

}  // namespace

TEST_CASE("--resume with nothing but the folder continues the run as it was started") {
  if (!program_or_skip()) return;
  const Workshop w;
  const Words started = {"--attention", "linformer", "--seed", "7", "--recipe", "skyformer"};
  REQUIRE(w.finish(w.train("whole", 12, started)).code == 0);
  Words part = started;
  part.insert(part.end(), {"--stop-after", "5"});
  REQUIRE(w.finish(w.train("part", 12, part)).code == 0);
  const std::string folder = w.run("part").string();

  for (const Words& other :
       {Words{"--attention", "softmax"}, Words{"--seed", "8"}, Words{"--steps", "13"},
        Words{"--set", "linformer.features=4"}, Words{"--task", "text"}}) {
    Words arguments = {"train", "--resume", "--out", folder};
    arguments.insert(arguments.end(), other.begin(), other.end());
    const Finished refused = w.finish(arguments);
    CAPTURE(refused.err);
    CHECK(refused.code == 2);
    CHECK(contains(refused.err, " there, "));
  }
  const Finished shown = w.finish({"train", "--resume", "--out", folder, "--print-config"});
  CHECK(contains(shown.out, "attention linformer, recipe skyformer, seed 7"));
  // Said again in part, in another place, with the seed that it has.
  const Finished rest = w.finish({"train", "--resume", "--out", folder, "--seed", "7", "--set",
                                  "linformer.features=8", "--log-every", "2"});
  CAPTURE(rest.err);
  CHECK(rest.code == 0);
  CHECK(contains(rest.err, "resuming " + folder + " at step 5"));
  CHECK(same_tensors(w.run("whole") / "last.safetensors", w.run("part") / "last.safetensors"));
}

TEST_CASE("a run by a recipe of the user's resumes without it, and its config.json repeats it") {
  if (!program_or_skip()) return;
  const Workshop w;
  const fs::path file = w.folder.path() / "mine.recipe";
  std::ofstream(file) << "lr=1e-2 warmup=2 eval_every=5 dropout=0\n[listops] heads=4\n";
  const auto refused = w.finish({"train", "--recipe", (w.folder.path() / "none").string()});
  CHECK(refused.code == 2);
  CHECK(contains(refused.err, "unknown recipe"));
  const Words by_file = {
      "train",     "--task", "listops",  "--recipe", file.string(),  "--data", w.data.string(),
      "--threads", "1",      "--device", "cpu",      "--steps",      "6",      "--set",
      "batch=4",   "--set",  "width=8",  "--set",    "max_length=64"};
  const auto to = [&](const char* name, Words more) {
    Words arguments = by_file;
    arguments.insert(arguments.end(), {"--out", w.run(name).string()});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return w.finish(arguments);
  };
  const Finished whole = to("whole", {});
  CAPTURE(whole.err);
  REQUIRE(whole.code == 0);
  CHECK(contains(whole.err, "recipe mine.recipe (file)"));
  REQUIRE(to("part", {"--stop-after", "3"}).code == 0);
  fs::remove(file);
  REQUIRE(w.finish({"train", "--resume", "--out", w.run("part").string()}).code == 0);
  const Finished again = w.finish({"train", "--recipe", (w.run("whole") / "config.json").string(),
                                   "--data", w.data.string(), "--threads", "1", "--device", "cpu",
                                   "--out", w.run("again").string()});
  CAPTURE(again.err);
  REQUIRE(again.code == 0);
  for (const char* name : {"part", "again"}) {
    CHECK(same_tensors(w.run("whole") / "last.safetensors", w.run(name) / "last.safetensors"));
  }
}

TEST_CASE("a run of two phases, and one from other weights, resume with the folder alone") {
  if (!program_or_skip()) return;
  const Workshop w;
  const Words phases = {"--set", "pretrain_steps=5", "--set", "pretrain_warmup=2"};
  REQUIRE(w.finish(w.train("whole", 6, phases)).code == 0);
  Words part = phases;
  part.insert(part.end(), {"--stop-after", "3"});
  REQUIRE(w.finish(w.train("part", 6, part)).code == 0);
  const std::string folder = w.run("part").string();
  for (const char* stop : {"8", "11"}) {
    const Finished rest = w.finish({"train", "--resume", "--out", folder, "--stop-after", stop});
    CAPTURE(rest.err);
    CHECK(rest.code == 0);
    CHECK_FALSE(contains(rest.err, "nothing to resume"));
  }
  CHECK(same_tensors(w.run("whole") / "last.safetensors", w.run("part") / "last.safetensors"));

  const std::string first = folder + "/pretraining";
  CHECK(w.finish({"train", "--resume", "--out", first}).code == 2);  // that is no training
  const Finished again = w.finish({"pretrain", "--resume", "--out", first});
  CHECK(again.code == 0);
  CHECK(contains(again.err, "finished before"));

  REQUIRE(w.finish(w.train("second", 6, {"--init", first, "--stop-after", "2"})).code == 0);
  const Finished second = w.finish({"train", "--resume", "--out", w.run("second").string()});
  CHECK_MESSAGE(second.code == 0, second.err);
  CHECK(same_tensors(w.run("whole") / "last.safetensors", w.run("second") / "last.safetensors"));
}

TEST_CASE("--resume takes a folder without a run for a slip where no task is said") {
  if (!program_or_skip()) return;
  const Workshop w;
  for (const char* command : {"train", "pretrain"}) {
    const Finished f = w.finish({command, "--resume", "--out", w.run("typo").string()});
    CAPTURE(f.err);
    CHECK(f.code == 2);
    CHECK(contains(f.err, "no run to continue in " + w.run("typo").string()));
    CHECK_FALSE(fs::exists(w.run("typo")));
  }
}

TEST_CASE("a resumed run generates its own data where they are missing, and never others") {
  if (!program_or_skip()) return;
  const Workshop w;
  data::synthetic::small_listops(w.folder.path() / "other", 140, 1, 9);
  Words train = w.train("run", 8, {"--stop-after", "3"});
  *(std::find(train.begin(), train.end(), "--data") + 1) = (w.folder.path() / "other").string();
  REQUIRE(w.finish(train).code == 0);
  fs::remove_all(w.folder.path() / "other");
  const Words resume = {"train", "--resume", "--out", w.run("run").string(), "--stop-after", "5"};
  const Finished again = w.finish(resume);
  CHECK_MESSAGE(again.code == 0, again.err);
  CHECK(contains(again.err, "generating it, once"));

  fs::remove_all(w.folder.path() / "other");
  data::Json config = data::parse_json(read_file(w.run("run") / "config.json"));
  const auto refused = [&](const char* key, const data::Json& value, const char* expected) {
    data::Json changed = config;
    changed["data_provenance"][key] = value;
    w.folder.write("run/config.json", data::json_text(changed));
    const Finished f = w.finish(resume);
    CAPTURE(f.err);
    CHECK(f.code == 3);
    CHECK(contains(f.err, "other/listops: the run's data are not there"));
    CHECK(contains(f.err, expected));
    CHECK(contains(f.err, "--data FOLDER says where they are"));
    CHECK_FALSE(fs::exists(w.folder.path() / "other"));
  };
  refused("generator", "listops 0", "they were made by 'listops 0', not by 'official ");
  config["data_provenance"].erase("generator");
  refused("how", "read", "they were read from files");
}

TEST_CASE("--resume says where there is nothing, and refuses where a checkpoint is lost") {
  if (!program_or_skip()) return;
  const Workshop w;
  const Finished fresh = w.finish(w.train("run", 12, {"--resume", "--stop-after", "2"}));
  CHECK(fresh.code == 0);
  CHECK(contains(fresh.err, "nothing to resume, starting at step 1"));

  const fs::path last = w.run("run") / "last.safetensors";
  const std::string metrics = read_file(w.run("run") / "metrics.jsonl");
  REQUIRE_FALSE(metrics.empty());
  fs::rename(last, w.run("kept"));
  const Finished lost = w.finish(w.train("run", 12, {"--resume"}));
  CAPTURE(lost.err);
  CHECK(lost.code == 3);
  CHECK(contains(lost.err, "last.safetensors is missing"));
  CHECK(read_file(w.run("run") / "metrics.jsonl") == metrics);
  fs::rename(w.run("kept"), last);
  const Finished found = w.finish(w.train("run", 12, {"--resume"}));
  CHECK_MESSAGE(found.code == 0, found.err);
}

TEST_CASE("a run that is killed before its first checkpoint is due resumes as well") {
  if (!program_or_skip()) return;
  const Workshop w;
  const auto train = [&](const Words& more) {
    Words arguments = w.train("run", 40, more);
    for (std::string& word : arguments) {
      if (word.starts_with("checkpoint_every=")) word = "checkpoint_every=1000";
      if (word.starts_with("eval_every=")) word = "eval_every=1000";
    }
    return arguments;
  };
  Program program(w.folder.path(), train({}));
  const fs::path metrics = w.run("run") / "metrics.jsonl";
  while (program.running() && (!fs::exists(metrics) || fs::file_size(metrics) == 0)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  program.kill(SIGKILL);
  REQUIRE(program.wait().code == 128 + SIGKILL);
  const Finished rest = w.finish(train({"--resume"}));
  CAPTURE(rest.err);
  CHECK(rest.code == 0);
  CHECK(contains(rest.err, "at step 0"));
}

TEST_CASE("the checkpoints are checked before the remaining steps, not after them") {
  if (!program_or_skip()) return;
  const Workshop w;
  REQUIRE(w.finish(w.train("run", 12, {"--stop-after", "7"})).code == 0);
  const fs::path best = w.run("run") / "best.safetensors";
  const std::string good = read_file(best);
  const auto refused = [&](const char* part) {
    const Finished f = w.finish(w.train("run", 12, {"--resume"}));
    CAPTURE(f.err);
    CHECK(f.code == 3);
    CHECK(contains(f.err, "best.safetensors"));
    CHECK(contains(f.err, part));
    CHECK_FALSE(contains(f.err, "step 8/12"));
  };
  std::ofstream(best, std::ios::binary) << good.substr(0, good.size() / 2);
  refused("not a readable safetensors file");
  std::ofstream(best, std::ios::binary) << good;
  train::SafetensorsFile less = train::read_safetensors(best);
  less.tensors.erase(less.tensors.begin());
  train::write_safetensors(best, less.tensors, less.metadata);
  refused("no tensor ");
  fs::remove(best);
  refused("missing");
  REQUIRE(w.finish(w.train("other", 12, {"--seed", "5", "--stop-after", "7"})).code == 0);
  fs::copy(w.run("other") / "best.safetensors", best);
  refused("seed: 5 there, 42 here");
  std::ofstream(best, std::ios::binary) << good;

  const fs::path last = w.run("run") / "last.safetensors";
  const std::string own = read_file(last);
  fs::copy(w.run("other") / "last.safetensors", last, fs::copy_options::overwrite_existing);
  const Finished other = w.finish(w.train("run", 12, {"--resume"}));
  CAPTURE(other.err);
  CHECK(other.code == 3);
  CHECK(
      contains(other.err, last.string() + ": a checkpoint of another run: seed: 5 there, 42 here"));
  std::ofstream(last, std::ios::binary) << own;
  CHECK(w.finish(w.train("run", 12, {"--resume"})).code == 0);
}

TEST_CASE(
    "best weights may be later than the last checkpoint, of a kill between both, not earlier") {
  if (!program_or_skip()) return;
  const Workshop w;
  const auto step_of = [](const fs::path& file, const char* which) {
    const auto state = train::read_safetensors(file).metadata.at("skytape.state");
    return data::parse_json(state).at(which).get<int>();
  };
  // Of the evaluations after 5 and 10 steps, the second is the first that counts: the best so far.
  const Words sets = {"--set", "select_after=0.6"};
  const auto train = [&](const std::string& name, Words more) {
    more.insert(more.begin(), sets.begin(), sets.end());
    return w.finish(w.train(name, 14, more));
  };
  REQUIRE(train("whole", {}).code == 0);
  REQUIRE(train("run", {"--stop-after", "7"}).code == 0);
  const fs::path best = w.run("run") / "best.safetensors", last = w.run("run") / "last.safetensors";
  const std::string best_of_5 = read_file(best), last_of_7 = read_file(last);
  REQUIRE(train("run", {"--resume", "--stop-after", "11"}).code == 0);
  REQUIRE(step_of(best, "step") == 10);
  REQUIRE(step_of(last, "best_step") == 10);
  const std::string best_of_10 = read_file(best);
  std::ofstream(best, std::ios::binary) << best_of_5;
  const Finished refused = train("run", {"--resume"});
  CHECK(refused.code == 3);
  CHECK(contains(refused.err, "not the best of this run: of step 5, expected 10"));

  std::ofstream(best, std::ios::binary) << best_of_10;
  std::ofstream(last, std::ios::binary) << last_of_7;
  const Finished rest = train("run", {"--resume"});
  CAPTURE(rest.err);
  CHECK(rest.code == 0);
  CHECK(same_tensors(w.run("whole") / "last.safetensors", last));
  CHECK(same_tensors(w.run("whole") / "best.safetensors", best));
  CHECK_FALSE(contains(rest.err, "was the best"));
}

TEST_CASE("best weights of a later step that is not the best again are tested with a warning") {
  if (!program_or_skip()) return;
  const Workshop w;
  const auto train = [&](const std::string& name, Words more) {
    more.insert(more.begin(), {"--set", "lr=1e-12"});  // the first evaluation stays the best
    return w.finish(w.train(name, 14, more));
  };
  REQUIRE(train("whole", {}).code == 0);
  REQUIRE(train("run", {"--stop-after", "7"}).code == 0);
  const fs::path best = w.run("run") / "best.safetensors";
  fs::copy(w.run("whole") / "last.safetensors", best, fs::copy_options::overwrite_existing);
  const Finished rest = train("run", {"--resume"});
  CAPTURE(rest.err);
  CHECK(rest.code == 0);
  CHECK(contains(rest.err, "best.safetensors has the weights of step 14, but step 5 was the best"));
  const data::Json result = data::parse_json(read_file(w.run("run") / "result.json"));
  CHECK(result.at("selected_step") == 14);
}
