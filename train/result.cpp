#include "train/result.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "train/progress.hpp"
#include "train/version.hpp"

namespace skytape::train {

nlohmann::json result_json(const RunConfig& config, const nlohmann::json& full_config,
                           const Outcome& o) {
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
          {"peak_bytes", o.peak_bytes},
          {"peak_rss_bytes", peak_resident_bytes()},
          {"parameters", o.parameters},
          {"device", name(config.device)},
          {"precision", precision == config.settings.end() ? "fp32" : precision->value},
          {"trivial_floor", trivial_floor(config.task->name).accuracy},
          {"revision", revision()},
          {"data", full_config.at("data")},
          {"settings", full_config.at("settings")},
          {"machine", full_config.at("machine")}};
}

void print_result(const RunConfig& config, std::string_view task, const Outcome& o,
                  const std::filesystem::path& file) {
  const double seconds = std::max(o.state.train_seconds, 1e-9);
  fmt::print(
      "{} {}: dev accuracy {:.2f} %, test accuracy {:.2f} % (weights of step {} of {})\n"
      "trained {} at {:.2f} steps/s, {} tokens/s; peak {:.1f} MB; {}\n",
      task, config.method->name, 100 * o.dev.accuracy, 100 * o.test.accuracy, o.selected_step,
      o.state.step, duration_text(o.state.train_seconds),
      static_cast<double>(o.state.step) / seconds,
      grouped(static_cast<std::int64_t>(static_cast<double>(o.state.tokens) / seconds)),
      static_cast<double>(o.peak_bytes) * 1e-6, file.string());
}

std::string floor_warning(const RunConfig& config, const Evaluation& test) {
  const Floor floor = trivial_floor(config.task->name);
  if (floor.accuracy < 0 || test.accuracy > floor.accuracy) return {};
  return fmt::format(
      "warning: test accuracy {:.2f} % is not above {:.1f} %, which {} reaches: the run is too "
      "short or something is wrong",
      100 * test.accuracy, 100 * floor.accuracy, floor.what);
}

}  // namespace skytape::train
