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
#include "train/loop/announcement.hpp"
#include "train/loop/objective.hpp"
#include "train/loop/selection.hpp"
#include "train/loop/time_left.hpp"
#include "train/opening/memory_estimate.hpp"
#include "train/opening/rank_share.hpp"
#include "train/opening/splits.hpp"
#include "train/process/progress.hpp"
#include "train/process/signals.hpp"
#include "train/process/version.hpp"
#include "train/runs/checkpoint.hpp"
#include "train/runs/earlier.hpp"
#include "train/runs/init.hpp"
#include "train/runs/result.hpp"
#include "train/step/class_scores.hpp"
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

/// One run from start, or from its last checkpoint, to its end.
class Run {
 public:
  Run(const RunConfig& config, const TrainOptions& options)
      : options_(options),
        ranks_(*options.ranks),
        splits_(open_splits(config, progress_, ranks_)),
        config_(fitted(config, splits_.train)),
        finished_(look_before()),
        model_(model_for(config_, splits_.train), DType::f32, config_.device, config_.seed),
        started_from_(take_init()),
        whole_(options.part_of.empty() ? nullptr : open_folder(options.part_of)),
        folder_(open_folder(options.out)),
        time_left_(splits_.train, config_.batches, config_.steps()),
        trainer_(model_, config_.adamw, config_.schedule, config_.seed,
                 microbatch_limits(config_, ranks_), options.graphs, ranks_),
        evaluator_(model_, options.graphs, ranks_) {
    trainer_.check_finite(options.check_finite);
    if (finished_) return;
    ranks_.together([this] {
      if (ranks_.first()) restore();
    });
    share_training(ranks_, state_, model_, trainer_);
    started_at_ = state_.step;
    logged_step_ = state_.step - trainer_.summed_steps();
  }

  int go() {
    if (finished_) return ranks_.first() ? say_finished() : 0;
    for (const std::string& line : announcement(
             config_, splits_.train, model_.parameters().parameter_count(), options_.out, ranks_)) {
      say(line);
    }
    reset_peak_bytes(config_.device);
    data::Loader loader(training_batches(config_, splits_.train, state_.cursor));
    const double waited_before = state_.waited_seconds;
    for (;;) {
      if (evaluation_due()) evaluate_dev();
      if (finished()) break;
      if (must_stop()) {
        save(last_file());
        return say_stopped();
      }
      if (state_.step != started_at_ && state_.step % config_.checkpoint_every == 0) {
        save(last_file());
      }
      one_step(*loader.next());
      state_.waited_seconds = waited_before + loader.waited_seconds();
    }
    save(last_file());
    return finish();
  }

 private:
  /// Refuses what cannot be, on all ranks alike and before the folder is touched. Returns whether the
  /// run is finished already.
  bool look_before() {
    check_ranks();
    ranks_.together([this] {
      if (ranks_.first()) check_folder();
    });
    const bool finished = ranks_.largest(finished_before_.has_value()) == 1;
    ranks_.together([&] {
      if (!finished) refuse_if_too_large(config_, longest_sequence(splits_.train));
    });
    return finished;
  }

  /// Makes sure that all ranks mean the same run, and that there is work for each.
  void check_ranks() const {
    agree(config_, splits_,
          {{"--stop-after", options_.stop_after},
           {"--log-every", options_.log_every},
           {"--check-finite", options_.check_finite},
           {"--reduce", adds_up(config_, ranks_)}},
          ranks_);
    ranks_.together([&] { refuse_idle_ranks(config_, longest_sequence(splits_.train), ranks_); });
  }

  /// What the folder holds; rank 0 looks.
  void check_folder() {
    json_ = full_config(config_, splits_, options_);
    if (options_.existing != RunFolder::Existing::resume) return;
    refuse_other_run(options_.out, json_);
    finished_before_ = finished_result(options_.out, json_);
    if (!finished_before_ && !resumes()) start_anew();
  }

