#include "train/loop/loop.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <memory>
#include <optional>

#include "data/files/json.hpp"
#include "data/loader.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/storage.hpp"
#include "tensor/gemm/precision.hpp"
#include "train/config/memory_estimate.hpp"
#include "train/config/splits.hpp"
#include "train/loop/objective.hpp"
#include "train/loop/time_left.hpp"
#include "train/process/progress.hpp"
#include "train/process/signals.hpp"
#include "train/process/version.hpp"
#include "train/runs/checkpoint.hpp"
#include "train/runs/init.hpp"
#include "train/runs/result.hpp"
#include "train/step/evaluate.hpp"
#include "train/step/trainer.hpp"

namespace skytape::train {
namespace {

namespace fs = std::filesystem;
using data::Json;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t kRateSteps = 5;  // steps that the first estimate of the rate waits for

/// The configuration, and with what the run started: what checkpoints keep. It names no place.
Json full_config(const RunConfig& config, const Splits& splits, const TrainOptions& options) {
  Json j = to_json(config);
  const fs::path saved = options.out / "config.json";
  Json origin = Json::object();
  if (!options.init.empty()) {
    origin = init_facts(checkpoint_in(options.init));
  } else if (options.existing == RunFolder::Existing::resume && fs::exists(saved)) {
    origin = read_json(saved);  // its checkpoint holds what the weights became
  }
  for (const char* key : {"init", "pretraining"}) {
    if (origin.contains(key)) j[key] = origin[key];
  }
  j["data"] = facts(splits);
  j["model"] = model_facts(config, splits.train);
  j["data_provenance"] = data::try_parse_json(splits.train.provenance());
  j["revision"] = revision();
  j["machine"] = machine_facts();
  return j;
}

std::int64_t longest_sequence(const data::Dataset& split) {
  std::int64_t longest = 0;
  for (std::int64_t i = 0; i < split.size(); ++i) {
    for (int tower = 0; tower < split.towers(); ++tower) {
      longest = std::max(longest, split.length(i, tower));
    }
  }
  return longest;
}

nn::ModelConfig model_config(const RunConfig& config, const Splits& splits) {
  nn::ModelConfig model = config.model;
  model.classes = splits.train.classes();
  return model;
}

/// One run from start, or from its last checkpoint, to its end.
class Run {
 public:
  Run(const RunConfig& config, const TrainOptions& options)
      : options_(options),
        splits_(open_splits(config, progress_)),
        config_(fitted(config, splits_.train)),
        json_(full_config(config_, splits_, options)),
        finished_before_(look_before()),
        model_(model_config(config_, splits_), DType::f32, config_.device, config_.seed),
        started_from_(take_init()),
        whole_(options.part_of.empty()
                   ? nullptr
                   : std::make_unique<RunFolder>(options.part_of, options.existing)),
        folder_(options.out, options.existing),
        time_left_(splits_.train, config_.batches, config_.steps()),
        trainer_(model_, config_.adamw, config_.schedule, config_.seed, config_.microbatch_limits(),
                 options.graphs),
        evaluator_(model_, options.graphs) {
    trainer_.check_finite(options.check_finite);
    if (!finished_before_) restore();
  }

  int go() {
    if (finished_before_) return say_finished();
    announce();
    reset_peak_bytes(config_.device);
    data::Loader loader(training_batches(config_, splits_.train, state_.cursor));
    const double waited_before = state_.waited_seconds;
    for (;;) {
      if (evaluation_due()) evaluate_dev();
      if (finished()) break;
      if (must_stop()) {
        save(folder_.last());
        return say_stopped();
      }
      if (state_.step != started_at_ && state_.step % config_.checkpoint_every == 0) {
        save(folder_.last());
      }
      one_step(*loader.next());
      state_.waited_seconds = waited_before + loader.waited_seconds();
    }
    save(folder_.last());
    return finish();
  }

 private:
  /// Refuses what cannot be, before the folder is touched; the result if there is one already.
  std::optional<Json> look_before() {
    check_saved_configuration();
    std::optional<Json> result;
    if (options_.existing == RunFolder::Existing::resume) {
      result = finished_result(options_.out, json_);
      if (!result && !resumes()) start_anew();
    }
    if (!result) refuse_if_too_large(config_, longest_sequence(splits_.train));
    return result;
  }

