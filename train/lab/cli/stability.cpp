#include <fmt/format.h>

#include <memory>

#include "tensor/core/error.hpp"
#include "train/cli/cli.hpp"
#include "train/lab/cli/lab_cli.hpp"
#include "train/lab/studies/experiment.hpp"
#include "train/lab/studies/stability.hpp"
#include "train/process/progress.hpp"
#include "train/run/splits.hpp"

namespace skytape::train {
namespace {

struct StabilityFlags {
  RunFlags run;
  StabilityOptions options;
  std::string tasks = "listops,text,retrieval,pathfinder,image", attention = "all", out;
  std::string trained = "nystrom_sm,skyformer", trained_task = "listops";
  std::int64_t trained_steps = 300, trained_batch = 8;
};

/// A training whose gradients are recorded.
struct Training {
  RunConfig config;
  data::Dataset train;
};

std::vector<Training> trainings(const StabilityFlags& flags, const Choices& base) {
  std::vector<Training> all;
  if (flags.trained_steps == 0) return all;
  Progress progress;
  for (const std::string& method : split_list("--train-attention", flags.trained)) {
    Choices choices = base;
    choices.task = flags.trained_task;
    choices.attention = method;
    choices.settings.push_back({"steps", std::to_string(flags.trained_steps), "--train-steps"});
    choices.settings.push_back({"batch", std::to_string(flags.trained_batch), "--train-batch"});
    const RunConfig config = resolve(choices);
    const data::Dataset train = open_splits(config, progress).train;
    all.push_back({config_for(config, train), train});
  }
  return all;
}

int run(const Command& command, StabilityFlags flags) {
  for (const char* flag : {"--train-attention", "--train-task", "--train-batch"}) {
    if (flags.trained_steps > 0 || command.count(flag) == 0) continue;
    throw UsageError(fmt::format("stability: {} has no effect with --train-steps 0", flag));
  }
  StabilityOptions& options = flags.options;
  const Choices& base = options.base = flags.run.choices();
  options.methods = method_list(flags.attention);
  options.tasks = task_list(flags.tasks);
  const std::vector<Training> trained = trainings(flags, base);  // before scores are measured
  Experiment experiment("stability", flags.out);
  experiment.note("recipe", base.recipe);
  experiment.note("seed", base.seed);
  experiment.note("steps", options.steps);
  experiment.note("batch", options.batch);
  const StabilityStudy study = measure_stability(options);
  experiment.add(stability_table(study));
  experiment.add(score_table(study));
  if (!trained.empty()) {
    std::vector<GradientTrace> traces;
    for (const Training& t : trained) traces.push_back(trace_gradients(t.config, t.train));
    experiment.note("trained on", flags.trained_task);
    experiment.note("examples of a step there", flags.trained_batch);
    experiment.add(gradient_table(traces));
    experiment.detail("gradients", to_json(traces));
  }
  experiment.save(/*has_pictures=*/!trained.empty());
  return 0;
}

}  // namespace

void add_stability(const Command& program) {
  const Command command = program.add_command(
      "stability", "how far a step moves the embedding, and gradients that explode");
  const auto flags = std::make_shared<StabilityFlags>();
  flags->run.recipe = "skyformer";
  command.add_option("--tasks", flags->tasks, "tasks a,b,… or all");
  command.add_option("--attention", flags->attention, "methods a,b,… or all; softmax for ratios");
  command.add_option("--recipe", flags->run.recipe, recipe_help());
  command.add_option("--steps", flags->options.steps, "steps over which scores are averaged")
      .between(1, 100000);
  command.add_option("--batch", flags->options.batch, "examples of a step; 0: the recipe's")
      .between(0, 65536);
  command.add_option("--train-attention", flags->trained, "methods whose gradients are recorded");
  command.add_option("--train-task", flags->trained_task, "task they are trained on");
  command.add_option("--train-steps", flags->trained_steps, "training steps; 0: no training")
      .between(0, 10000000);
  command.add_option("--train-batch", flags->trained_batch, "examples of a step there")
      .between(1, 65536);
  command.add_option("--set", flags->run.set, "key=value: any recipe key").no_default();
  command.add_option("--seed", flags->run.seed, "of initial values, order and draws");
  command.add_option("--data", flags->run.data, "folder of prepared data sets");
  command.add_option("--device", flags->run.device, "auto, cpu or cuda");
  command.add_option("--threads", flags->run.threads, "CPU threads; 0: all cores");
  command.add_option("--out", flags->out, kPicturesHelp);
  command.runs([command, flags] { return run(command, *flags); });
}

}  // namespace skytape::train
