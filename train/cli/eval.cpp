#include <fmt/format.h>

#include <memory>

#include "tensor/core/error.hpp"
#include "tensor/core/suggest.hpp"
#include "train/cli/cli.hpp"
#include "train/config/splits.hpp"
#include "train/process/progress.hpp"
#include "train/process/version.hpp"
#include "train/runs/saved_model.hpp"
#include "train/step/evaluate.hpp"

namespace skytape::train {
namespace {

struct EvalFlags {
  RunFlags run;
  std::string folder, weights, checkpoint = "best", split = "test";
  std::int64_t examples = 0;
  bool own_data = false;    // --data was given
  std::string overwritten;  // a flag that the saved configuration of --run decides
};

SavedModel load(const EvalFlags& flags) {
  if (flags.folder.empty() == flags.weights.empty()) {
    throw UsageError("eval: give either --run DIR or --weights FILE.safetensors");
  }
  const Choices choices = flags.run.choices();
  if (flags.folder.empty()) return load_file(flags.weights, resolve(choices));
  const std::string ignored =
      choices.values.empty() ? flags.overwritten : choices.values.front().said_by;
  if (!ignored.empty()) {
    throw UsageError(fmt::format(
        "eval: {} has no effect with --run, whose configuration is saved with it", ignored));
  }
  SavedModel saved = load_run(flags.folder, flags.checkpoint, choices.device);
  if (flags.own_data) saved.config.data_root = flags.run.data;
  return saved;
}

int run(const EvalFlags& flags) {
  if (flags.split != "dev" && flags.split != "test") {
    throw UsageError(unknown_name("split", flags.split, {"dev", "test"}));
  }
  const SavedModel saved = load(flags);
  Progress progress;
  const Splits splits = open_splits(saved.config, progress);
  const data::Dataset& split = flags.split == "dev" ? splits.dev : splits.test;
  data::BatchOptions batches = saved.config.batches;
  batches.batch = saved.config.microbatch();
  EvaluateOptions options;
  options.examples = flags.examples;
  options.seed = saved.config.seed;
  options.positions = saved.config.microbatch_limits().positions;
  options.progress = [&](std::int64_t done, std::int64_t total) {
    progress.at(flags.split, done, total);
  };
  const Evaluation e = evaluate(*saved.model, split, batches, options);
  fmt::print("{} {}: {} accuracy {:.2f} %, loss {:.5f} over {}{} examples{}\n", split.name(),
             saved.config.method->name, flags.split, 100 * e.accuracy, e.loss,
             e.examples < split.size() ? "the first " : "", e.examples,
             saved.step < 0 ? "" : fmt::format(" (weights of step {})", saved.step));
  return 0;
}

}  // namespace

void add_eval(CommandLine& program) {
  Command command = program.command("eval", "accuracy of trained weights on a whole split");
  const auto flags = std::make_shared<EvalFlags>();
  flags->run.declare(command);
  command.option("--run", flags->folder, "run folder");
  command.option("--weights", flags->weights,
                 "weights of the model that --task, --attention, ... describe");
  command.option("--checkpoint", flags->checkpoint, "of the run: best or last").show_default();
  command.option("--split", flags->split, "dev or test").show_default();
  command.option("--examples", flags->examples, "only the first so many; 0: all")
      .range(0, std::int64_t{1} << 40)
      .show_default();
  command.runs([command, flags] {
    flags->own_data = command.given("--data");
    for (const char* flag : {"--task", "--attention", "--recipe", "--seed"}) {
      if (command.given(flag)) flags->overwritten = flag;
    }
    return run(*flags);
  });
}

}  // namespace skytape::train
