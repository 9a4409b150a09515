#include <fmt/format.h>

#include <memory>

#include "tensor/core/error.hpp"
#include "train/cli/cli.hpp"
#include "train/lab/cli/lab_cli.hpp"
#include "train/lab/studies/approx.hpp"
#include "train/lab/studies/experiment.hpp"
#include "train/process/threads.hpp"

namespace skytape::train {
namespace {

struct ApproxFlags {
  SourceFlags source;
  ApproxOptions options;
  std::string attention = "all", features = "8,16,32,64,128,256", n, out = "runs/approx";
  int threads = 0;
  std::vector<std::string> set;
};

int run(ApproxFlags flags) {
  set_threads(flags.threads);
  ApproxOptions& options = flags.options;
  options.features = number_list("--features", flags.features, 1, 65536);
  if (!flags.n.empty()) options.lengths = number_list("--n", flags.n, 1, kLongestFresh);
  options.method_options = method_options(flags.set);
  options.seed = flags.source.seed;
  const InputSource source = flags.source.open(options.lengths);
  if (options.lengths.empty()) options.lengths = source.usual_lengths;
  if (flags.attention == "all") {
    options.methods = approximating_methods(source.has_x);
    if (!source.has_x) {
      fmt::print(stderr, "left out: methods that read the layer's input, which {} do not have\n",
                 source.name);
    }
  } else {
    options.methods = method_list(flags.attention);
  }
  Experiment experiment("approx", flags.out);
  const std::vector<ApproxCell> cells = run_approx(source, options);
  fmt::print("{}\n\n", source.name);
  experiment.note("source", source.facts);
  experiment.note("trials", options.trials);
  experiment.note("trials of the best rank", options.best_rank_trials);
  experiment.note("layer", check_layer(options.layer, source.layers, source.name));
  experiment.note("seed", options.seed);
  experiment.note("method options", options.method_options);
  experiment.add_results(cells, source.name);
  experiment.save();
  return 0;
}

}  // namespace

void add_approx(const Command& program) {
  const Command command = program.add_command(
      "approx", "error of every approximation against exact attention, over the features");
  const auto flags = std::make_shared<ApproxFlags>();
  flags->source.declare(command);
  command.add_option("--attention", flags->attention, "methods a,b,… or all");
  command.add_option("--features", flags->features, "numbers of features d");
  command.add_option("--n", flags->n,
                     "lengths; default: 512, 1024 and 4096 as far as the source has them");
  command
      .add_option("--trials", flags->options.trials,
                  "examples, each with fresh draws; a source with fewer repeats them")
      .between(1, 1000000);
  command
      .add_option("--best-rank-trials", flags->options.best_rank_trials,
                  "trials of the row \"best rank d\"; 0: none")
      .between(0, 1000000);
  command.add_option("--layer", flags->options.layer, "of the model; -1: the last");
  command.add_option("--set", flags->set, "<method>.<option>=value").no_default();
  command.add_option("--threads", flags->threads, "CPU threads; 0: all cores");
  command.add_option("--out", flags->out, kPicturesHelp);
  command.runs([flags] { return run(*flags); });
}

}  // namespace skytape::train
