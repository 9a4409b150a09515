// A shop of custom data: rows of two classes, a small model trained on them, and what it answers.
#pragma once

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"
#include "tests/train/cli/program.hpp"

namespace skytape::test {

using Lines = std::vector<std::string>;

[[nodiscard]] inline Lines lines_of(const std::string& text) {
  Lines lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// Custom data of two classes that a small model learns at once, and a run on them.
struct Shop {
  data::synthetic::Folder folder;
  std::string run = (folder.path() / "run").string();
  std::string data = (folder.path() / "data").string();

  [[nodiscard]] Finished finish(Lines arguments, const Lines& more = {}) const {
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(folder.path(), arguments);
  }
  /// `skytape data` on a file, or a folder of splits.
  [[nodiscard]] Finished prepare_from(const std::filesystem::path& from,
                                      const Lines& more = {}) const {
    return finish({"data", "--task", "tsv", "--from", from.string(), "--data", data}, more);
  }
  /// prepare_from() of 60 rows whose label is the word that they repeat.
  [[nodiscard]] Finished prepare(const Lines& more = {}) const {
    std::string rows;
    for (int i = 0; i < 60; ++i) {
      rows += i % 2 ? "ham\tgreen green green\n" : "spam\tnasty nasty nasty\n";
    }
    return prepare_from(folder.write("own.tsv", rows), more);
  }
  [[nodiscard]] Finished train(Lines sets = {"ngrams=0"}, const std::string& steps = "60",
                               const Lines& more = {"--attention", "softmax"}) const {
    sets.insert(sets.begin(), {"--set", "max_length=32", "width=8", "ff_width=8", "heads=2",
                               "lr=0.03", "dropout=0", "eval_every=20"});
    sets.insert(sets.end(), more.begin(), more.end());
    return finish({"train", "--task", "tsv", "--data", data, "--out", run, "--force", "--steps",
                   steps, "--batch", "8", "--device", "cpu", "--threads", "1"},
                  sets);
  }
  /// A model of the 60 rows.
  Finished trained() const {
    REQUIRE(prepare().code == 0);
    const Finished done = train();
    REQUIRE_MESSAGE(done.code == 0, done.err);
    return done;
  }
  [[nodiscard]] Finished predict(const std::filesystem::path& from, const Lines& more = {}) const {
    return finish({"predict", "--run", run, "--from", from.string(), "--device", "cpu"}, more);
  }
  /// predict() of these rows, from a file.
  [[nodiscard]] Finished predict_rows(const std::string& rows, const Lines& more = {}) const {
    return predict(folder.write("rows.tsv", rows), more);
  }
  /// Predictions of what a command of the shell writes.
  [[nodiscard]] Finished predict_piped(const std::string& source,
                                       const std::string& more = "") const {
    return run_program(
        folder.path(), {"predict", "--run", run, "--from", "-", "--device", "cpu"},
        {.folder = folder.path(), .launcher = {"sh", "-c", source + " | \"$0\" \"$@\" " + more}});
  }
};

}  // namespace skytape::test