  /// Whether a checkpoint is there to go on from.
  [[nodiscard]] bool resumes() const {
    return options_.existing == RunFolder::Existing::resume &&
           fs::exists(options_.out / "last.safetensors");
  }

  /// Loads the weights that a new run starts from; a line about it, empty if there are none.
  std::string take_init() {
    if (options_.init.empty() || finished_before_ || resumes()) return {};
    return load_init(checkpoint_in(options_.init), model_, json_);
  }

  /// Refuses to go on with another run's folder before anything there is touched.
  void check_saved_configuration() const {
    if (options_.existing != RunFolder::Existing::resume) return;
    const fs::path path = options_.out / "config.json";
    if (!fs::exists(path)) return;
    const std::string difference = first_difference(read_json(path), json_);
    if (difference.empty()) return;
    throw UsageError(fmt::format("{}: --resume refuses another configuration: {}",
                                 options_.out.string(), difference));
  }

  /// Says that --resume begins at the beginning, and refuses to where steps have been lost.
  void start_anew() {
    const std::vector<Json> metrics = read_metrics(options_.out / "metrics.jsonl");
    if (!metrics.empty()) {
      throw DataError(fmt::format(
          "{}: metrics up to step {}, but last.safetensors is missing: nothing to go on from; "
          "--force starts anew",
          options_.out.string(), metrics.back().value("step", std::int64_t{0})));
    }
    if (json_.contains("init") && options_.init.empty()) {
      throw UsageError(fmt::format("{}: it starts from weights that --init must name again",
                                   options_.out.string()));
    }
    progress_.line(fmt::format("{}: nothing to resume, starting at step 1", options_.out.string()));
  }

  /// The weights that would be tested at the end. Checked now: without them the steps to come would
  /// be in vain.
  void check_best(const RunState& state) {
    if (config_.select == Select::last || state.best_step < 0) return;
    if (!fs::exists(folder_.best())) {
      throw DataError(fmt::format(
          "{}: missing, but step {} was the best so far and would be tested; --force starts anew",
          folder_.best().string(), state.best_step));
    }
    const SafetensorsFile best = read_safetensors(folder_.best());
    const CheckpointFacts facts = read_facts(best, folder_.best());
    std::string problem = first_difference(facts.config, json_);
    // A kill between the two checkpoints of an evaluation leaves a best one of later steps.
    if (problem.empty() && facts.state.step < state.best_step) {
      problem = fmt::format("of step {}, expected {}", facts.state.step, state.best_step);
    }
    if (!problem.empty()) {
      throw DataError(
          fmt::format("{}: not the best of this run: {}", folder_.best().string(), problem));
    }
    load_weights(best, folder_.best(), model_);
  }

  void restore() {
    const bool going_on = resumes();
    if (going_on) {
      const SafetensorsFile file = read_safetensors(folder_.last());
      const CheckpointFacts saved = read_facts(file, folder_.last());
      const std::string difference = first_difference(saved.config, json_);
      if (!difference.empty()) {
        throw DataError(fmt::format("{}: a checkpoint of another run: {}", folder_.last().string(),
                                    difference));
      }
      check_best(saved.state);
      state_ = saved.state;
      load_training(file, folder_.last(), state_, model_, trainer_);
      warn_if_elsewhere(saved.config);
      progress_.line(fmt::format("resuming {} at step {}", folder_.path().string(), state_.step));
    }
    if (!started_from_.empty()) progress_.line(started_from_);
    if (!fs::exists(folder_.config())) write_config();
    if (!going_on) save(folder_.last());  // before the first metric, which is never without one
    folder_.start_metrics(state_.step);
    started_at_ = state_.step;
    logged_step_ = state_.step - trainer_.summed_steps();
  }

  /// config.json stays where it is: it alone also says where the data lie, from any folder.
  void write_config() const {
    Json own = json_;
    own["data_root"] = fs::absolute(config_.data_root).lexically_normal().string();
    folder_.write_json(folder_.config(), own);
  }

  /// Bits are promised for the same device, threads and program only.
  void warn_if_elsewhere(const Json& saved) {
    const auto differs = [&](const char* what, const Json& there, const Json& here) {
      if (there == here) return;
      progress_.line(fmt::format("warning: {} was {}, is {}: the last bits may differ", what,
                                 data::json_text(there), data::json_text(here)));
    };
    const Json& machine = saved["machine"];
    differs("device", saved["device"], json_["device"]);
    differs("number of threads", machine["threads"], json_["machine"]["threads"]);
    differs("revision", saved["revision"], json_["revision"]);
  }