  /// Whether a checkpoint is there to go on from; asked by rank 0.
  [[nodiscard]] bool resumes() const {
    return options_.existing == RunFolder::Existing::resume && fs::exists(last_file());
  }

  /// Loads the weights that a new run starts from, on rank 0: share_training() hands them on. A line
  /// about it, empty if there are none.
  std::string take_init() {
    std::string said;
    ranks_.together([&] {
      if (!ranks_.first() || options_.init.empty() || finished_ || resumes()) return;
      said = load_init(checkpoint_in(options_.init), model_, json_);
    });
    return said;
  }

  /// Opens a folder on rank 0; the others have none.
  std::unique_ptr<RunFolder> open_folder(const fs::path& path) const {
    std::unique_ptr<RunFolder> folder;
    ranks_.together([&] {
      if (ranks_.first()) folder = std::make_unique<RunFolder>(path, options_.existing);
    });
    return folder;
  }

  /// Says that --resume begins at the beginning, and refuses to where steps have been lost.
  void start_anew() {
    refuse_lost_run(options_.out, json_, !options_.init.empty());
    say(fmt::format("{}: nothing to resume, starting at step 1", options_.out.string()));
  }

  void restore() {
    const bool going_on = resumes();
    if (going_on) {
      const SafetensorsFile file = read_safetensors(last_file());
      const CheckpointFacts saved = facts_of_this_run(file, last_file(), json_);
      if (config_.select != Select::last && saved.state.best_step >= 0) {
        load_best(best_file(), json_, saved.state, model_);  // now: its absence would cost hours
      }
      state_ = saved.state;
      load_training(file, last_file(), state_, model_, trainer_);
      for (const std::string& warning : warnings_elsewhere(saved.config, json_)) say(warning);
      say(fmt::format("resuming {} at step {}", options_.out.string(), state_.step));
    }
    if (!started_from_.empty()) say(started_from_);
    if (!fs::exists(folder_->config())) write_config();
    if (!going_on) save(last_file());  // before the first metric, which is never without one
    folder_->start_metrics(state_.step);
  }

  /// config.json stays where it is: it alone also says where the data lie, from any folder.
  void write_config() const {
    Json own = json_;
    own["data_root"] = fs::absolute(config_.data_root).lexically_normal().string();
    folder_->write_json(folder_->config(), own);
  }

  [[nodiscard]] bool evaluation_due() const {
    const bool point = state_.step % config_.eval_every == 0 || state_.step == config_.steps();
    return state_.step > 0 && point && state_.evaluated < state_.step;
  }

  [[nodiscard]] bool finished() const {
    // An evaluation that a signal cut short is made up for first.
    return !evaluation_due() && (state_.step >= config_.steps() || is_stale(config_, state_));
  }

  [[nodiscard]] bool must_stop() {
    return signalled() || (options_.stop_after > 0 && state_.step >= options_.stop_after);
  }

  /// Whether a signal came, to whichever rank: all stop at the same step.
  [[nodiscard]] bool signalled() {
    signal_ = ranks_.largest(signal_received());
    return signal_ != 0;
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
    if (ranks_.first()) progress_.at("training", state_.step, config_.steps());
  }

  /// The first step allocates and is left out.
  void say_rate() {
    say(fmt::format(
        "measured {:.2f} steps/s: {} to go{}, evaluations not counted",
        (kRateSteps - 1) / seconds_after_first_,
        duration_text(time_left_.after(seconds_after_first_, started_at_ + 1, state_.step)),
        config_.batches.grow_steps > state_.step ? " with the longer ones" : ""));
  }

