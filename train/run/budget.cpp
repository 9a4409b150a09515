#include "train/run/budget.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <string>
#include <vector>

#include "tensor/core/error.hpp"
#include "tensor/core/storage.hpp"
#include "tensor/gemm/precision.hpp"
#include "train/config/keys.hpp"
#include "train/config/settings.hpp"
#include "train/process/progress.hpp"
#include "train/run/memory_estimate.hpp"
#include "train/run/time_left.hpp"
#include "train/step/trainer.hpp"

namespace skytape::train {
namespace {

constexpr int kWarmUps = 2;               // steps that allocate, and capture what a GPU replays
constexpr int kFewestTimed = 3;           // timed steps after the warm-up, at least
constexpr double kTimedSeconds = 2;       // and at least this long
constexpr std::int64_t kFewestSteps = 3;  // of a schedule
constexpr int kSomeSteps = 1 << 16;       // whose mean time is that of a very long schedule

/// Means over some steps.
struct Timed {
  double seconds = 0, tokens = 0;
};

Timed time_steps(const RunConfig& config, const data::BatchOptions& options,
                 const data::Dataset& train, Trainer& trainer) {
  using Clock = std::chrono::steady_clock;
  data::BatchStream stream(train, options);
  data::Batch batch;
  Timed sum;
  int timed = 0;
  for (int i = 0; i < kWarmUps || timed < kFewestTimed || sum.seconds < kTimedSeconds; ++i) {
    stream.next(batch);
    const auto start = Clock::now();
    trainer.step(batch);
    synchronize(config.device);
    if (i < kWarmUps) continue;
    sum.seconds += std::chrono::duration<double>(Clock::now() - start).count();
    sum.tokens += computed_tokens(batch);
    ++timed;
  }
  return {sum.seconds / timed, sum.tokens / timed};
}

}  // namespace

double computed_tokens(const data::Batch& batch) {
  if (batch.round_to == 0) return static_cast<double>(batch.size * batch.width * batch.sequences);
  double tokens = 0;
  for (const std::vector<std::int32_t>& lengths : batch.lengths) {
    tokens = std::accumulate(lengths.begin(), lengths.end(), tokens);
  }
  return tokens;
}

Pace measure_pace(const RunConfig& config, const Splits& splits) {
  set_precision(config.device, config.precision);
  refuse_if_too_large(config, splits.train.longest());
  nn::Model model(model_for(config, splits.train), DType::f32, config.device, config.seed);
  Trainer trainer(model, config.adamw, config.schedule, config.seed, config.microbatch_limits());
  data::BatchOptions whole = config.batches;
  whole.grow_steps = whole.grow_hold = 0;
  const Timed full = time_steps(config, whole, splits.train, trainer);
  const Pace of_tokens = {0, full.seconds / full.tokens};
  if (config.batches.grow_steps == 0) return of_tokens;
  const Timed cut = time_steps(config, config.batches, splits.train, trainer);
  if (cut.tokens >= full.tokens) return of_tokens;
  const double token = std::max(0.0, (full.seconds - cut.seconds) / (full.tokens - cut.tokens));
  const double step = full.seconds - token * full.tokens;
  return step > 0 ? Pace{step, token} : of_tokens;
}

double training_seconds(const RunConfig& config, const data::Dataset& train, const Pace& pace) {
  const TimeLeft work(train, config.batches, config.steps());
  return pace.step * static_cast<double>(config.steps()) +
         pace.token * static_cast<double>(config.batches.batch) * work.tokens();
}

void refuse_steps(const Choices& choices) {
  if (find_setting(choices.settings, "steps") == nullptr) return;
  throw UsageError("--budget chooses the steps; expected no --steps");
}

BudgetedSteps steps_within(double seconds, const Choices& choices) {
  refuse_steps(choices);
  Progress progress;
  const RunConfig config = resolve(choices);
  if (config.pretraining.steps > 0) {
    throw UsageError(
        "train: --budget is for one phase, pretrain_steps makes two; expected pretrain, then "
        "train --init with --budget");
  }
  const Splits splits = open_splits(config, progress);
  const Pace pace = measure_pace(config_for(config, splits.train), splits);
  const auto seconds_of = [&](std::int64_t steps) {
    Choices chosen = choices;
    chosen.settings.push_back({"steps", std::to_string(steps), "--budget"});
    return training_seconds(resolve(chosen), splits.train, pace);
  };
  const double least = seconds_of(kFewestSteps);
  if (least > seconds) {
    throw UsageError(
        fmt::format("--budget: {} steps of {} alone take {} here, expected at least that",
                    kFewestSteps, config.task->name, duration_text(least)));
  }
  const auto most = static_cast<std::int64_t>(find_key("steps")->range.high);
  if (seconds_of(kSomeSteps) / kSomeSteps * static_cast<double>(most) <= seconds) {
    throw UsageError(
        fmt::format("--budget: {} is time for more than {} steps here, the most that a run can "
                    "have; expected less time, or --steps",
                    duration_text(seconds), grouped(most)));
  }
  std::int64_t fits = kFewestSteps, beyond = 2 * kFewestSteps;
  while (beyond < most && seconds_of(beyond) <= seconds) {
    fits = beyond;
    beyond = std::min(2 * beyond, most);
  }
  while (beyond - fits > 1) {
    const std::int64_t between = fits + (beyond - fits) / 2;
    (seconds_of(between) <= seconds ? fits : beyond) = between;
  }
  return {fits, seconds_of(fits)};
}

}  // namespace skytape::train
