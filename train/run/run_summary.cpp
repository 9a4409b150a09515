#include "train/run/run_summary.hpp"

#include <fmt/format.h>

#include <optional>

#include "data/files/json.hpp"
#include "data/files/source.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/suggest.hpp"
#include "train/config/run_config.hpp"
#include "train/process/progress.hpp"
#include "train/run/init.hpp"
#include "train/run/result.hpp"
#include "train/run/run_folder.hpp"
#include "train/run/time_to_accuracy.hpp"

namespace skytape::train {
namespace {

namespace fs = std::filesystem;
using data::Json;

/// The last training log point, and the best evaluations.
struct Metrics {
  Json last, most_accurate, lowest_loss;  // null: none yet
};

Metrics metrics_of(const fs::path& path) {
  Metrics m;
  for (const Json& metric : read_metrics(path)) {
    const std::string kind = metric.value("kind", "");
    if (kind == "train") m.last = metric;
    if (kind != "eval") continue;
    const auto better = [&](const Json& best, const char* key, double sign) {
      return best.is_null() || sign * metric.value(key, 0.0) > sign * best.value(key, 0.0);
    };
    if (better(m.most_accurate, "accuracy", 1)) m.most_accurate = metric;
    if (better(m.lowest_loss, "loss", -1)) m.lowest_loss = metric;
  }
  return m;
}

Cell number(const Json& object, const char* key, const char* format, double scale = 1) {
  if (!object.is_object() || !object.contains(key)) return {};
  return fmt::format(fmt::runtime(format), scale * object.at(key).get<double>());
}

Cell percent(const Json& object, const char* key) { return number(object, key, "{:.2f} %", 100); }

/// "61.20 % at step 4,500".
Cell at_step(const Cell& value, const Json& metric) {
  if (value.kind == Cell::Kind::missing) return {};
  return fmt::format("{} at step {}", value.words, grouped(metric.value("step", std::int64_t{0})));
}

/// Returns the settings that the user chose: "lr=1e-3, steps=500".
std::string chosen_settings(const Json& settings) {
  std::string text;
  for (const auto& [key, entry] : settings.items()) {
    if (!entry.at("origin").get<std::string>().starts_with("--")) continue;
    text +=
        fmt::format("{}{}={}", text.empty() ? "" : ", ", key, entry.at("value").get<std::string>());
  }
  return text.empty() ? "nothing" : text;
}

/// "4 min, step 250".
Cell after(const std::optional<Moment>& moment) {
  if (!moment) return {};
  return fmt::format("{}, step {}", duration_text(moment->seconds), grouped(moment->step));
}

/// Adds the accuracies of the run on its task.
void add_accuracies(Table& table, const std::string& task, const Json& result,
                    const Metrics& metrics) {
  const auto row = [&](const char* what, Cell cell) { table.add({what, std::move(cell)}); };
  row("best dev accuracy",
      at_step(percent(metrics.most_accurate, "accuracy"), metrics.most_accurate));
  row("lowest dev loss",
      at_step(number(metrics.lowest_loss, "loss", "{:.4f}"), metrics.lowest_loss));
  row("dev accuracy", percent(result, "dev_accuracy"));
  row("test accuracy", percent(result, "test_accuracy"));
  const double baseline = trivial_share(task, result);
  row("reached without attention",
      baseline < 0 ? Cell() : Cell(fmt::format("{:.1f} %", 100 * baseline)));
  const TimeToAccuracy times = time_to_accuracy_from(data::member(result, "time_to_accuracy"));
  row("above that after", after(times.trivial));
  row("above the papers' best result after", after(times.paper));
}

/// Adds a pre-training's scores on the hidden tokens of dev.
void add_masked(Table& table, const Metrics& metrics) {
  const auto row = [&](const char* what, Cell cell) { table.add({what, std::move(cell)}); };
  row("best masked accuracy",
      at_step(percent(metrics.most_accurate, "accuracy"), metrics.most_accurate));
  row("lowest masked loss",
      at_step(number(metrics.lowest_loss, "loss", "{:.4f}"), metrics.lowest_loss));
  row("its perplexity", number(metrics.lowest_loss, "perplexity", "{:.3f}"));
}

void fill(Table& table, const Json& config, const Json& result, const Metrics& metrics) {
  const auto row = [&](const char* what, Cell cell) { table.add({what, std::move(cell)}); };
  const std::string task = config.at("task").get<std::string>();
  const bool pretraining = is_pretraining(config);
  row("data", config.at("data").at("name").get<std::string>());
  row("attention", config.at("attention").get<std::string>());
  row("recipe", config.at("recipe").get<std::string>());
  row("set by the user", chosen_settings(config.at("settings")));
  row("seed", std::to_string(config.at("seed").get<std::uint64_t>()));
  row("device", config.at("device").get<std::string>());
  row("machine", config.at("machine").at("cpu").get<std::string>());
  row("revision", config.at("revision").get<std::string>());
  if (pretraining) row("phase", "pre-training");
  const Json& before = data::member(config, "pretraining");
  if (!before.is_null()) row("started from weights", pretraining_text(before));
  row("state", result.is_null() ? "not finished" : "finished");
  const Json& last = result.is_null() ? metrics.last : result.at("steps");
  row("steps", last.is_null()     ? Cell()
               : last.is_object() ? Cell(grouped(last.at("step").get<std::int64_t>()))
                                  : Cell(grouped(last.get<std::int64_t>())));
  row("planned steps", grouped(planned_steps(config)));
  row("parameters", number(result, "parameters", "{:.0f}"));
  if (pretraining) {
    add_masked(table, metrics);
  } else {
    add_accuracies(table, task, result, metrics);
  }
  row("training time",
      result.is_null() ? Cell() : Cell(duration_text(result.at("train_seconds").get<double>())));
  const Json& speed = result.is_null() ? metrics.last : result;
  row("steps/s", number(speed, "steps_per_second", "{:.2f}"));
  row("tokens/s", number(speed, "tokens_per_second", "{:.0f}"));
  row("peak memory", number(result, "peak_bytes", "{:.1f} MB", 1e-6));
}

}  // namespace

Table run_summary(const fs::path& folder) {
  const Json config = read_config(folder);
  const bool finished = fs::exists(result_file(folder));
  const Json result = finished ? read_json(result_file(folder)) : Json();
  if (finished) check_result(result, result_file(folder).string());
  Table table;
  table.name = "run";
  table.title = folder.string();
  table.columns = {{"what"}, {"value"}};
  try {
    fill(table, config, result, metrics_of(folder / "metrics.jsonl"));
  } catch (const data::JsonError& error) {
    throw DataError(fmt::format("{}: config.json or result.json is not one of ours: {}",
                                folder.string(), data::problem_of(error)));
  }
  return table;
}

std::int64_t planned_steps(const Json& config) {
  const char* const key = is_pretraining(config) ? "pretrain_steps" : "steps";
  const Json& value = data::member(config, "settings", key, "value");
  const std::string text = value.is_string() ? value.get<std::string>() : "";
  const auto steps = number_in<std::int64_t>(text);
  if (!steps) {
    throw DataError(fmt::format("config.json: the setting '{}' is no number", key));
  }
  return *steps;
}

std::vector<std::string> runs_on(const std::filesystem::path& runs,
                                 const std::string& train_fingerprint) {
  std::vector<std::string> found;
  std::error_code none;  // no such folder: no runs known
  if (!std::filesystem::is_directory(runs, none)) return {};
  for (const auto& entry : data::entries_of(runs)) {
    const std::filesystem::path config = config_file(entry.path());
    if (!std::filesystem::exists(config, none)) continue;
    try {
      const Json json = read_config(entry.path());
      if (data::member(json, "data", "train", "fingerprint") == train_fingerprint) {
        found.push_back(entry.path().string());
      }
    } catch (const DataError&) {  // not readable as a run: of no data that we know
    }
  }
  return found;
}

}  // namespace skytape::train