  void log() {
    const TrainMetrics metrics = trainer_.take_metrics();
    if (!std::isfinite(metrics.loss)) {
      throw NonFiniteError(fmt::format("train: the loss is not finite between steps {} and {}; {}",
                                       logged_step_, state_.step, last_good_state(options_.out)));
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
    if (ranks_.first()) progress_.log(point);
    Json metric = {{"kind", "train"},
                   {"step", point.step},
                   {"loss", metrics.loss},
                   {"accuracy", metrics.accuracy},
                   {"lr", point.lr},
                   {"steps_per_second", point.steps_per_second},
                   {"tokens_per_second", point.tokens_per_second}};
    add_objective(metric, config_, metrics.loss);
    add_metric(std::move(metric));
    logged_step_ = state_.step;
    seconds_since_log_ = 0;
    tokens_since_log_ = 0;
  }

  [[nodiscard]] Evaluation evaluate_split(const data::Dataset& split, std::int64_t examples,
                                          const std::string& what) {
    data::BatchOptions batches = config_.batches;
    batches.batch = config_.microbatch();
    EvaluateOptions options;
    options.what = what;
    options.examples = examples;
    options.seed = config_.seed;
    options.positions = config_.microbatch_limits().positions;
    if (predicts_masked(config_)) options.masking = config_.pretraining.masking;
    options.stop = [this] { return signalled(); };
    options.progress = [&](std::int64_t done, std::int64_t total) {
      if (ranks_.first()) progress_.at(what, done, total);
    };
    try {
      return evaluator_(split, batches, options);
    } catch (const NonFiniteError& error) {
      throw NonFiniteError(fmt::format("train: after step {}, {}; {}", state_.step, error.what(),
                                       last_good_state(options_.out)));
    }
  }

  void evaluate_dev() {
    const Evaluation e = evaluate_split(splits_.dev, config_.eval_examples, "dev");
    if (e.interrupted) return;
    last_dev_ = e;
    state_.evaluated = state_.step;
    const bool partial = e.examples < splits_.dev.size();
    const bool own = data::is_own_data(*config_.task) && !predicts_masked(config_);
    say(fmt::format(
        "step {}  dev {}{}  ({}{} examples, {})", state_.step,
        scores_text(config_, e.loss, e.accuracy),
        own ? fmt::format(" (the largest class alone {:.2f} %)", 100 * majority_share(e.confusion))
            : "",
        partial ? "the first " : "", e.examples, duration_text(e.seconds)));
    Json metric = {
        {"kind", "eval"},         {"split", "dev"},         {"step", state_.step},
        {"loss", e.loss},         {"accuracy", e.accuracy}, {"examples", e.examples},
        {"partial", partial},     {"seconds", e.seconds},   {"train_seconds", state_.train_seconds},
        {"tokens", state_.tokens}};
    add_objective(metric, config_, e.loss);
    add_metric(std::move(metric));
    if (!predicts_masked(config_)) {
      const std::string passed = state_.reached.add(
          splits_.dev.name(), {state_.step, state_.train_seconds, state_.tokens, e.accuracy});
      if (!passed.empty()) say(passed);
    }
    if (select(config_, e, state_) && config_.select != Select::last) save(best_file());
  }

  /// A line of progress, by rank 0.
  void say(const std::string& text) {
    if (ranks_.first()) progress_.line(text);
  }

  [[nodiscard]] fs::path result_file() const { return options_.out / "result.json"; }
  [[nodiscard]] fs::path last_file() const { return options_.out / "last.safetensors"; }
  [[nodiscard]] fs::path best_file() const { return options_.out / "best.safetensors"; }

  /// A checkpoint, by rank 0: all have the same weights.
  void save(const fs::path& path) {
    if (ranks_.first()) save_checkpoint(path, model_, trainer_, state_, json_);
  }

  void add_metric(Json metric) {
    if (ranks_.first()) folder_->add_metric(std::move(metric));
  }

  int say_stopped() {
    const int signal = signal_;
    if (config_.device == Device::cuda) {
      const StepCounts& ran = trainer_.graphs().counts();
      say(fmt::format("how steps ran: {} replayed, {} of them when captured, {} op by op",
                      ran.replayed, ran.captured, ran.direct));
    }
    say(fmt::format(
        "stopped {} step {} of {}; {} holds the run: the same command with --resume goes on",
        signal != 0 ? "by a signal after" : "as asked after", state_.step, config_.steps(),
        last_file().string()));
    return signal == 0 ? 0 : 128 + signal;
  }

  int say_finished() {
    say(fmt::format("{}: finished before, not run again", options_.out.string()));
    print_result(*finished_before_, result_file());
    return 0;
  }

  /// How training ended; nothing is evaluated yet.
  [[nodiscard]] Outcome outcome() const {
    const std::int64_t peak = memory_stats(config_.device).peak_bytes;
    return {.state = state_,
            .selected_step = state_.step,
            .peak_bytes = peak,
            .parameters = model_.parameters().parameter_count(),
            .ranks = ranks_.size(),
            .exchange_seconds = trainer_.exchange_seconds(),
            .steps = trainer_.graphs().counts(),
            .dev = {},
            .test = {}};
  }

  /// What pre-training ends with: hidden tokens of the dev split. The test split is not looked at.
  int finish_pretraining() {
    Outcome ended = outcome();
    ended.dev = last_dev_ ? *last_dev_ : evaluate_split(splits_.dev, config_.eval_examples, "dev");
    if (ended.dev.interrupted) return say_stopped();
    if (!ranks_.first()) return 0;
    Json result = pretraining_result_json(config_, json_, ended);
    add_objective(result, config_, ended.dev.loss);
    folder_->write_json(result_file(), result);
    print_result(result, result_file());
    return 0;
  }

  /// Loads the weights that are tested, on all ranks. Returns their step, on rank 0.
  std::int64_t load_selected() {
    if (config_.select == Select::last) return state_.step;
    std::int64_t step = 0;
    ranks_.together([&] {
      if (!ranks_.first()) return;
      const SafetensorsFile file = read_safetensors(best_file());
      step = read_facts(file, best_file()).state.step;
      load_weights(file, best_file(), model_);
    });
    ranks_.broadcast(model_.parameters().values());
    return step;
  }

  /// Dev and test over whole splits with the selected weights.
  int finish() {
    if (predicts_masked(config_)) return finish_pretraining();
    Outcome ended = outcome();  // before evaluations, which may take more memory
    ended.selected_step = load_selected();
    ended.dev = evaluate_split(splits_.dev, 0, "dev");
    if (!ended.dev.interrupted) ended.test = evaluate_split(splits_.test, 0, "test");
    if (ended.dev.interrupted || ended.test.interrupted) return say_stopped();
    if (ranks_.first()) write_result(ended);
    return 0;
  }

  void write_result(const Outcome& outcome) {
    for (const auto& [split, e] :
         {std::pair("dev", outcome.dev), std::pair("test", outcome.test)}) {
      add_metric({{"kind", "final"},
                  {"split", split},
                  {"step", state_.step},
                  {"final_loss", e.loss},
                  {"final_accuracy", e.accuracy}});
    }
    const Json result = result_json(config_, json_, outcome);
    folder_->write_json(result_file(), result);
    print_result(result, result_file());
    const std::string warning = baseline_warning(config_, outcome.test);
    if (!warning.empty()) say(warning);
  }

  const TrainOptions& options_;
  const Ranks& ranks_;
  Progress progress_;
  Splits splits_;
  const RunConfig config_;
  // Of rank 0, null on the others: config.json, result.json of an earlier process.
  Json json_;
  std::optional<Json> finished_before_;
  bool finished_ = false;  // by an earlier process
  nn::Model model_;
  const std::string started_from_;  // what is said of --init
  // Of rank 0, null on the others: the folder of the run that this phase is the first of; its own.
  const std::unique_ptr<RunFolder> whole_;
  const std::unique_ptr<RunFolder> folder_;
  const TimeLeft time_left_;
  Trainer trainer_;
  Evaluator evaluator_;
  RunState state_;
  int signal_ = 0;                      // that stops the run, on all ranks
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
