#include "train/run/result.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "data/files/json.hpp"
#include "tensor/core/error.hpp"
#include "train/config/identity.hpp"
#include "train/config/run_config.hpp"
#include "train/config/settings.hpp"
#include "train/formats/json_file.hpp"
#include "train/process/progress.hpp"
#include "train/process/version.hpp"
#include "train/run/init.hpp"
#include "train/run/run_folder.hpp"
#include "train/step/class_scores.hpp"

namespace skytape::train {
namespace {

/// Returns the metadata of the training, for either phase.
data::Json facts_of(const RunConfig& config, const data::Json& full_config, const Outcome& o) {
  const double seconds = std::max(o.state.train_seconds, 1e-9);
  const Setting* const precision = find_setting(config.settings, "precision");
  return {{"task", full_config.at("data").at("name")},  // substitute data are called so
          {"attention", config.method->name},
          {"recipe", config.recipe},
          {"seed", config.seed},
          {"steps", o.state.step},
          {"planned_steps", config.steps()},
          {"train_seconds", o.state.train_seconds},
          {"loader_wait_seconds", o.state.waited_seconds},
          {"steps_per_second", static_cast<double>(o.state.step) / seconds},
          {"tokens_per_second", static_cast<double>(o.state.tokens) / seconds},
          {"tokens", o.state.tokens},
          {"dev_examples", o.dev.examples},
          {"peak_bytes", o.state.peak_bytes},
          {"peak_rss_bytes", peak_resident_bytes()},
          {"parameters", o.parameters},
          {"ranks", o.ranks},
          {"exchange_seconds", o.exchange_seconds},
          {"device", name(config.device)},
          {"cuda_graphs",
           {{"captured", o.steps.captured},
            {"replayed", o.steps.replayed},
            {"direct", o.steps.direct}}},
          {"precision", precision == nullptr ? "fp32" : precision->value},
          {"revision", revision()},
          {"data", full_config.at("data")},
          {"settings", full_config.at("settings")},
          {"machine", full_config.at("machine")}};
}

std::string in_percent(const data::Json& share) {
  return fmt::format("{:.2f} %", 100 * share.get<double>());
}

/// The kind that a figure must have.
struct Kind {
  const char* name;
  bool (*fits)(const data::Json&);
};
constexpr Kind kName = {"name", [](const data::Json& j) { return j.is_string(); }};
constexpr Kind kNumber = {"number", [](const data::Json& j) { return j.is_number(); }};
constexpr Kind kObject = {"object", [](const data::Json& j) { return j.is_object(); }};
constexpr Kind kShare = {"share in 0..1", [](const data::Json& j) {
                           return j.is_number() && j.get<double>() >= 0 && j.get<double>() <= 1;
                         }};

/// The kinds of further figures, where they are there. Users edit the file by hand.
constexpr JsonPart kParts[] = {
    {"seed", JsonKind::natural},
    {"steps", JsonKind::natural},
    {"selected_step", JsonKind::natural},
    {"planned_steps", JsonKind::natural},
    {"dev_examples", JsonKind::natural},
    {"test_examples", JsonKind::natural},
    {"parameters", JsonKind::natural},
    {"train_seconds", JsonKind::number},
    {"steps_per_second", JsonKind::number},
    {"tokens_per_second", JsonKind::number},
    {"peak_bytes", JsonKind::number},
    {"dev_accuracy", JsonKind::share},
    {"test_accuracy", JsonKind::share},
    {"masked_accuracy", JsonKind::share},
    {"masked_loss", JsonKind::number},
    {"perplexity", JsonKind::number},
    {"trivial_floor", JsonKind::number},
    {"time_to_accuracy", JsonKind::object},
    {"dev_scores", JsonKind::object},
    {"dev_scores.majority_share", JsonKind::share},
    {"test_scores", JsonKind::object},
    {"test_scores.majority_share", JsonKind::share},
};

constexpr JsonPart kMoment[] = {{"step", JsonKind::natural},
                                {"seconds", JsonKind::number},
                                {"tokens", JsonKind::natural},
                                {"accuracy", JsonKind::share},
                                {"above", JsonKind::share}};

void require(const Kind& kind, std::initializer_list<const char*> keys, const data::Json& result,
             const std::filesystem::path& file) {
  for (const char* key : keys) {
    if (kind.fits(data::member(result, key))) continue;
    throw DataError(fmt::format("{}: no {} '{}' in it", file.string(), kind.name, key));
  }
}

/// " of the first 64 of 2,000 examples", where final_examples says so.
std::string part_text(const data::Json& r, const char* split) {
  const auto seen = r.value(fmt::format("{}_examples", split), std::int64_t{0});
  const data::Json& whole = data::member(r.at("data"), split);
  const auto all = whole.is_object() ? whole.value("examples", seen) : seen;
  if (seen == 0 || seen >= all) return {};
  return fmt::format(" of the first {} of {} examples", grouped(seen), grouped(all));
}

/// "dev accuracy 40.20 %, test accuracy 39.80 % (weights of step 500 of 600)"; of a pre-training
/// what it found of dev's hidden tokens.
std::string scores_of(const data::Json& r) {
  if (!is_pretraining(r)) {
    const auto of = [&](const char* split) {
      const data::Json& scores = data::member(r, fmt::format("{}_scores", split));
      const std::string trivial =
          scores.is_object() ? fmt::format(" (the largest class alone {})",
                                           in_percent(data::member(scores, "majority_share")))
                             : "";
      return fmt::format("{} accuracy {}{}{}", split,
                         in_percent(data::member(r, fmt::format("{}_accuracy", split))),
                         part_text(r, split), trivial);
    };
    return fmt::format("{}, {} (weights of step {} of {})", of("dev"), of("test"),
                       r.at("selected_step").get<std::int64_t>(),
                       r.at("steps").get<std::int64_t>());
  }
  std::string text =
      fmt::format("masked accuracy {} on dev", in_percent(data::member(r, "masked_accuracy")));
  if (r.contains("perplexity")) {
    text += fmt::format(", perplexity {:.3f}", r.at("perplexity").get<double>());
  }
  return text + fmt::format(" ({} steps)", grouped(r.at("steps").get<std::int64_t>()));
}

}  // namespace

data::Json result_json(const RunConfig& config, const data::Json& full_config, const Outcome& o) {
  data::Json result = facts_of(config, full_config, o);
  result["selected_step"] = o.selected_step;
  result["dev_accuracy"] = o.dev.accuracy;
  result["dev_loss"] = o.dev.loss;
  result["test_accuracy"] = o.test.accuracy;
  result["test_loss"] = o.test.loss;
  result["test_examples"] = o.test.examples;
  result["time_to_accuracy"] = to_json(o.state.reached);
  result["trivial_floor"] = baseline_of(config, o.test).accuracy;
  if (data::is_custom_data(*config.task)) {
    const auto classes = class_scores(o.test.confusion).size();
    const std::vector<std::string> names =
        class_names(*config.task, data::member(full_config, "data_provenance"), classes);
    result["dev_scores"] = scores_json(o.dev.confusion, names);
    result["test_scores"] = scores_json(o.test.confusion, names);
  }
  if (!o.class_weights.empty()) result["class_weights"] = o.class_weights;
  if (full_config.contains("pretraining"))
    result["pretraining"] = data::member(full_config, "pretraining");
  return result;
}

data::Json pretraining_result_json(const RunConfig& config, const data::Json& full_config,
                                   const Outcome& o) {
  data::Json result = facts_of(config, full_config, o);
  result["phase"] = "pretraining";
  result["masked_loss"] = o.dev.loss;
  result["masked_accuracy"] = o.dev.accuracy;
  return result;
}

void check_result(const data::Json& result, const std::string& file) {
  check_parts(result, kParts, file);
  const data::Json& times = data::member(result, "time_to_accuracy");
  for (const char* which : {"trivial", "paper", "best"}) {
    const JsonPart moment[] = {{which, JsonKind::maybe_object}};
    check_parts(times, moment, file + ": time_to_accuracy");
    check_parts(data::member(times, which), kMoment,
                fmt::format("{}: time_to_accuracy.{}", file, which));
  }
  check_parts(result, file);  // what it repeats of config.json
}

data::Json read_result(const std::filesystem::path& file) {
  data::Json result = read_json(file);
  require(kName, {"task", "attention", "recipe"}, result, file);
  require(kNumber,
          {"seed", "steps", "selected_step", "train_seconds", "steps_per_second",
           "tokens_per_second", "peak_bytes"},
          result, file);
  require(kShare, {"dev_accuracy", "test_accuracy"}, result, file);
  require(kObject, {"settings", "data"}, result, file);
  check_result(result, file.string());
  return result;
}

data::Json read_pretraining_result(const std::filesystem::path& file) {
  data::Json result = read_json(file);
  require(kName, {"task", "attention"}, result, file);
  require(kNumber,
          {"steps", "train_seconds", "steps_per_second", "tokens_per_second", "peak_bytes",
           "masked_loss"},
          result, file);
  require(kShare, {"masked_accuracy"}, result, file);
  check_result(result, file.string());
  return result;
}

std::optional<data::Json> finished_result(const std::filesystem::path& folder,
                                          const data::Json& full_config) {
  const auto config = config_file(folder), result = result_file(folder);
  if (!std::filesystem::exists(config) || !std::filesystem::exists(result)) return {};
  try {
    if (!differences(read_config(folder), full_config).empty()) return {};
    if (is_pretraining(full_config)) return read_pretraining_result(result);
    return read_result(result);
  } catch (const DataError&) {
    return {};
  }
}

void print_result(const data::Json& r, const std::filesystem::path& file) {
  const data::Json& before = data::member(r, "pretraining");
  fmt::print("{} {}: {}\n{} {} at {:.2f} steps/s, {} tokens/s; peak {:.1f} MB{}; {}\n",
             r.at("task").get<std::string>(), r.at("attention").get<std::string>(), scores_of(r),
             is_pretraining(r) ? "pre-trained" : "trained",
             duration_text(r.at("train_seconds").get<double>()),
             r.at("steps_per_second").get<double>(),
             grouped(static_cast<std::int64_t>(r.at("tokens_per_second").get<double>())),
             1e-6 * r.at("peak_bytes").get<double>(),
             before.is_null() ? "" : "; before it, " + pretraining_text(before), file.string());
}

double trivial_share(const std::string& task, const data::Json& result) {
  const double known = trivial_baseline(task).accuracy;
  const data::Json& found = data::member(result, "trivial_floor");
  return known >= 0 || !found.is_number() ? known : found.get<double>();
}

TrivialBaseline baseline_of(const RunConfig& config, const Evaluation& examples) {
  if (!data::is_custom_data(*config.task)) return trivial_baseline(config.task->name);
  return {majority_share(examples.confusion), "the largest class alone"};
}

std::string baseline_warning(const RunConfig& config, const Evaluation& test) {
  const TrivialBaseline baseline = baseline_of(config, test);
  if (baseline.accuracy < 0 || test.accuracy > baseline.accuracy) return {};
  return fmt::format(
      "warning: test accuracy {:.2f} % is not above {:.1f} %, which {} reaches: train longer, or "
      "something is wrong",
      100 * test.accuracy, 100 * baseline.accuracy, baseline.what);
}

}  // namespace skytape::train
