#include "train/lra/time_table.hpp"

#include <fmt/format.h>

#include <cmath>

#include "data/files/json.hpp"
#include "train/process/progress.hpp"
#include "train/runs/time_to_accuracy.hpp"

namespace skytape::train {
namespace {

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

/// How long the weights were pre-trained that the run started from.
Cell pretraining_time(const FinishedRun& run) {
  const data::Json& facts = data::member(run.config, "pretraining");
  return facts.is_null() ? "–" : duration_text(facts.value("train_seconds", 0.0));
}

}  // namespace

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
    if (!run.times.best) continue;  // of a program that did not note it
    const std::string added = added_to_papers(run.config);
    table.add({run.task, run.attention, run.settings, added.empty() ? "–" : added,
               static_cast<double>(run.seed), cell_of(run.times.trivial), cell_of(run.times.paper),
               cell_of(run.times.best), 100 * run.times.best->accuracy,
               with_interval(run.test, run.test_examples), pretraining_time(run)});
  }
  return table;
}

}  // namespace skytape::train
