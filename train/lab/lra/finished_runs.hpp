// The finished runs of a folder, what was set in them, what their models have that the papers' have
// not, and when they reached what.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/files/json.hpp"
#include "train/formats/table.hpp"
#include "train/run/time_to_accuracy.hpp"

namespace skytape::train {

/// A finished run, as its folder tells it.
struct FinishedRun {
  std::string folder;  // its name below the folder of runs
  std::string task;    // what the results are called
  std::string attention;
  std::string settings;  // its name among the runs of its folder: distinct_names()
  std::uint64_t seed = 0;
  double dev = 0, test = 0;        // accuracy, shares
  std::int64_t test_examples = 0;  // 0: of an older program
  double trivial = -1;             // trivial_share()
  double train_seconds = 0;
  double step_seconds = 0;      // of training, over its steps
  std::int64_t peak_bytes = 0;  // of the allocator
  TimeToAccuracy times;         // empty in results of older programs
  data::Json config;            // config.json
};

/// Why a pre-training, and an encoder that `import` copied, are not among them.
inline constexpr const char* kAnswersNoTask = ": a pre-training, which answers no task";
inline constexpr const char* kIsEncoder = ": an encoder, which is no run";

struct FoundRuns {
  std::vector<FinishedRun> runs;
  std::vector<std::string> skipped;  // "folder: why": not finished, or broken
};

/// Reads the run_folders() of `root`; those that hold no file of a run are passed over.
[[nodiscard]] FoundRuns find_runs(const std::filesystem::path& root);

/// Returns whether the folder holds a file of a run.
[[nodiscard]] bool holds_run(const std::filesystem::path& folder);
/// The folder itself if it holds a file of a run, else the folders directly below it, by name.
[[nodiscard]] std::vector<std::filesystem::path> run_folders(const std::filesystem::path& root);
/// Returns a folder's name, also where the path to it ends in "." or "/".
[[nodiscard]] std::string name_of_folder(const std::filesystem::path& folder);

/// Returns a configuration's additions to the papers' model, apart from the attention method:
/// "n-grams of up to 5 tokens, cosine of the pair"; empty: none. Takes a config.json or a
/// result.json.
[[nodiscard]] std::string added_to_papers(const data::Json& config);

/// A row per run that noted it: seconds, steps and real tokens of training until a dev evaluation
/// was above the trivial baseline, above the papers' best cell, and at its own best, and what its
/// tested weights reach. Empty where none did.
[[nodiscard]] Table time_table(const std::vector<FinishedRun>& runs);

}  // namespace skytape::train