  void announce() {
    const std::int64_t most = config_.batches.batch * config_.batches.nominal_length *
                              static_cast<std::int64_t>(config_.model.towers);
    progress_.line(fmt::format(
        "{} with {}, recipe {}, seed {}, on {}{}: {} parameters", splits_.train.name(),
        config_.method->name, config_.recipe, config_.seed, name(config_.device),
        config_.device == Device::cpu ? fmt::format(" ({})", counted(thread_count(), "thread"))
                                      : "",
        grouped(model_.parameters().parameter_count())));
    if (predicts_masked(config_)) progress_.line(objective_text(config_));
    progress_.line(
        fmt::format("{} steps of {} examples (at most {} tokens), {}, warm-up {}, dev every {} "
                    "steps; {}",
                    grouped(config_.steps()), config_.batches.batch, grouped(most), how_computed(),
                    config_.schedule.warmup, config_.eval_every, folder_.path().string()));
    // Where tokens are left out on reading, a stored length says nothing.
    const std::int64_t read = config_.batches.max_length;
    const std::int64_t cut =
        config_.batches.drop_token < 0 ? splits_.train.longer_than(read) : std::int64_t{0};
    if (cut > 0) {
      progress_.line(
          fmt::format("{} of {} training examples are longer than max_length = {}: their ends "
                      "are not read",
                      grouped(cut), grouped(splits_.train.size()), read));
    }
    if (config_.batches.grow_steps > 0) {
      progress_.line(fmt::format(
          "training sequences are cut to a length that grows from {} to {} in steps {} to {}{}; "
          "dev is never cut",
          config_.batches.grow_start, grouped(config_.batches.nominal_length),
          grouped(config_.batches.grow_hold), grouped(config_.batches.grow_steps),
          config_.batches.grow_whole > 0
              ? fmt::format(", one in {} is whole", config_.batches.grow_whole)
              : ""));
    }
    const char* const warmup = predicts_masked(config_) ? "pretrain_warmup" : "warmup";
    for (const Setting& s : config_.settings) {
      if (s.key == warmup && s.origin.find("scaled") != s.origin.npos) {
        progress_.line(fmt::format("warm-up {} steps ({})", s.value, s.origin));
      }
    }
  }

  [[nodiscard]] std::string how_computed() const {
    const MicrobatchLimits limits = config_.microbatch_limits();
    if (limits.positions > 0) {
      return fmt::format("computed {} positions at a time", grouped(limits.positions));
    }
    return limits.accumulate == 1 ? "computed at once"
                                  : fmt::format("computed in {} microbatches", limits.accumulate);
  }

  [[nodiscard]] bool evaluation_due() const {
    const bool point = state_.step % config_.eval_every == 0 || state_.step == config_.steps();
    return state_.step > 0 && point && state_.evaluated < state_.step;
  }

  [[nodiscard]] bool finished() const {
    const bool stale = config_.patience > 0 && state_.stale >= config_.patience;
    // An evaluation that a signal cut short is made up for first.
    return !evaluation_due() && (state_.step >= config_.steps() || stale);
  }

  [[nodiscard]] bool must_stop() const {
    return signal_received() != 0 ||
           (options_.stop_after > 0 && state_.step >= options_.stop_after);
  }

  void one_step(const data::Batch& batch) {
    const auto start = Clock::now();
    trainer_.step(batch);
    ++state_.step;
    state_.cursor = batch.after;
    state_.tokens += batch.real_tokens;
    tokens_since_log_ += batch.real_tokens;
    const bool log_point = state_.step % options_.log_every == 0 || state_.step == config_.steps();
    const bool first_rate = state_.step == started_at_ + kRateSteps;
    if (log_point || first_rate) synchronize(config_.device);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    state_.train_seconds += seconds;
    seconds_since_log_ += seconds;
    if (state_.step > started_at_ + 1) seconds_after_first_ += seconds;
    if (first_rate && !log_point) say_rate();
    if (log_point) log();
    progress_.at("training", state_.step, config_.steps());
  }

