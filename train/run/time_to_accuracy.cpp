#include "train/run/time_to_accuracy.hpp"

#include <fmt/format.h>

#include "data/files/json.hpp"
#include "train/process/progress.hpp"

namespace skytape::train {
namespace {

using data::Json;

/// As a share; the papers' tables are in percent.
std::optional<double> paper_bar(std::string_view task) {
  const auto best = best_paper_accuracy(task);
  return best ? std::optional(*best / 100) : std::nullopt;
}

/// Notes the evaluation as the first above `bar`, and says so.
std::string pass(std::optional<Moment>& first, std::optional<double> bar, const Moment& evaluation,
                 std::string_view what) {
  if (first || !bar || evaluation.accuracy <= *bar) return {};
  first = evaluation;
  first->above = *bar;
  return fmt::format("above {:.2f} %, {}, after {} of training ({} steps, {} tokens)\n", 100 * *bar,
                     what, duration_text(evaluation.seconds), grouped(evaluation.step),
                     grouped(evaluation.tokens));
}

Json moment_json(const std::optional<Moment>& moment) {
  if (!moment) return nullptr;
  Json j = {{"step", moment->step},
            {"seconds", moment->seconds},
            {"tokens", moment->tokens},
            {"accuracy", moment->accuracy}};
  if (moment->above > 0) j["above"] = moment->above;
  return j;
}

std::optional<Moment> moment_from(const Json& times, const char* which) {
  const Json& moment = data::member(times, which);
  if (moment.is_null()) return {};
  return Moment{moment.at("step").get<std::int64_t>(), moment.at("seconds").get<double>(),
                moment.at("tokens").get<std::int64_t>(), moment.at("accuracy").get<double>(),
                moment.value("above", 0.0)};
}

}  // namespace

std::optional<double> best_paper_accuracy(std::string_view task) {
  if (task == "text") return 65.29;
  if (task == "listops") return 39.25;
  if (task == "retrieval") return 82.06;
  if (task == "pathfinder") return 73.59;
  if (task == "image") return 43.16;
  return {};
}

std::string TimeToAccuracy::add(std::string_view task, const TrivialBaseline& baseline,
                                const Moment& evaluation) {
  const auto bar = baseline.accuracy < 0 ? std::nullopt : std::optional(baseline.accuracy);
  std::string lines =
      pass(trivial, bar, evaluation, fmt::format("which {} reaches", baseline.what));
  lines += pass(paper, paper_bar(task), evaluation, "the papers' best result");
  if (!best || evaluation.accuracy > best->accuracy) best = evaluation;
  if (!lines.empty()) lines.pop_back();
  return lines;
}

Json to_json(const TimeToAccuracy& times) {
  return {{"trivial", moment_json(times.trivial)},
          {"paper", moment_json(times.paper)},
          {"best", moment_json(times.best)}};
}

TimeToAccuracy time_to_accuracy_from(const Json& times) {
  return {moment_from(times, "trivial"), moment_from(times, "paper"), moment_from(times, "best")};
}

}  // namespace skytape::train
