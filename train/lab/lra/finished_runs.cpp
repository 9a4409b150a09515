#include "train/lab/lra/finished_runs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "data/files/json.hpp"
#include "data/files/source.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/suggest.hpp"
#include "train/config/identity.hpp"
#include "train/config/keys.hpp"
#include "train/config/run_config.hpp"
#include "train/config/settings.hpp"
#include "train/encoders/encoder.hpp"
#include "train/process/progress.hpp"
#include "train/run/result.hpp"
#include "train/run/run_folder.hpp"

namespace skytape::train {
namespace {

namespace fs = std::filesystem;
using data::Json;

FinishedRun read_run(const fs::path& folder) {
  const Json config = read_config(folder);
  const Json result = read_result(result_file(folder));
  FinishedRun run;
  run.folder = name_of_folder(folder);
  run.task = result.at("task").get<std::string>();
  run.attention = result.at("attention").get<std::string>();
  run.seed = result.at("seed").get<std::uint64_t>();
  run.dev = result.at("dev_accuracy").get<double>();
  run.test = result.at("test_accuracy").get<double>();
  run.test_examples = result.value("test_examples", std::int64_t{0});
  run.train_seconds = result.at("train_seconds").get<double>();
  run.step_seconds = run.train_seconds / std::max(1.0, result.at("steps").get<double>());
  run.peak_bytes = result.at("peak_bytes").get<std::int64_t>();
  run.times = time_to_accuracy_from(data::member(result, "time_to_accuracy"));
  run.trivial = trivial_share(run.task, result);
  Json claimed = config;
  for (const char* key : {"attention", "seed", "settings", "data"}) {
    claimed[key] = data::member(result, key);
  }
  if (const std::string found = differences(config, claimed); !found.empty()) {
    throw DataError(
        fmt::format("config.json ('there') and result.json ('here') are of two runs: {}", found));
  }
  run.config = config;
  return run;
}

/// "4 min, step 250, 8.2 M tokens"; nothing where the run never came so far.
Cell cell_of(const std::optional<Moment>& moment) {
  if (!moment) return "–";
  return fmt::format("{}, step {}, {:.1f} M tokens", duration_text(moment->seconds),
                     grouped(moment->step), 1e-6 * static_cast<double>(moment->tokens));
}

/// "45.3 ± 2.2": percent, with the normal approximation's 95 % interval; nothing without examples.
Cell with_interval(double share, std::int64_t examples) {
  if (examples == 0) return "–";
  const double error = std::sqrt(share * (1 - share) / static_cast<double>(examples));
  return fmt::format("{:.1f} ± {:.1f}", 100 * share, 196 * error);
}

/// Returns how long the weights were pre-trained that the run started from.
Cell pretraining_time(const FinishedRun& run) {
  const data::Json& facts = data::member(run.config, "pretraining");
  return facts.is_null() ? "–" : duration_text(facts.value("train_seconds", 0.0));
}

}  // namespace

bool holds_run(const fs::path& folder) {
  std::error_code error;
  constexpr const char* kFiles[] = {"config.json", "result.json", "last.safetensors",
                                    "metrics.jsonl"};
  return std::any_of(std::begin(kFiles), std::end(kFiles),
                     [&](const char* file) { return fs::exists(folder / file, error); });
}

std::string name_of_folder(const fs::path& folder) {
  std::error_code error;
  return fs::weakly_canonical(folder, error).filename().string();
}

std::vector<fs::path> run_folders(const fs::path& root) {
  if (holds_run(root)) return {root};
  std::vector<fs::path> folders;
  if (!fs::is_directory(root)) return folders;
  for (const fs::directory_entry& entry : data::entries_of(root)) {
    if (entry.is_directory()) folders.push_back(entry.path());
  }
  return folders;
}

FoundRuns find_runs(const fs::path& root) {
  FoundRuns found;
  for (const fs::path& path : run_folders(root)) {
    if (!holds_run(path)) continue;
    const std::string name = name_of_folder(path);
    try {
      if (holds_encoder(path)) {
        found.skipped.push_back(name + kIsEncoder);
      } else if (!fs::exists(result_file(path))) {
        found.skipped.push_back(name + ": not finished");
      } else if (is_pretraining(read_config(path))) {
        found.skipped.push_back(name + kAnswersNoTask);
      } else {
        found.runs.push_back(read_run(path));
      }
    } catch (const std::exception& broken) {  // also a figure of the wrong kind
      found.skipped.push_back(fmt::format("{}: broken: {}", name, data::problem_of(broken)));
    }
  }
  std::vector<Json> configs;
  for (const FinishedRun& run : found.runs) configs.push_back(run.config);
  const std::vector<std::string> names = distinct_names(configs);
  for (std::size_t i = 0; i < names.size(); ++i) found.runs[i].settings = names[i];
  return found;
}

std::string added_to_papers(const Json& config) {
  const std::vector<Setting> settings = saved_settings(config);
  std::vector<std::string> added;
  for (const KeyInfo& key : recipe_keys()) {
    if (key.adds.empty()) continue;
    const std::string value = value_of(settings, key);
    if (value != key.standard) added.push_back(fmt::format(fmt::runtime(key.adds), value));
  }
  // A run of two phases says their steps above; that of --init has what its weights say.
  const bool before = !data::member(config, "pretraining").is_null();
  if (before && value_of(settings, *find_key("pretrain_steps")) == "0") {
    added.emplace_back("pre-training");
  }
  return listed(added);
}

Table time_table(const std::vector<FinishedRun>& runs) {
  Table table{"time_to_accuracy",
              "Training time until a dev evaluation was above the trivial baseline, above the "
              "papers' best result, and at the run's best; the tested weights with a 95 % "
              "interval. Pre-training came before and is not in these times.",
              {{"task"},
               {"attention"},
               {"settings"},
               {"added"},
               {"seed", "{:.0f}"},
               {"above trivial"},
               {"above papers"},
               {"best"},
               {"best dev, %", "{:.2f}"},
               {"test, %"},
               {"pre-training"}},
              {},
              {}};
  for (const FinishedRun& run : runs) {
    if (!run.times.best) continue;  // by a version that did not record times
    const std::string added = added_to_papers(run.config);
    table.add({run.task, run.attention, run.settings, added.empty() ? "–" : added, run.seed,
               cell_of(run.times.trivial), cell_of(run.times.paper), cell_of(run.times.best),
               100 * run.times.best->accuracy, with_interval(run.test, run.test_examples),
               pretraining_time(run)});
  }
  return table;
}

}  // namespace skytape::train
