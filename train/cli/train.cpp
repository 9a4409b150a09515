#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <thread>

#include "data/files/json.hpp"
#include "tensor/core/error.hpp"
#include "train/cli/cli.hpp"
#include "train/config/resume.hpp"
#include "train/loop/budget.hpp"
#include "train/loop/phases.hpp"
#include "train/loop/seeds.hpp"
#include "train/opening/memory_estimate.hpp"
#include "train/process/progress.hpp"
#include "train/process/version.hpp"
#include "train/ranks/ranks.hpp"
#include "train/runs/init.hpp"
#include "train/runs/run_folder.hpp"

namespace skytape::train {
namespace {

struct TrainFlags {
  RunFlags run;
  std::string out, init, budget;
  bool resume = false, force = false, print_config = false, check_finite = false, no_graph = false;
  std::int64_t seeds = 1, stop_after = 0, log_every = 50;
  std::string reduce = "auto";
  std::int64_t rank_timeout = 40;  // seconds
};

TrainOptions options_of(const TrainFlags& flags, const char* command) {
  if (flags.resume && flags.force) {
    throw UsageError(fmt::format("{}: --resume and --force exclude each other", command));
  }
  TrainOptions options;
  options.existing = flags.resume  ? RunFolder::Existing::resume
                     : flags.force ? RunFolder::Existing::replace
                                   : RunFolder::Existing::refuse;
  options.stop_after = flags.stop_after;
  options.log_every = flags.log_every;
  options.check_finite = flags.check_finite;
  options.graphs = !flags.no_graph;
  options.init = flags.init;
  return options;
}

namespace fs = std::filesystem;

const fs::path kRuns = "runs";

/// The config.json of the run that `train` or `pretrain` would go on with, and its object; a run of
/// two phases has one in the folder of the first until the second begins.
struct Saved {
  fs::path file;
  data::Json config;
};
std::optional<Saved> saved_run(const fs::path& folder, bool pretraining) {
  const fs::path first = folder / kPretrainingFolder / "config.json";
  if (fs::exists(folder / "config.json")) {
    Saved saved{folder / "config.json", read_json(folder / "config.json")};
    if (is_pretraining(saved.config) == pretraining) return saved;
    throw UsageError(fmt::format("{}: a {}, which {} --resume goes on with", folder.string(),
                                 pretraining ? "training" : "pre-training",
                                 pretraining ? "train" : "pretrain"));
  }
  if (pretraining || !fs::exists(first)) return {};
  Saved saved{first, read_json(first)};
  saved.config.erase("phase");
  return saved;
}

/// The same as rank 0 finds it, on all ranks: the folder need not be theirs.
std::optional<Saved> saved_run(const fs::path& folder, bool pretraining, const Ranks& ranks) {
  std::optional<Saved> saved;
  ranks.together([&] {
    if (ranks.first()) saved = saved_run(folder, pretraining);
  });
  if (ranks.alone()) return saved;
  std::string text, file;  // empty: there is none
  if (saved) {
    text = data::json_text(saved->config);
    file = saved->file.string();
  }
  ranks.broadcast(text);
  ranks.broadcast(file);
  if (text.empty()) return {};
  return Saved{file, data::parse_json(text)};
}

/// Every effective value, and what they cost in memory with examples of full length.
int print_config(const RunConfig& config) {
  fmt::print("{}{}\n", to_text(config), memory_text(config, config.batches.nominal_length));
  return 0;
}

/// What the user chose, completed on --resume by what the run in `folder` was started with.
RunConfig configured(const TrainFlags& flags, const Choices& choices, const fs::path& folder,
                     bool pretraining, const Ranks& ranks) {
  std::optional<Saved> saved;
  if (flags.resume) saved = saved_run(folder, pretraining, ranks);
  RunConfig config;
  ranks.together([&] {
    if (flags.resume && !saved && !flags.out.empty() && !flags.run.said.contains("--task")) {
      throw UsageError(
          fmt::format("{}: no run to go on with in {}; expected --out with the folder of "
                      "one, or --task, too, where a new one is to start",
                      pretraining ? "pretrain" : "train", folder.string()));
    }
    if (!saved) {
      config = resolve(choices);
      return;
    }
    // Other numbers of threads may give other last bits.
    const data::Json& machine = saved->config["machine"];
    const int threads = machine.is_null() ? 0 : machine.value("threads", 0);
    if (!flags.run.said.contains("--threads") && threads > 0 &&
        static_cast<unsigned>(threads) <= std::thread::hardware_concurrency()) {
      set_threads(threads);
    }
    config = resumed(choices, flags.run.said, saved->config, saved->file.string());
  });
  return config;
}

/// Whether the weights to start from were pre-trained, so that the embedding has a row for hidden
/// tokens: rank 0 looks.
bool init_has_mask_token(const TrainFlags& flags, const RunConfig& config, const Ranks& ranks) {
  bool has = false;
  ranks.together([&] {
    if (config.pretraining.steps > 0) {
      throw UsageError("train: --init starts from weights, pretrain_steps makes them: one of both");
    }
    if (flags.seeds > 1) throw UsageError("train: --init starts one run, --seeds several");
    if (!ranks.first()) return;
    const bool cls = config.batches.first_token >= 0;
    has = has_mask_token(checkpoint_in(flags.init), *config.task, cls ? 1 : 0);
  });
  return ranks.largest(has) == 1;
}

/// Keys that decide an encoder's tensors.
constexpr const char* kEncoderKeys[] = {"layers",     "width",       "ff_width",     "heads",
                                        "head_width", "norm",        "norm_epsilon", "positions",
                                        "both_ends",  "token_types", "patch",        "ngrams",
                                        "ngram_rows", "conv_width",  "max_length"};

/// Adds what the run of --init had of these keys where it is not what this run would have, and the
/// user says nothing. `method` may have another value in its place, as in a recipe.
void take_encoder_of(const data::Json& settings, Choices& choices) {
  if (!settings.is_object()) return;
  const RunConfig before = resolve(choices);
  const auto had = [&](const std::string& key) -> std::optional<std::string> {
    const data::Json* found = settings.find(key);
    if (found == nullptr || !found->is_object()) return std::nullopt;
    return for_method({key, found->value("value", std::string()), ""}, choices.attention).value;
  };
  for (const char* key : kEncoderKeys) {
    const auto value = had(key);
    const bool said = std::any_of(choices.values.begin(), choices.values.end(),
                                  [&](const Choice& c) { return c.key == key; });
    const bool same =
        std::any_of(before.settings.begin(), before.settings.end(),
                    [&](const Setting& s) { return s.key == key && s.value == value; });
    if (!value || value->empty() || said || same) continue;
    if (key == std::string_view("ngram_rows") && had("ngrams") == "0") continue;
    choices.values.push_back({key, *value, "--init"});
  }
}

/// The same on all ranks; rank 0 reads the file. The config.json of a run that goes on has it all.
void take_encoder_of(const TrainFlags& flags, const fs::path& out, Choices& choices,
                     const Ranks& ranks) {
  if (flags.init.empty()) return;
  std::string text = "null";
  ranks.together([&] {
    const bool goes_on = flags.resume && fs::exists(out / "config.json");
    if (!ranks.first() || goes_on) return;
    text = data::json_text(init_settings(checkpoint_in(flags.init)));
  });
  if (!ranks.alone()) ranks.broadcast(text);
  ranks.together([&] { take_encoder_of(data::parse_json(text), choices); });
}

/// Adds the steps that --budget leaves time for. A run that goes on has its own.
void fit_budget(const TrainFlags& flags, const fs::path& out, Choices& choices,
                const Ranks& ranks) {
  if (flags.budget.empty()) return;
  ranks.together([&] {
    const double seconds = parse_duration("--budget", flags.budget);
    if (!ranks.alone()) {
      throw UsageError("train: --budget times one process; under mpirun expected --steps");
    }
    const bool says_steps = std::any_of(choices.values.begin(), choices.values.end(),
                                        [](const Choice& c) { return c.key == "steps"; });
    if (says_steps) throw UsageError("train: --budget chooses the steps; expected no --steps");
    if (flags.resume && fs::exists(out / "config.json")) return;
    if (resolve(choices).pretraining.steps > 0) {
      throw UsageError(
          "train: --budget is for one phase, pretrain_steps makes two; expected pretrain, then "
          "train --init with --budget");
    }
    const BudgetedSteps found = steps_within(seconds, choices);
    choices.values.push_back({"steps", std::to_string(found.steps), "--budget"});
    Progress().line(
        fmt::format("--budget {}: {} steps, which take {} at the rate measured here, "
                    "evaluations not counted",
                    flags.budget, grouped(found.steps), duration_text(found.seconds)));
  });
}

/// What both commands begin with, on every rank.
struct Asked {
  Choices choices;
  TrainOptions options;
};
Asked asked(TrainFlags& flags, const char* command, const Ranks& ranks) {
  if (flags.run.threads == 0 && !ranks.alone()) flags.run.threads = ranks.fair_threads();
  Asked result;
  ranks.together([&] {
    result.choices = flags.run.choices();
    result.options = options_of(flags, command);
    result.options.ranks = &ranks;
  });
  return result;
}

int run(TrainFlags flags, const Ranks& ranks) {
  Asked all = asked(flags, "train", ranks);
  Choices& choices = all.choices;
  TrainOptions& options = all.options;
  RunConfig config;
  ranks.together([&] {
    if (flags.seeds > 1) config = resolve(choices);
    options.out = !flags.out.empty() ? fs::path(flags.out)
                  : flags.seeds > 1  ? kRuns
                                     : kRuns / run_name(resolve(choices));
  });
  take_encoder_of(flags, options.out, choices, ranks);
  fit_budget(flags, options.out, choices, ranks);
  if (flags.seeds == 1) config = configured(flags, choices, options.out, false, ranks);
  if (!flags.init.empty() && init_has_mask_token(flags, config, ranks)) {
    config = with_mask_token(config);
  }
  if (flags.print_config) return ranks.first() ? print_config(config) : 0;
  if (flags.seeds > 1) return train_seeds(choices, flags.seeds, options);
  return train(config, options);
}

int run_pretraining(TrainFlags flags, const Ranks& ranks) {
  Asked all = asked(flags, "pretrain", ranks);
  Choices& choices = all.choices;
  choices = for_pretraining(std::move(choices));
  TrainOptions& options = all.options;
  options.out = flags.out.empty()
                    ? kRuns / fmt::format("{}-{}-{}-pretrain-s{}", choices.task, choices.attention,
                                          choices.recipe, choices.seed)
                    : fs::path(flags.out);
  take_encoder_of(flags, options.out, choices, ranks);
  const RunConfig config = configured(flags, choices, options.out, true, ranks);
  if (flags.print_config) return ranks.first() ? print_config(config) : 0;
  return pretrain(config, options);
}

RanksOptions ranks_options(const TrainFlags& flags) {
  return {parse_reduce(flags.reduce), static_cast<double>(flags.rank_timeout)};
}

/// What `train` and `pretrain` have in common.
void declare(Command& command, TrainFlags& flags) {
  flags.run.declare(command);
  command.option("--init", flags.init,
                 "start from the weights of that run's folder or checkpoint file, or of that "
                 "folder of a BERT or RoBERTa encoder");
  command.flag("--resume", flags.resume,
               "go on with the run in the folder, bit for bit; what is not said is as it was");
  command.flag("--force", flags.force, "replace the run in the folder");
  command
      .option("--stop-after", flags.stop_after,
              "write a checkpoint after that step and stop; the schedule stays")
      .range(1, std::int64_t{1} << 40);
  command.option("--log-every", flags.log_every, "steps between log points")
      .range(1, std::int64_t{1} << 40)
      .show_default();
  command.flag("--print-config", flags.print_config,
               "print every effective value with its origin, and stop");
  command.flag("--check-finite", flags.check_finite,
               "name the first op whose output or gradient is not finite (slow)");
  command
      .option("--reduce", flags.reduce,
              "how several ranks (mpirun) add up gradients: ordered, with the bits of one process, "
              "or fast; auto: ordered on CPUs")
      .show_default();
  command
      .option("--rank-timeout", flags.rank_timeout,
              "seconds that the ranks wait for one of them before they give up")
      .range(1, 86400)
      .show_default();
  command.flag("--no-graph", flags.no_graph,
               "cuda: submit every step op by op instead of replaying CUDA graphs");
}

}  // namespace

void add_train(CommandLine& program) {
  Command command = program.command("train", "train a model and test it");
  const auto flags = std::make_shared<TrainFlags>();
  declare(command, *flags);
  command.option("--out", flags->out,
                 "run folder [runs/<task>-<attention>-<recipe>-s<seed>]; with --seeds: the "
                 "folder of the run folders [runs]");
  command.option("--budget", flags->budget,
                 "as many steps as take so long here, e.g. 90s, 20m or 1.5h, evaluations not "
                 "counted; in the place of --steps");
  command
      .option("--seeds", flags->seeds,
              "train so many seeds from --seed on, one after another, and sum them up")
      .range(1, 10000)
      .show_default();
  command.runs([command, flags] {
    flags->run.given(command);
    return with_ranks(ranks_options(*flags),
                      [&](const Ranks& ranks) { return run(*flags, ranks); });
  });
}

void add_pretrain(CommandLine& program) {
  Command command =
      program.command("pretrain", "train an encoder to predict hidden tokens of the train split");
  const auto flags = std::make_shared<TrainFlags>();
  declare(command, *flags);
  command.option("--out", flags->out,
                 "run folder [runs/<task>-<attention>-<recipe>-pretrain-s<seed>]");
  command.runs([command, flags] {
    flags->run.given(command);
    return with_ranks(ranks_options(*flags),
                      [&](const Ranks& ranks) { return run_pretraining(*flags, ranks); });
  });
}

}  // namespace skytape::train
