#include <fmt/format.h>

#include <memory>

#include "tensor/core/error.hpp"
#include "train/cli/cli.hpp"
#include "train/process/launch.hpp"
#include "train/ranks/ranks.hpp"
#include "train/run/memory_estimate.hpp"
#include "train/run/phases.hpp"
#include "train/run/plan.hpp"
#include "train/run/seeds.hpp"

namespace skytape::train {
namespace {

struct TrainFlags {
  RunFlags run;
  Request request;
  std::string out, init;
  bool resume = false, force = false, print_config = false, no_graph = false;
  std::string reduce = "auto";
  std::int64_t rank_timeout = 40;  // seconds
  std::string of_ranks;            // a flag of theirs that the user gives; empty: none
};

/// Every effective value, and what they cost in memory with examples of full length.
int print_config(const RunConfig& config) {
  fmt::print("{}{}\n", to_text(config), memory_text(config, config.batches.nominal_length));
  return 0;
}

/// The flags as plan() takes them.
Request request_of(TrainFlags flags, bool pretraining, const Ranks& ranks) {
  if (flags.run.threads == 0 && !ranks.alone()) flags.run.threads = ranks.default_threads();
  Request request = flags.request;
  request.choices = flags.run.choices();
  request.pretraining = pretraining;
  request.out = flags.out;
  if (flags.resume && flags.force) {
    throw UsageError(fmt::format("{}: --resume and --force exclude each other",
                                 pretraining ? "pretrain" : "train"));
  }
  request.options.existing = flags.resume  ? ExistingRun::resume
                             : flags.force ? ExistingRun::replace
                                           : ExistingRun::refuse;
  request.options.graphs = !flags.no_graph;
  request.options.init = flags.init;
  request.options.ranks = &ranks;
  request.runs = !flags.print_config;
  if (!request.budget.empty() && !ranks.alone()) {
    throw UsageError("train: --budget times one process; under mpirun expected --steps");
  }
  return request;
}

/// Makes sure that all ranks take the same way through the runs and phases: on different ones they
/// would wait for each other without an end.
void refuse_other_course(const Request& request, const Ranks& ranks) {
  const std::string mine =
      fmt::format("--seeds {}{}", request.seeds, request.options.resumes() ? " --resume" : "");
  const std::string firsts = ranks.first([&] { return mine; });
  together(ranks, [&] {
    if (mine == firsts) return;
    throw UsageError(fmt::format("flags: {} on rank 0, {} here", firsts, mine));
  });
}

/// The work of one rank.
int run(const TrainFlags& flags, bool pretraining, const Ranks& ranks) {
  if (!flags.of_ranks.empty() && !launched().by_launcher) {
    throw UsageError(
        fmt::format("{}: {} has no effect on one process; expected ranks, which mpirun starts",
                    pretraining ? "pretrain" : "train", flags.of_ranks));
  }
  Request request;
  together(ranks, [&] { request = request_of(flags, pretraining, ranks); });
  refuse_other_course(request, ranks);
  const RunConfig config = plan(request);
  if (flags.print_config) return ranks.first() ? print_config(config) : 0;
  if (pretraining) return pretrain(config, request.options);
  if (request.seeds > 1) return train_seeds(request.choices, request.seeds, request.options);
  return train(config, request.options);
}

int run_ranks(const Command& command, TrainFlags& flags, bool pretraining) {
  flags.run.note_given(command);
  for (const char* flag : {"--reduce", "--rank-timeout"}) {
    if (command.count(flag) > 0) flags.of_ranks = flag;
  }
  return with_ranks({parse_reduce(flags.reduce), static_cast<double>(flags.rank_timeout)},
                    [&](const Ranks& ranks) { return run(flags, pretraining, ranks); });
}

/// Declares the flags that `train` and `pretrain` share.
void declare(const Command& command, TrainFlags& flags) {
  flags.run.declare(command);
  command.add_option("--init", flags.init,
                     "start from the weights of that run's folder or checkpoint file, or of that "
                     "folder of a BERT or RoBERTa encoder");
  command.add_flag(
      "--resume", flags.resume,
      "continue the run in the folder, bit for bit; settings that are not given stay as they were");
  command.add_flag("--force", flags.force, "replace the run in the folder");
  command
      .add_option("--stop-after", flags.request.options.stop_after,
                  "write a checkpoint after that step and stop; the schedule stays")
      .between(1, std::int64_t{1} << 40)
      .no_default();
  command.add_option("--log-every", flags.request.options.log_every, "steps between log points")
      .between(1, std::int64_t{1} << 40);
  command.add_flag("--print-config", flags.print_config,
                   "print every effective value with its origin, and stop");
  command.add_flag("--check-finite", flags.request.options.check_finite,
                   "name the first op whose output or gradient is not finite (slow)");
  command.add_option("--reduce", flags.reduce,
                     "sum of gradients over ranks (mpirun): ordered, with the bits of one process, "
                     "or fast; auto: ordered on CPUs");
  command
      .add_option("--rank-timeout", flags.rank_timeout,
                  "seconds that the ranks wait for one of them before they give up")
      .between(1, 86400);
  command.add_flag("--no-graph", flags.no_graph,
                   "cuda: submit every step op by op instead of replaying CUDA graphs");
}

}  // namespace

void add_train(const Command& program) {
  const Command command = program.add_command("train", "train a model and test it");
  const auto flags = std::make_shared<TrainFlags>();
  declare(command, *flags);
  command.add_option("--out", flags->out,
                     "run folder [runs/<task>-<attention>-<recipe>-s<seed>]; with --seeds: the "
                     "folder of the run folders [runs]");
  command.add_option("--budget", flags->request.budget,
                     "as many steps as fit this time here, e.g. 90s, 20m or 1.5h, evaluations not "
                     "counted; instead of --steps");
  command
      .add_option("--seeds", flags->request.seeds,
                  "train so many seeds from --seed on, one after another, and summarise them")
      .between(1, 10000);
  command.runs_as_rank([command, flags] { return run_ranks(command, *flags, false); });
}

void add_pretrain(const Command& program) {
  const Command command = program.add_command(
      "pretrain", "train an encoder to predict hidden tokens of the train split");
  const auto flags = std::make_shared<TrainFlags>();
  declare(command, *flags);
  command.add_option("--out", flags->out,
                     "run folder [runs/<task>-<attention>-<recipe>-pretrain-s<seed>]");
  command.runs_as_rank([command, flags] { return run_ranks(command, *flags, true); });
}

}  // namespace skytape::train
