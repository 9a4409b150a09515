#include "train/run/reporter.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "data/files/json.hpp"
#include "train/process/progress.hpp"
#include "train/run/objective.hpp"
#include "train/run/open_run.hpp"
#include "train/run/run_folder.hpp"
#include "train/step/class_scores.hpp"

namespace skytape::train {
namespace {

constexpr std::int64_t kRateSteps = 5;  // steps that the first estimate of the rate waits for

}  // namespace

Reporter::Reporter(const OpenRun& run, Progress& progress)
    : run_(run),
      progress_(progress),
      time_left_(run.splits.train, run.config.batches, run.config.steps()) {
  if (predicts_masked(run.config)) return;
  chance_.emplace(label_entropy(run.splits.train, run.model->config()), run.config.schedule.warmup,
                  run.config.steps());
  if (run.folder) resume_chance();
}

void Reporter::resume_chance() {
  for (const data::Json& metric : read_metrics(run_.folder->metrics())) {
    const std::string kind = metric.value("kind", "");
    if (kind == "chance") {
      stood_at_chance_ = metric;
      stood_at_chance_.erase("time");  // of the line, not of the finding
    }
    if (kind == "train" && metric.contains("step") && data::member(metric, "loss").is_number()) {
      (void)chance_->stands_at_chance(metric.at("step").get<std::int64_t>(),
                                      metric.at("loss").get<double>());
    }
  }
}

void Reporter::watch_chance(double loss) {
  const std::int64_t step = run_.state.step;
  if (!chance_ || !chance_->stands_at_chance(step, loss) || !stood_at_chance_.is_null()) return;
  stood_at_chance_ = {{"kind", "chance"},
                      {"step", step},
                      {"loss", chance_->mean_loss()},
                      {"label_entropy", chance_->entropy()}};
  add_metric(stood_at_chance_, loss);
  line(fmt::format(
      "warning: after step {} the run stands at chance: the loss of its last {} training steps, "
      "{:.4f}, is no lower than {:.4f}, that of who knows only how often each label occurs. On "
      "Pathfinder and Path-X the seed decides whether a run leaves chance: another --seed may; "
      "elsewhere another learning rate (lr), too",
      step, chance_->mean_steps(), chance_->mean_loss(), chance_->entropy()));
}

void Reporter::line(const std::string& text) { progress_.line(text); }

void Reporter::progress(std::string_view what, std::int64_t done, std::int64_t total) {
  progress_.at(what, done, total);
}

void Reporter::add_metric(data::Json metric, double loss) {
  add_objective(metric, run_.config, loss);
  if (run_.folder) run_.folder->add_metric(std::move(metric));
}

bool Reporter::log_point() const {
  const std::int64_t step = run_.state.step;
  return step % run_.options.log_every == 0 || step == run_.config.steps();
}

bool Reporter::first_rate() const { return run_.state.step == run_.started_at + kRateSteps; }

void Reporter::step(std::int64_t tokens, double seconds,
                    const std::optional<TrainMetrics>& metrics) {
  const std::int64_t step = run_.state.step, first = run_.started_at + 1;
  tokens_since_log_ += tokens;
  seconds_since_log_ += seconds;
  if (step > first) seconds_after_first_ += seconds;  // the first one allocates
  if (metrics) {
    log(*metrics);
  } else if (first_rate()) {
    line(fmt::format("measured {:.2f} steps/s: {} to go{}, evaluations not counted",
                     (kRateSteps - 1) / seconds_after_first_,
                     duration_text(time_left_.after(seconds_after_first_, first, step)),
                     run_.config.batches.grow_steps > step ? ", growing sequences included" : ""));
  }
  progress("training", step, run_.config.steps());
}

void Reporter::log(const TrainMetrics& metrics) {
  const RunConfig& config = run_.config;
  const std::int64_t step = run_.state.step;
  // Steps of an earlier process are in the mean, but not in this process's clock.
  const std::int64_t from = std::max(step - metrics.steps, run_.started_at);
  const double seconds = std::max(seconds_since_log_, 1e-9);
  LogPoint point{step, config.steps(), scores_text(config, metrics.loss, metrics.accuracy)};
  point.lr = config.schedule.lr(step - 1);
  point.steps_per_second = static_cast<double>(step - from) / seconds;
  point.tokens_per_second = static_cast<double>(tokens_since_log_) / seconds;
  point.seconds_left = time_left_.after(seconds, from, step);
  progress_.log(point);
  add_metric({{"kind", "train"},
              {"step", step},
              {"loss", metrics.loss},
              {"accuracy", metrics.accuracy},
              {"lr", point.lr},
              {"steps_per_second", point.steps_per_second},
              {"tokens_per_second", point.tokens_per_second}},
             metrics.loss);
  watch_chance(metrics.loss);
  seconds_since_log_ = 0;
  tokens_since_log_ = 0;
}

void Reporter::evaluation(const Evaluation& e) {
  const RunConfig& config = run_.config;
  const RunState& state = run_.state;
  const bool partial = e.examples < run_.splits.dev.size();
  const bool own = data::is_custom_data(*config.task) && !predicts_masked(config);
  line(fmt::format(
      "step {}  dev {}{}  ({}{} examples, {})", state.step, scores_text(config, e.loss, e.accuracy),
      own ? fmt::format(" (the largest class alone {:.2f} %)", 100 * majority_share(e.confusion))
          : "",
      partial ? "the first " : "", e.examples, duration_text(e.seconds)));
  add_metric({{"kind", "eval"},
              {"split", "dev"},
              {"step", state.step},
              {"loss", e.loss},
              {"accuracy", e.accuracy},
              {"examples", e.examples},
              {"partial", partial},
              {"seconds", e.seconds},
              {"train_seconds", state.train_seconds},
              {"tokens", state.tokens}},
             e.loss);
}

void Reporter::final_scores(const char* split, const Evaluation& scores) {
  add_metric({{"kind", "final"},
              {"split", split},
              {"step", run_.state.step},
              {"final_loss", scores.loss},
              {"final_accuracy", scores.accuracy}},
             scores.loss);
}

void Reporter::stopped(int signal) {
  if (run_.config.device == Device::cuda) {
    const StepCounts& ran = run_.trainer->graphs().counts();
    line(fmt::format("how steps ran: {} replayed, {} of them when captured, {} op by op",
                     ran.replayed, ran.captured, ran.direct));
  }
  line(fmt::format(
      "stopped {} step {} of {}; {} holds the run: the same command with --resume continues it",
      signal != 0 ? "by a signal after" : "as asked after", run_.state.step, run_.config.steps(),
      last_file(run_.options.out).string()));
}

}  // namespace skytape::train
