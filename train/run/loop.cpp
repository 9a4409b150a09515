#include "train/run/loop.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/files/json.hpp"
#include "data/loader.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/storage.hpp"
#include "tensor/gemm/precision.hpp"
#include "train/config/run_config.hpp"
#include "train/formats/safetensors.hpp"
#include "train/process/progress.hpp"
#include "train/process/signals.hpp"
#include "train/run/announcement.hpp"
#include "train/run/checkpoint.hpp"
#include "train/run/objective.hpp"
#include "train/run/open_run.hpp"
#include "train/run/reporter.hpp"
#include "train/run/result.hpp"
#include "train/run/run_folder.hpp"
#include "train/run/selection.hpp"
#include "train/run/train_options.hpp"

namespace skytape::train {
namespace {

using data::Json;
using Clock = std::chrono::steady_clock;

/// The signal that came to any of the ranks, or 0: all stop at the same step.
int signal_of_any(const Ranks& ranks) {
  const std::vector<double> all = gather(ranks, {static_cast<double>(signal_received())});
  return static_cast<int>(*std::max_element(all.begin(), all.end()));
}

/// Returns when all ranks have come here, so that each GPU has its part of the last step's sum. A
/// missing rank is found here; a host that waits for its GPU would wait for it without a limit.
void meet(const OpenRun& run) { (void)signal_of_any(run.ranks()); }

bool evaluation_due(const OpenRun& run) {
  const RunState& state = run.state;
  const bool point = state.step % run.config.eval_every == 0 || state.step == run.config.steps();
  return state.step > 0 && point && state.evaluated < state.step;
}

bool is_over(const OpenRun& run) {
  if (evaluation_due(run)) return false;  // one that a signal interrupted is repeated first
  return run.state.step >= run.config.steps() || is_stale(run.config, run.state);
}

/// Returns whether the user wants the run to stop here.
bool asked_to_stop(const OpenRun& run) {
  return run.options.stop_after > 0 && run.state.step >= run.options.stop_after;
}

bool checkpoint_due(const OpenRun& run) {
  const std::int64_t step = run.state.step;
  return step != run.started_at && step % run.config.checkpoint_every == 0;
}

/// Means since the last log point.
TrainMetrics finite_metrics(OpenRun& run) {
  const TrainMetrics metrics = run.trainer->take_metrics();
  if (std::isfinite(metrics.loss)) return metrics;
  const std::int64_t step = run.state.step;
  throw NonFiniteError(fmt::format("train: the loss is not finite between steps {} and {}; {}",
                                   step - metrics.steps, step, last_good_state(run.options.out)));
}

void train_step(OpenRun& run, const data::Batch& batch, Reporter& reporter) {
  const auto start = Clock::now();
  run.trainer->step(batch);
  RunState& state = run.state;
  ++state.step;
  state.cursor = batch.after;
  state.tokens += batch.real_tokens;
  state.peak_bytes = std::max(state.peak_bytes, memory_stats(run.config.device).peak_bytes);
  if (reporter.needs_rate()) {
    meet(run);
    synchronize(run.config.device);
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  state.train_seconds += seconds;
  std::optional<TrainMetrics> metrics;
  if (reporter.log_point()) metrics = finite_metrics(run);
  reporter.step(batch.real_tokens, seconds, metrics);
}

/// One pass over the first `examples` of a split, 0: all of them.
Evaluation evaluate_split(OpenRun& run, const data::Dataset& split, std::int64_t examples,
                          const std::string& name, Reporter& reporter) {
  meet(run);
  const RunConfig& config = run.config;
  data::BatchOptions batches = config.batches;
  batches.batch = config.microbatch();
  EvaluateOptions options;
  options.what = name;
  options.examples = examples;
  options.seed = config.seed;
  options.positions = config.microbatch_limits().positions;
  if (predicts_masked(config)) options.masking = config.pretraining.masking;
  options.share = run.ranks().share();
  options.sum = [&](std::span<double> counts) { run.ranks().sum(counts); };
  options.stop = [&] { return signal_of_any(run.ranks()) != 0; };
  options.progress = [&](std::int64_t done, std::int64_t total) {
    reporter.progress(name, done, total);
  };
  try {
    return (*run.evaluator)(split, batches, options);
  } catch (const NonFiniteError& error) {
    throw NonFiniteError(fmt::format("train: after step {}, {}; {}", run.state.step, error.what(),
                                     last_good_state(run.options.out)));
  }
}

/// Evaluates on dev if it is time to, and keeps the best weights. If they are the ones to test so
/// far, `selected` becomes their evaluation. One that a signal cut short counts for nothing.
void evaluate_dev_if_due(OpenRun& run, Reporter& reporter, std::optional<Evaluation>& selected) {
  if (!evaluation_due(run)) return;
  const RunConfig& config = run.config;
  const Evaluation dev = evaluate_split(run, run.splits.dev, config.eval_examples, "dev", reporter);
  if (dev.interrupted) return;
  RunState& state = run.state;
  state.evaluated = state.step;
  reporter.evaluation(dev);
  if (!predicts_masked(config)) {
    const std::string passed =
        state.reached.add(run.splits.dev.name(), baseline_of(config, dev),
                          {state.step, state.train_seconds, state.tokens, dev.accuracy});
    if (!passed.empty()) reporter.line(passed);
  }
  const bool best = select(config, dev, state);
  if (best || config.select == Select::last) selected = dev;
  if (best && config.select != Select::last) save(run, best_file(run.options.out));
}

int stop(int signal, Reporter& reporter) {
  reporter.stopped(signal);
  return signal == 0 ? 0 : 128 + signal;
}

void write_result(const OpenRun& run, const Json& result) {
  const auto file = result_file(run.options.out);
  run.folder->write_json(file, result);
  print_result(result, file);
}

/// Returns the outcome of training; nothing is evaluated yet.
Outcome outcome_of(const OpenRun& run) {
  return {.state = run.state,
          .selected_step = run.state.step,
          .parameters = run.model->parameters().parameter_count(),
          .ranks = run.ranks().size(),
          .exchange_seconds = run.gradient_sum->seconds(),
          .steps = run.trainer->graphs().counts(),
          .dev = {},
          .test = {},
          .class_weights = run.model->config().class_weights};
}

/// Loads the weights that are tested, on all ranks. Returns their step, on rank 0.
std::int64_t load_selected(OpenRun& run, Reporter& reporter) {
  if (run.config.select == Select::last) return run.state.step;
  std::int64_t step = 0;
  run.ranks().patient().first([&] {
    const auto path = best_file(run.options.out);
    const SafetensorsFile file = read_weights(path);
    step = read_facts(file, path).state.step;
    load_weights(file, path, *run.model);
    // A kill between the two checkpoints of an evaluation leaves best weights of a later step; with
    // another number of threads that evaluation may not be the best again.
    if (step != run.state.best_step) {
      reporter.line(
          fmt::format("warning: {} has the weights of step {}, but step {} was the best: "
                      "those of step {} are tested",
                      path.string(), step, run.state.best_step, step));
    }
  });
  run.ranks().broadcast(run.model->parameters().values());
  return step;
}

/// Dev and test with the selected weights, over whole splits unless final_examples says less. `dev`:
/// what this process knows of them already. Returns the exit code.
int test_selected(OpenRun& run, const std::optional<Evaluation>& dev, Reporter& reporter) {
  Outcome outcome = outcome_of(run);
  outcome.selected_step = load_selected(run, reporter);
  const std::int64_t examples = run.config.final_examples;
  const bool known = dev && examples == run.config.eval_examples;
  outcome.dev = known ? *dev : evaluate_split(run, run.splits.dev, examples, "dev", reporter);
  if (!outcome.dev.interrupted) {
    outcome.test = evaluate_split(run, run.splits.test, examples, "test", reporter);
  }
  if (outcome.dev.interrupted || outcome.test.interrupted) {
    return stop(signal_of_any(run.ranks()), reporter);
  }
  if (!run.ranks().first()) return 0;
  reporter.final_scores("dev", outcome.dev);
  reporter.final_scores("test", outcome.test);
  Json result = result_json(run.config, run.json, outcome);
  if (!reporter.stood_at_chance().is_null()) {
    result["stood_at_chance"] = reporter.stood_at_chance();
  }
  write_result(run, result);
  const std::string warning = baseline_warning(run.config, outcome.test);
  if (!warning.empty()) reporter.line(warning);
  return 0;
}

/// Finishes pre-training by evaluating hidden tokens of the dev split, unless this process has made
/// that evaluation: `dev`. The test split is not looked at. Returns the exit code.
int finish_pretraining(OpenRun& run, const std::optional<Evaluation>& dev, Reporter& reporter) {
  Outcome outcome = outcome_of(run);
  outcome.dev =
      dev ? *dev : evaluate_split(run, run.splits.dev, run.config.eval_examples, "dev", reporter);
  if (outcome.dev.interrupted) return stop(signal_of_any(run.ranks()), reporter);
  if (!run.ranks().first()) return 0;
  Json result = pretraining_result_json(run.config, run.json, outcome);
  add_objective(result, run.config, outcome.dev.loss);
  write_result(run, result);
  return 0;
}

int print_earlier_result(const OpenRun& run, Progress& progress) {
  if (!run.ranks().first()) return 0;
  progress.line(fmt::format("{}: finished before, not run again", run.options.out.string()));
  print_result(*run.result, result_file(run.options.out));
  return 0;
}

}  // namespace

int run_phase(const RunConfig& wanted, const TrainOptions& options) {
  set_precision(wanted.device, wanted.precision);
  watch_signals();
  ignore_pipe_signal();
  Progress progress;
  OpenRun run = open_run(wanted, options, progress);
  if (run.finished) return print_earlier_result(run, progress);

  const RunConfig& config = run.config;
  if (!run.ranks().first()) progress.silence();
  Reporter reporter(run, progress);
  for (const std::string& line : announcement(run)) reporter.line(line);
  reset_peak_bytes(config.device);
  data::Loader loader(training_batches(config, run.splits.train, run.state.cursor));
  const double waited_before = run.state.waited_seconds;
  std::optional<Evaluation> dev;  // of the weights to test, if this process made it

  evaluate_dev_if_due(run, reporter, dev);  // a resumed run may owe one
  while (!is_over(run)) {
    const int signal = signal_of_any(run.ranks());
    const bool stops = signal != 0 || asked_to_stop(run);
    if (stops || checkpoint_due(run)) save(run, last_file(options.out));
    if (stops) return stop(signal, reporter);
    train_step(run, *loader.next(), reporter);
    run.state.waited_seconds = waited_before + loader.waited_seconds();
    evaluate_dev_if_due(run, reporter, dev);
  }
  save(run, last_file(options.out));
  return predicts_masked(config) ? finish_pretraining(run, dev, reporter)
                                 : test_selected(run, dev, reporter);
}

}  // namespace skytape::train
