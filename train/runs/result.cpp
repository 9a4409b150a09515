#include "train/runs/result.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "data/files/json.hpp"
#include "tensor/core/error.hpp"
#include "train/process/progress.hpp"
#include "train/process/version.hpp"
#include "train/runs/run_folder.hpp"

namespace skytape::train {

data::Json result_json(const RunConfig& config, const data::Json& full_config, const Outcome& o) {
  const double seconds = std::max(o.state.train_seconds, 1e-9);
  const auto precision = std::find_if(config.settings.begin(), config.settings.end(),
                                      [](const Setting& s) { return s.key == "precision"; });
  return {{"task", full_config.at("data").at("name")},  // substitute data are called so
          {"attention", config.method->name},
          {"recipe", config.recipe},
          {"seed", config.seed},
          {"steps", o.state.step},
          {"planned_steps", config.steps()},
          {"selected_step", o.selected_step},
          {"dev_accuracy", o.dev.accuracy},
          {"dev_loss", o.dev.loss},
          {"dev_examples", o.dev.examples},
          {"test_accuracy", o.test.accuracy},
          {"test_loss", o.test.loss},
          {"test_examples", o.test.examples},
          {"train_seconds", o.state.train_seconds},
          {"loader_wait_seconds", o.state.waited_seconds},
          {"steps_per_second", static_cast<double>(o.state.step) / seconds},
          {"tokens_per_second", static_cast<double>(o.state.tokens) / seconds},
          {"tokens", o.state.tokens},
          {"time_to_accuracy",
           to_json(o.state.reached, full_config.at("data").at("name").get<std::string>())},
          {"peak_bytes", o.peak_bytes},
          {"peak_rss_bytes", peak_resident_bytes()},
          {"parameters", o.parameters},
          {"ranks", o.ranks},
          {"exchange_seconds", o.exchange_seconds},
          {"device", name(config.device)},
          {"cuda_graphs",
           {{"captured", o.steps.captured},
            {"replayed", o.steps.replayed},
            {"direct", o.steps.direct}}},
          {"precision", precision == config.settings.end() ? "fp32" : precision->value},
          {"trivial_floor", trivial_baseline(config.task->name).accuracy},
          {"revision", revision()},
          {"data", full_config.at("data")},
          {"settings", full_config.at("settings")},
          {"machine", full_config.at("machine")}};
}

data::Json pretraining_result_json(const RunConfig& config, const data::Json& full_config,
                                   const RunState& state, const Evaluation& dev) {
  return {{"task", full_config.at("data").at("name")},
          {"attention", config.method->name},
          {"recipe", config.recipe},
          {"seed", config.seed},
          {"phase", "pretraining"},
          {"steps", state.step},
          {"train_seconds", state.train_seconds},
          {"tokens", state.tokens},
          {"masked_loss", dev.loss},
          {"masked_accuracy", dev.accuracy},
          {"dev_examples", dev.examples},
          {"revision", revision()},
          {"data", full_config.at("data")},
          {"settings", full_config.at("settings")},
          {"machine", full_config.at("machine")}};
}

data::Json read_result(const std::filesystem::path& file) {
  data::Json result = read_json(file);
  const auto lacks = [&](const char* key, const char* expected) {
    throw DataError(fmt::format("{}: no {} '{}' in it", file.string(), expected, key));
  };
  for (const char* key : {"task", "attention", "recipe"}) {
    if (!result.contains(key) || !result[key].is_string()) lacks(key, "name");
  }
  for (const char* key : {"seed", "steps", "selected_step", "train_seconds", "steps_per_second",
                          "tokens_per_second", "peak_bytes"}) {
    if (!result.contains(key) || !result[key].is_number()) lacks(key, "number");
  }
  for (const char* key : {"dev_accuracy", "test_accuracy"}) {
    const double share =
        result.contains(key) && result[key].is_number() ? result[key].get<double>() : -1;
    if (!(share >= 0 && share <= 1)) lacks(key, "share in 0..1");
  }
  for (const char* key : {"settings", "data"}) {
    if (!result.contains(key) || !result[key].is_object()) lacks(key, "object");
  }
  return result;
}

std::optional<data::Json> finished_result(const std::filesystem::path& folder,
                                          const data::Json& full_config) {
  const auto config = folder / "config.json", result = folder / "result.json";
  if (!std::filesystem::exists(config) || !std::filesystem::exists(result)) return {};
  try {
    if (!first_difference(read_json(config), full_config).empty()) return {};
    if (is_pretraining(full_config)) return read_json(result);
    return read_result(result);
  } catch (const DataError&) {
    return {};
  }
}

void print_result(const data::Json& r, const std::filesystem::path& file) {
  fmt::print(
      "{} {}: dev accuracy {:.2f} %, test accuracy {:.2f} % (weights of step {} of {})\n"
      "trained {} at {:.2f} steps/s, {} tokens/s; peak {:.1f} MB; {}\n",
      r["task"].get<std::string>(), r["attention"].get<std::string>(),
      100 * r["dev_accuracy"].get<double>(), 100 * r["test_accuracy"].get<double>(),
      r["selected_step"].get<std::int64_t>(), r["steps"].get<std::int64_t>(),
      duration_text(r["train_seconds"].get<double>()), r["steps_per_second"].get<double>(),
      grouped(static_cast<std::int64_t>(r["tokens_per_second"].get<double>())),
      1e-6 * r["peak_bytes"].get<double>(), file.string());
}

std::string baseline_warning(const RunConfig& config, const Evaluation& test) {
  const TrivialBaseline baseline = trivial_baseline(config.task->name);
  if (baseline.accuracy < 0 || test.accuracy > baseline.accuracy) return {};
  return fmt::format(
      "warning: test accuracy {:.2f} % is not above {:.1f} %, which {} reaches: the run is too "
      "short or something is wrong",
      100 * test.accuracy, 100 * baseline.accuracy, baseline.what);
}

}  // namespace skytape::train