  /// The first step allocates and is left out.
  void say_rate() {
    progress_.line(fmt::format(
        "measured {:.2f} steps/s: {} to go{}, evaluations not counted",
        (kRateSteps - 1) / seconds_after_first_,
        duration_text(time_left_.after(seconds_after_first_, started_at_ + 1, state_.step)),
        config_.batches.grow_steps > state_.step ? " with the longer ones" : ""));
  }

  void log() {
    const TrainMetrics metrics = trainer_.take_metrics();
    if (!std::isfinite(metrics.loss)) {
      throw NonFiniteError(fmt::format(
          "train: the loss is not finite between steps {} and {}; {} (train --check-finite names "
          "the first op that went wrong)",
          logged_step_, state_.step,
          fs::exists(folder_.last()) ? folder_.last().string() + " keeps the last good state"
                                     : "no checkpoint was written yet"));
    }
    // Steps of an earlier process are in the mean, but not in this process's clock.
    const auto steps = static_cast<double>(state_.step - std::max(logged_step_, started_at_));
    const double seconds = std::max(seconds_since_log_, 1e-9);
    LogPoint point{state_.step, config_.steps(),
                   scores_text(config_, metrics.loss, metrics.accuracy)};
    point.lr = config_.schedule.lr(state_.step - 1);
    point.steps_per_second = steps / seconds;
    point.tokens_per_second = static_cast<double>(tokens_since_log_) / seconds;
    point.seconds_left =
        time_left_.after(seconds, std::max(logged_step_, started_at_), state_.step);
    progress_.log(point);
    Json metric = {{"kind", "train"},
                   {"step", point.step},
                   {"loss", metrics.loss},
                   {"accuracy", metrics.accuracy},
                   {"lr", point.lr},
                   {"steps_per_second", point.steps_per_second},
                   {"tokens_per_second", point.tokens_per_second}};
    add_objective(metric, config_, metrics.loss);
    folder_.add_metric(std::move(metric));
    logged_step_ = state_.step;
    seconds_since_log_ = 0;
    tokens_since_log_ = 0;
  }

  [[nodiscard]] Evaluation evaluate_split(const data::Dataset& split, std::int64_t examples,
                                          const std::string& what) {
    data::BatchOptions batches = config_.batches;
    batches.batch = config_.microbatch();
    EvaluateOptions options;
    options.examples = examples;
    options.seed = config_.seed;
    options.positions = config_.microbatch_limits().positions;
    if (predicts_masked(config_)) options.masking = config_.pretraining.masking;
    options.stop = [] { return signal_received() != 0; };
    options.progress = [&](std::int64_t done, std::int64_t total) {
      progress_.at(what, done, total);
    };
    return evaluator_(split, batches, options);
  }

  void evaluate_dev() {
    const Evaluation e = evaluate_split(splits_.dev, config_.eval_examples, "dev");
    if (e.interrupted) return;
    last_dev_ = e;
    state_.evaluated = state_.step;
    const bool partial = e.examples < splits_.dev.size();
    progress_.line(fmt::format("step {}  dev {}  ({}{} examples, {})", state_.step,
                               scores_text(config_, e.loss, e.accuracy),
                               partial ? "the first " : "", e.examples, duration_text(e.seconds)));
    Json metric = {
        {"kind", "eval"},         {"split", "dev"},         {"step", state_.step},
        {"loss", e.loss},         {"accuracy", e.accuracy}, {"examples", e.examples},
        {"partial", partial},     {"seconds", e.seconds},   {"train_seconds", state_.train_seconds},
        {"tokens", state_.tokens}};
    add_objective(metric, config_, e.loss);
    folder_.add_metric(std::move(metric));
    if (!predicts_masked(config_)) {
      const std::string passed = state_.reached.add(
          splits_.dev.name(), {state_.step, state_.train_seconds, state_.tokens, e.accuracy});
      if (!passed.empty()) progress_.line(passed);
    }
    select(e);
  }

