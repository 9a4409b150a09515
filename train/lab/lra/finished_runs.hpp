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
  std::string settings;  // as settings_of() says
  std::uint64_t seed = 0;
  double dev = 0, test = 0;        // accuracy, shares
  std::int64_t test_examples = 0;  // 0: of an older program
  double train_seconds = 0;
  TimeToAccuracy times;  // empty in results of older programs
  data::Json config;     // config.json
};

/// Why a pre-training is not among them.
inline constexpr const char* kAnswersNoTask = ": a pre-training, which answers no task";

struct FoundRuns {
  std::vector<FinishedRun> runs;
  std::vector<std::string> skipped;  // "folder: why": not finished, or broken
};

/// Reads every run folder directly below `folder`, in the order of their names. Folders that hold
/// no file of a run are passed over.
[[nodiscard]] FoundRuns find_runs(const std::filesystem::path& folder);

/// Recipe and what the user set, sorted by key: "skytape", "skytape, lr=1e-3, steps=500".
[[nodiscard]] std::string settings_of(const data::Json& config);

/// What a configuration adds to the papers' model beside the attention method: "n-grams of up to 5
/// tokens, cosine of the pair"; empty: nothing. Of a config.json or a result.json.
[[nodiscard]] std::string added_to_papers(const data::Json& config);

/// A row per run that noted it: seconds, steps and real tokens of training until a dev evaluation was
/// above the trivial baseline, above the papers' best cell, and at its own best, and what its tested
/// weights reach. Empty where none did.
[[nodiscard]] Table time_table(const std::vector<FinishedRun>& runs);

}  // namespace skytape::train
