#include <fmt/format.h>

#include <memory>

#include "tensor/core/error.hpp"
#include "train/cli/cli.hpp"
#include "train/loop/loop.hpp"
#include "train/loop/seeds.hpp"

namespace skytape::train {
namespace {

struct TrainFlags {
  RunFlags run;
  std::string out;
  bool resume = false, force = false, print_config = false, check_finite = false, no_graph = false;
  std::int64_t seeds = 1, stop_after = 0, log_every = 50;
};

int run(const TrainFlags& flags) {
  const Choices choices = flags.run.choices();
  const RunConfig config = resolve(choices);
  if (flags.print_config) {
    fmt::print("{}", to_text(config));
    return 0;
  }
  if (flags.resume && flags.force)
    throw UsageError("train: --resume and --force exclude each other");
  TrainOptions options;
  options.existing = flags.resume  ? RunFolder::Existing::resume
                     : flags.force ? RunFolder::Existing::replace
                                   : RunFolder::Existing::refuse;
  options.stop_after = flags.stop_after;
  options.log_every = flags.log_every;
  options.check_finite = flags.check_finite;
  options.graphs = !flags.no_graph;
  const std::filesystem::path runs = "runs";
  if (flags.seeds > 1) {
    options.out = flags.out.empty() ? runs : std::filesystem::path(flags.out);
    return train_seeds(choices, flags.seeds, options);
  }
  options.out = flags.out.empty() ? runs / run_name(config) : std::filesystem::path(flags.out);
  return train(config, options);
}

}  // namespace

void add_train(CommandLine& program) {
  Command command = program.command("train", "train a model and test it");
  const auto flags = std::make_shared<TrainFlags>();
  flags->run.declare(command);
  command.option("--out", flags->out,
                 "run folder [runs/<task>-<attention>-<recipe>-s<seed>]; with --seeds: the "
                 "folder of the run folders [runs]");
  command
      .option("--seeds", flags->seeds,
              "train so many seeds from --seed on, one after another, and sum them up")
      .range(1, 10000)
      .show_default();
  command.flag("--resume", flags->resume, "go on with the run in the folder, bit for bit");
  command.flag("--force", flags->force, "replace the run in the folder");
  command
      .option("--stop-after", flags->stop_after,
              "write a checkpoint after that step and stop; the schedule stays")
      .range(1, std::int64_t{1} << 40);
  command.option("--log-every", flags->log_every, "steps between log points")
      .range(1, std::int64_t{1} << 40)
      .show_default();
  command.flag("--print-config", flags->print_config,
               "print every effective value with its origin, and stop");
  command.flag("--check-finite", flags->check_finite,
               "name the first op whose output or gradient is not finite (slow)");
  command.flag("--no-graph", flags->no_graph,
               "cuda: submit every step op by op instead of replaying CUDA graphs");
  command.runs([flags] { return run(*flags); });
}

}  // namespace skytape::train
