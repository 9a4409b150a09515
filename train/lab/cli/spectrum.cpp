#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "train/lab/cli/lab_cli.hpp"
#include "train/lab/studies/experiment.hpp"
#include "train/lab/studies/spectrum.hpp"
#include "train/process/threads.hpp"

namespace skytape::train {
namespace {

constexpr std::int64_t kUsualLength = 512;  // Linformer's figure

struct SpectrumFlags {
  SourceFlags source;
  SpectrumOptions options;
  std::int64_t n = 0;
  int threads = 0;
  std::string out = "runs/spectrum";
};

int run(SpectrumFlags flags) {
  set_threads(flags.threads);
  const InputSource source = flags.source.open({flags.n > 0 ? flags.n : kUsualLength});
  SpectrumOptions& options = flags.options;
  options.n = flags.n > 0 ? flags.n : std::min(kUsualLength, source.longest);
  options.seed = flags.source.seed;
  Experiment experiment("spectrum", flags.out);
  const std::vector<HeadSpectrum> heads = run_spectrum(source, options);
  const std::string repeated = repetition(source, options.n, options.examples);
  fmt::print("{}{}\n\n", source.name, repeated.empty() ? "" : "; " + repeated);
  experiment.note("source", source.facts);
  experiment.note("n", options.n);
  experiment.note("examples", options.examples);
  if (!repeated.empty()) experiment.note("repetition", repeated);
  experiment.note("landmarks", options.landmarks);
  experiment.note("seed", options.seed);
  experiment.add_results(heads, source.name);
  experiment.save();
  return 0;
}

}  // namespace

void add_spectrum(const Command& program) {
  const Command command = program.add_command(
      "spectrum", "singular values of attention, statistical dimension, condition numbers");
  const auto flags = std::make_shared<SpectrumFlags>();
  flags->source.declare(command);
  command.add_option("--n", flags->n, "positions; default: 512, or the source's")
      .between(1, kLongestFresh)
      .no_default();
  command.add_option("--examples", flags->options.examples, "examples of the source")
      .between(1, 1000000);
  command.add_option("--features", flags->options.landmarks, "landmarks of Skyformer")
      .between(1, 65536);
  command.add_option("--threads", flags->threads, "CPU threads; 0: all cores");
  command.add_option("--out", flags->out, kPicturesHelp);
  command.runs([flags] { return run(*flags); });
}

}  // namespace skytape::train
