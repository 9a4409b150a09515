#include "train/run/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "data/files/json.hpp"
#include "tensor/core/error.hpp"
#include "train/config/resume.hpp"
#include "train/config/settings.hpp"
#include "train/process/progress.hpp"
#include "train/process/threads.hpp"
#include "train/ranks/ranks.hpp"
#include "train/run/budget.hpp"
#include "train/run/init.hpp"
#include "train/run/run_folder.hpp"

namespace skytape::train {
namespace {

namespace fs = std::filesystem;
using data::Json;

const fs::path kRuns = "runs";

fs::path folder_of(const Request& r) {
  if (!r.out.empty()) return r.out;
  if (r.seeds > 1) return kRuns;  // the folder of theirs
  const Choices& c = r.choices;
  if (!r.pretraining) return kRuns / run_name(resolve(c));
  return kRuns / fmt::format("{}-{}-{}-pretrain-s{}", c.task, c.attention,
                             in_folder_names(find_recipe(c.recipe).name), c.seed);
}

/// Returns whether the configuration is that of an earlier process.
bool goes_on(const Request& r) {
  return r.options.resumes() && fs::exists(config_file(r.options.out));
}

/// Returns what find_config() finds of the run that --resume continues. UsageError if it is a
/// pre-training and `train` was typed, or the reverse.
Json saved_run(const Request& r) {
  Json found = find_config(r.options.out);
  if (found.is_null() || is_pretraining(found.at("config")) == r.pretraining) return found;
  throw UsageError(fmt::format("{}: a {}, which {} --resume continues", r.options.out.string(),
                               r.pretraining ? "training run" : "pre-training",
                               r.pretraining ? "train" : "pretrain"));
}

/// Returns the user's choices, completed by the settings that the resumed run was started with.
RunConfig configure(const Request& r, const Json& saved) {
  if (saved.is_null()) {
    const bool names_task =
        r.choices.given.contains("--task") || !find_recipe(r.choices.recipe).task.empty();
    if (!r.options.resumes() || names_task) return resolve(r.choices);
    if (r.seeds > 1) {
      throw UsageError(
          "train: --resume with --seeds continues no single run, whose task it could take; "
          "expected --task");
    }
    throw UsageError(
        fmt::format("{}: no run to continue in {}; expected --out with the folder of "
                    "one, or --task, too, where a new one is to start",
                    r.pretraining ? "pretrain" : "train", r.options.out.string()));
  }
  // Other numbers of threads may give other last bits.
  const Json& config = data::member(saved, "config");
  const Json& machine = data::member(config, "machine");
  const int threads = machine.is_null() ? 0 : machine.value("threads", 0);
  if (!r.choices.given.contains("--threads") && threads > 0 &&
      static_cast<unsigned>(threads) <= std::thread::hardware_concurrency()) {
    set_threads(threads);
  }
  return resumed(r.choices, config, saved.at("file").get<std::string>());
}

/// Adds what the run of --init had of an encoder's keys where it is not what this run would have,
/// and the user says nothing. The method may have another value in its place, as in a recipe. How
/// much is read of an example is the encoder's where each position has a trained vector, else the
/// task's.
void add_encoder_settings(const Json& settings, Choices& choices) {
  if (!settings.is_object()) return;
  const std::vector<Setting> had = saved_settings({{"settings", settings}});
  const RunConfig before = resolve(choices);
  const bool any_length = std::any_of(had.begin(), had.end(), [](const Setting& s) {
    return s.key == "positions" && s.value != "learned";
  });
  for (const Setting& there : had) {
    const KeyInfo* const key = find_key(there.key);
    if (key == nullptr || key->category != Category::encoder) continue;
    if (any_length && there.key == "max_length") continue;
    if (!idle_because(had, *key).empty()) continue;
    const bool chosen = find_setting(choices.settings, there.key) != nullptr;
    const std::string value = for_method(there, choices.attention).value;
    if (chosen || value == value_of(before.settings, *key)) continue;
    choices.settings.push_back({there.key, value, "--init"});
  }
}

/// Adds the steps that --budget leaves time for. A resumed run, which `saved` is of, has its own; of
/// several seeds the first one's are those of all.
void fit_budget(Request& r, const Json& saved) {
  const double seconds = parse_duration(r.budget);
  refuse_steps(r.choices);
  if (!saved.is_null()) {
    const Json& steps = data::member(data::member(saved, "config"), "settings", "steps", "value");
    const std::string own = steps.is_string() ? steps.get<std::string>() : "own";
    Progress().line(
        fmt::format("--budget {} is left out: the run that --resume continues keeps its {} steps",
                    r.budget, own));
    if (r.seeds > 1 && steps.is_string()) {
      r.choices.settings.push_back({"steps", own, "--budget"});
    }
    return;
  }
  const bool refuses = r.runs && r.seeds == 1 && r.options.existing == ExistingRun::refuse;
  if (refuses) refuse_existing(r.options.out);  // rather than behind the measurement
  const BudgetedSteps found = steps_within(seconds, r.choices);
  r.choices.settings.push_back({"steps", std::to_string(found.steps), "--budget"});
  Progress().line(
      fmt::format("--budget {}: {} steps, which take {} at the rate measured here, "
                  "evaluations not counted",
                  r.budget, grouped(found.steps), duration_text(found.seconds)));
}

void refuse_two_starts(const Request& r, const RunConfig& config) {
  if (config.pretraining.steps > 0) {
    throw UsageError("train: --init starts from weights, pretrain_steps makes them: one of both");
  }
  if (r.seeds > 1) throw UsageError("train: --init starts one run, --seeds several");
}

/// Returns whether the weights of --init were pre-trained on pictures: then their embedding has a
/// row for hidden pixels, which others have none of. Other tasks' embeddings always have one.
bool starts_pretrained(const RunConfig& config, std::int64_t embedding_rows) {
  const std::int64_t needed = data::mask_id(*config.task) + 1;
  return needed > config.task->vocabulary && embedding_rows == needed;
}

/// Returns what the folders of the run to resume and of --init say: {"saved", "first_seed", "init",
/// "embedding_rows"}.
Json read_folders(const Request& r) {
  Json found = {
      {"saved", nullptr}, {"first_seed", nullptr}, {"init", nullptr}, {"embedding_rows", 0}};
  if (!r.options.init.empty()) {
    const fs::path file = checkpoint_in(r.options.init);
    // The config.json of a resumed run has all that its encoder needs.
    if (!goes_on(r)) found["init"] = init_settings(file);
    if (!r.pretraining) found["embedding_rows"] = embedding_rows(file);
  }
  if (r.options.resumes() && r.seeds == 1) found["saved"] = saved_run(r);
  if (r.options.resumes() && r.seeds > 1 && !r.budget.empty()) {
    found["first_seed"] = find_config(r.options.out / run_name(resolve(r.choices)));
  }
  return found;
}

void refuse_late_stop(const Request& r, const RunConfig& config) {
  const std::int64_t steps = config.pretraining.steps + (r.pretraining ? 0 : config.steps());
  if (r.options.stop_after <= steps) return;
  throw UsageError(fmt::format("--stop-after {}: has no effect, as the run has {} steps",
                               r.options.stop_after, steps));
}

RunConfig configured_by(Request& r, const Json& folders) {
  const bool initial = !r.options.init.empty();
  if (initial) add_encoder_settings(folders.at("init"), r.choices);
  if (!r.budget.empty()) fit_budget(r, folders.at(r.seeds > 1 ? "first_seed" : "saved"));
  const RunConfig config = configure(r, folders.at("saved"));
  refuse_late_stop(r, config);
  if (!initial || r.pretraining) return config;
  refuse_two_starts(r, config);
  const auto rows = folders.at("embedding_rows").get<std::int64_t>();
  return starts_pretrained(config, rows) ? with_mask_token(config) : config;
}

}  // namespace

RunConfig plan(Request& r) {
  const Ranks& ranks = *r.options.ranks;
  together(ranks, [&] {
    if (r.pretraining) r.choices = for_pretraining(std::move(r.choices));
    r.options.out = folder_of(r);
  });
  const Json folders =
      data::parse_json(ranks.first([&] { return data::json_text(read_folders(r)); }));
  RunConfig config;
  together(ranks, [&] { config = configured_by(r, folders); });
  return config;
}

}  // namespace skytape::train
