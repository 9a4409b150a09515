#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "data/files/json.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/suggest.hpp"
#include "train/cli/cli.hpp"
#include "train/process/progress.hpp"
#include "train/process/signals.hpp"
#include "train/process/version.hpp"
#include "train/run/saved_model.hpp"
#include "train/step/class_scores.hpp"
#include "train/step/evaluate.hpp"

namespace skytape::train {
namespace {

struct EvalFlags {
  RunFlags run;
  EvaluateOptions options;
  std::string folder, weights, checkpoint = "best", split = "test";
  bool confusion = false, names_checkpoint = false;  // the user did
};

/// A flag of the user's that the saved configuration of --run decides; empty if there is none.
std::string overwritten(const Choices& choices) {
  if (!choices.settings.empty()) return choices.settings.front().origin;
  for (const char* flag : {"--task", "--attention", "--recipe", "--seed"}) {
    if (choices.given.contains(flag)) return flag;
  }
  return {};
}

SavedModel load(const EvalFlags& flags) {
  if (flags.folder.empty() == flags.weights.empty()) {
    throw UsageError("eval: give either --run DIR or --weights FILE.safetensors");
  }
  const Choices choices = flags.run.choices();
  if (flags.folder.empty()) {
    if (flags.names_checkpoint) {
      throw UsageError("eval: --checkpoint has no effect with --weights, which names the file");
    }
    return load_file(flags.weights, choices);
  }
  if (const std::string ignored = overwritten(choices); !ignored.empty()) {
    throw UsageError(fmt::format(
        "eval: {} has no effect with --run, whose configuration is saved with it", ignored));
  }
  SavedModel saved = load_run(flags.folder, flags.checkpoint, choices.device);
  if (choices.given.contains("--data")) saved.config.data_root = choices.data_root;
  return saved;
}

int run(EvalFlags flags) {
  if (flags.split != "dev" && flags.split != "test") {
    throw UsageError(unknown_name("split", flags.split, {"dev", "test"}));
  }
  const SavedModel saved = load(flags);
  watch_signals();
  const data::Dataset split = open_split(saved, flags.split);
  Progress progress;
  data::BatchOptions batches = saved.config.batches;
  batches.batch = saved.config.microbatch();
  EvaluateOptions& options = flags.options;
  options.what = flags.split;
  options.seed = saved.config.seed;
  options.positions = saved.config.microbatch_limits().positions;
  options.progress = [&](std::int64_t done, std::int64_t total) {
    progress.at(flags.split, done, total);
  };
  options.stop = [] { return signal_received() != 0; };
  const Evaluation e = evaluate(*saved.model, split, batches, options);
  if (e.interrupted) stop_if_signalled();
  fmt::print("{} {}: {} accuracy {:.2f} %, loss {:.5f} over {}{} examples{}\n", split.name(),
             saved.config.method->name, flags.split, 100 * e.accuracy, e.loss,
             e.examples < split.size() ? "the first " : "", e.examples,
             saved.step < 0 ? "" : fmt::format(" (weights of step {})", saved.step));
  const bool own = data::is_custom_data(*saved.config.task);
  if (own) {
    fmt::print("the largest class alone: {:.2f} %\n", 100 * majority_share(e.confusion));
  }
  if (own || flags.confusion) {
    const auto names = class_names(*saved.config.task, data::try_parse_json(split.provenance()),
                                   class_scores(e.confusion).size());
    fmt::print("{}", scores_table(e.confusion, names, flags.confusion));
  }
  if (options.draws > 1) {
    const auto [lowest, highest] = std::minmax_element(e.accuracies.begin(), e.accuracies.end());
    fmt::print(
        "mean of {} draws; each alone: accuracy {:.2f} to {:.2f} %; all of them agree on "
        "{:.2f} % of the examples\n",
        options.draws, 100 * *lowest, 100 * *highest, 100 * e.unanimous);
  }
  return 0;
}

}  // namespace

void add_eval(const Command& program) {
  const Command command =
      program.add_command("eval", "accuracy of trained weights on a whole split");
  const auto flags = std::make_shared<EvalFlags>();
  flags->run.declare(command);
  command.add_option("--run", flags->folder, "run folder");
  command.add_option("--weights", flags->weights,
                     "weights whose configuration is saved in the file; other programs' are of the "
                     "model that --task, --attention, ... describe");
  command.add_option("--checkpoint", flags->checkpoint, "checkpoint of the run: best or last");
  command.add_option("--split", flags->split, "dev or test");
  command.add_option("--examples", flags->options.examples, "only the first so many; 0: all")
      .between(0, std::int64_t{1} << 40);
  command.add_flag("--confusion", flags->confusion,
                   "precision, recall and F1 of each class, and the numbers of its examples by "
                   "answer");
  command.add_option("--draws", flags->options.draws, kDrawsHelp).between(1, kMostDraws);
  command.runs([command, flags] {
    flags->run.note_given(command);
    flags->names_checkpoint = command.count("--checkpoint") > 0;
    return run(*flags);
  });
}

}  // namespace skytape::train