  /// Keeps the weights if they are the best so far. Evaluations before `select_after` count only
  /// while there is no later one.
  void select(const Evaluation& e) {
    const bool counts = static_cast<double>(state_.step) >=
                        config_.select_after * static_cast<double>(config_.steps());
    if (counts && !state_.selecting) {
      state_.selecting = true;
      state_.best_step = -1;
    }
    const bool by_accuracy = config_.select == Select::best_accuracy;
    const double metric = by_accuracy ? e.accuracy : e.loss;
    const bool better = by_accuracy ? metric > state_.best_metric : metric < state_.best_metric;
    if (state_.best_step >= 0 && !better) {
      ++state_.stale;
      return;
    }
    state_.best_metric = metric;
    state_.best_step = state_.step;
    state_.stale = 0;
    if (config_.select != Select::last) save(folder_.best());
  }

  void save(const fs::path& path) { save_checkpoint(path, model_, trainer_, state_, json_); }

  int say_stopped() {
    const int signal = signal_received();
    progress_.line(fmt::format(
        "stopped {} step {} of {}; {} holds the run: the same command with --resume goes on",
        signal != 0 ? "by a signal after" : "as asked after", state_.step, config_.steps(),
        folder_.last().string()));
    return signal == 0 ? 0 : 128 + signal;
  }

  int say_finished() {
    progress_.line(fmt::format("{}: finished before, not run again", folder_.path().string()));
    print_result(*finished_before_, folder_.result());
    return 0;
  }

  /// How training ended; nothing is evaluated yet.
  [[nodiscard]] Outcome outcome() const {
    const std::int64_t peak = memory_stats(config_.device).peak_bytes;
    const std::int64_t parameters = model_.parameters().parameter_count();
    return {state_, state_.step, peak, parameters, trainer_.graphs().counts(), {}, {}};
  }

  /// What pre-training ends with: hidden tokens of the dev split. The test split is not looked at.
  int finish_pretraining() {
    Outcome ended = outcome();
    ended.dev = last_dev_ ? *last_dev_ : evaluate_split(splits_.dev, config_.eval_examples, "dev");
    if (ended.dev.interrupted) return say_stopped();
    Json result = pretraining_result_json(config_, json_, ended);
    add_objective(result, config_, ended.dev.loss);
    folder_.write_json(folder_.result(), result);
    print_result(result, folder_.result());
    return 0;
  }

  /// Dev and test over whole splits with the selected weights.
  int finish() {
    if (predicts_masked(config_)) return finish_pretraining();
    Outcome ended = outcome();  // before evaluations, which may take more memory
    if (config_.select != Select::last) {
      const SafetensorsFile best = read_safetensors(folder_.best());
      ended.selected_step = read_facts(best, folder_.best()).state.step;
      load_weights(best, folder_.best(), model_);
    }
    ended.dev = evaluate_split(splits_.dev, 0, "dev");
    if (!ended.dev.interrupted) ended.test = evaluate_split(splits_.test, 0, "test");
    if (ended.dev.interrupted || ended.test.interrupted) return say_stopped();
    for (const auto& [split, e] : {std::pair("dev", ended.dev), std::pair("test", ended.test)}) {
      folder_.add_metric({{"kind", "final"},
                          {"split", split},
                          {"step", state_.step},
                          {"final_loss", e.loss},
                          {"final_accuracy", e.accuracy}});
    }
    const Json result = result_json(config_, json_, ended);
    folder_.write_json(folder_.result(), result);
    print_result(result, folder_.result());
    const std::string warning = baseline_warning(config_, ended.test);
    if (!warning.empty()) progress_.line(warning);
    return 0;
  }

  const TrainOptions& options_;
  Progress progress_;
  Splits splits_;
  const RunConfig config_;
  Json json_;                            // config.json
  std::optional<Json> finished_before_;  // result.json of an earlier process
  nn::Model model_;
  const std::string started_from_;                // what is said of --init
  const std::unique_ptr<const RunFolder> whole_;  // of the run that this phase is the first of
  RunFolder folder_;
  const TimeLeft time_left_;
  Trainer trainer_;
  Evaluator evaluator_;
  RunState state_;
  std::optional<Evaluation> last_dev_;  // of step state_.evaluated, if it was this process's
  std::int64_t started_at_ = 0;         // step at which this process took over
  std::int64_t logged_step_ = 0;        // step of the last log point
  double seconds_since_log_ = 0, seconds_after_first_ = 0;
  std::int64_t tokens_since_log_ = 0;
};

}  // namespace

int run_phase(const RunConfig& config, const TrainOptions& options) {
  set_precision(config.device, config.precision);
  watch_signals();
  return Run(config, options).go();
}

}  // namespace skytape::train
