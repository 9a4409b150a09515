#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "data/output.hpp"
#include "train/cli.hpp"
#include "train/progress.hpp"
#include "train/spectrum.hpp"
#include "train/version.hpp"

namespace skytape::train {
namespace {

using nlohmann::json;

constexpr std::int64_t kUsualLength = 512;  // Linformer's figure

struct SpectrumFlags {
  SourceFlags source;
  std::int64_t n = 0, examples = 4, landmarks = 128;
  int threads = 0;
  std::string json_file, out = "runs/spectrum";
};

int run(const SpectrumFlags& flags) {
  set_threads(flags.threads);
  const InputSource source = flags.source.open({flags.n > 0 ? flags.n : kUsualLength});
  SpectrumOptions options;
  options.n = flags.n > 0 ? flags.n : std::min(kUsualLength, source.longest);
  options.examples = flags.examples;
  options.landmarks = flags.landmarks;
  options.seed = flags.source.seed;
  Progress progress;
  options.progress = [&](std::int64_t done, std::int64_t total) {
    progress.at("layers", done, total);
  };

  const std::vector<HeadSpectrum> heads = run_spectrum(source, options);
  const json machine = machine_facts();
  fmt::print("{}\n{}, {} threads, revision {}\n\n{}", source.name,
             machine["cpu"].get<std::string>(), thread_count(), revision(), to_text(heads));
  if (!flags.json_file.empty()) {
    const json settings = {{"n", options.n},
                           {"examples", options.examples},
                           {"landmarks", options.landmarks},
                           {"seed", options.seed}};
    data::OutputFile file(flags.json_file);
    file.write(json{{"machine", machine},
                    {"source", source.facts},
                    {"settings", settings},
                    {"results", to_json(heads)}}
                   .dump(2) +
               "\n");
    file.commit();
  }
  (void)draw(flags.out, figures(heads, source.name));
  return 0;
}

}  // namespace

void add_spectrum(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "spectrum", "singular values of attention, statistical dimension, condition numbers");
  const auto flags = std::make_shared<SpectrumFlags>();
  flags->source.declare(*command);
  command->add_option("--n", flags->n, "positions; default: 512, or what the source has")
      ->check(CLI::Range(std::int64_t{1}, kLongestFresh));
  command->add_option("--examples", flags->examples, "examples of the source")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  command->add_option("--features", flags->landmarks, "landmarks of Skyformer")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  command->add_option("--threads", flags->threads, "CPU threads; 0: all cores")
      ->capture_default_str();
  command->add_option("--json", flags->json_file, "write machine, source and results there");
  command->add_option("--out", flags->out, "folder of the figures")->capture_default_str();
  command->callback([command, flags, &exit_code] {
    flags->source.given(*command);
    exit_code = run(*flags);
  });
}

}  // namespace skytape::train
