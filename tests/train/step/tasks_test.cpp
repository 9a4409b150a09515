// Every task end to end through the program: official files, preparation, three training steps,
// result.

#include "data/files/json.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/data/tasks/official_files.hpp"
#include "tests/support/doctest.hpp"
#include "tests/train/cli/program.hpp"

using namespace skytape;
using namespace skytape::test;
using namespace skytape::data::synthetic;

namespace {

namespace fs = std::filesystem;

/// A task, the path of its source, and the report that a run on it must give.
struct Case {
  std::string task, attention;
  fs::path from;
  std::string called;  // the name of the results
  int test_examples;
};

/// Runs three steps of `command`, with these arguments, into the folder of that name; returns
/// result.json, and what was said.
std::pair<data::Json, std::string> steps_of(const Folder& folder, const std::string& name,
                                            const std::string& command,
                                            std::vector<std::string> arguments) {
  const std::string out = (folder.path() / name).string();
  arguments.insert(arguments.begin(), command);
  arguments.insert(arguments.end(), {"--out", out});
  const Finished run = run_program(folder.path(), arguments);
  CAPTURE(run.err);
  REQUIRE(run.code == 0);
  return {data::parse_json(read_file(fs::path(out) / "result.json")), run.err};
}

/// Pre-trains and trains three steps of a small model each, the latter by recipe lra as well;
/// returns result.json of the training.
data::Json trained(const Folder& folder, const Case& c) {
  const std::string root = (folder.path() / "datasets").string();
  const Finished data = run_program(
      folder.path(), {"data", "--task", c.task, "--from", c.from.string(), "--data", root});
  CAPTURE(data.err);
  REQUIRE(data.code == 0);
  CHECK(data.out.starts_with(c.task + ": results are called " + c.called));
  std::vector<std::string> arguments = {
      "--task", c.task,    "--attention", c.attention, "--data", root,       "--steps",
      "3",      "--batch", "4",           "--threads", "1",      "--device", "cpu"};
  for (const char* set : {"max_length=64", "width=16", "ff_width=8", "eval_every=2"}) {
    arguments.insert(arguments.end(), {"--set", set});
  }
  const data::Json before = steps_of(folder, "pretrain-" + c.task, "pretrain", arguments).first;
  CHECK(before["phase"] == "pretraining");
  CHECK(before["masked_loss"].get<double>() > 0);
  const bool pixels = c.task == "image" || c.task == "pathfinder";
  CHECK(before.contains("perplexity") == !pixels);

  const auto [result, said] = steps_of(folder, "train-" + c.task, "train", arguments);
  const bool low = result["test_accuracy"].get<double>() <= result["trivial_floor"].get<double>();
  CHECK((said.find("warning: test accuracy") != std::string::npos) == low);

  arguments.insert(arguments.end(), {"--recipe", "lra"});
  const data::Json arena = steps_of(folder, "lra-" + c.task, "train", arguments).first;
  CHECK(arena["steps"] == 3);
  CHECK(arena["test_examples"] == result["test_examples"]);
  return result;
}

}  // namespace

TEST_CASE("every task trains from files of its official format, in folders and archives") {
  if (!program_or_skip()) return;
  const Folder folder;
  const fs::path release = folder.path() / "release";
  write_files(release, listops_files(12));
  write_files(release, pair_files(11));
  write_files(release, pathfinder_files(20));
  write_tar(folder.path() / "aclImdb_v1.tar.gz", review_files(20));
  write_tar(folder.path() / "cifar-10-binary.tar.gz", image_files(4));
  std::string lines;
  for (int i = 0; i < 40; ++i) {
    lines += std::string(i % 2 ? "spam" : "ham") + "\tline " + std::to_string(i) + "\n";
  }
  const Case cases[] = {
      {"listops", "skyformer", release, "listops", 12},
      {"text", "linformer", folder.path() / "aclImdb_v1.tar.gz", "text", 20},
      {"retrieval", "skeinformer", release, "retrieval-substitute", 11},
      {"pathfinder", "performer", release, "pathfinder", 2},
      {"image", "nystrom", folder.path() / "cifar-10-binary.tar.gz", "image", 4},
      {"tsv", "kernelized", folder.write("own.tsv", lines), "tsv", 4},
  };
  for (const Case& c : cases) {
    CAPTURE(c.task);
    const data::Json result = trained(folder, c);
    CHECK(result["task"] == c.called);
    CHECK(result["attention"] == c.attention);
    CHECK(result["steps"] == 3);
    CHECK(result["test_examples"] == c.test_examples);
    CHECK(result["test_loss"].get<double>() > 0);
    CHECK(result["tokens"].get<double>() > 0);
  }
}
