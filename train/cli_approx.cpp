#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "data/output.hpp"
#include "tensor/error.hpp"
#include "train/approx.hpp"
#include "train/cli.hpp"
#include "train/progress.hpp"
#include "train/version.hpp"

namespace skytape::train {
namespace {

using nlohmann::json;

struct ApproxFlags {
  SourceFlags source;
  std::string attention = "all", features = "8,16,32,64,128,256", n;
  std::string json_file, out = "runs/approx";
  std::int64_t trials = 32, best_rank_trials = 4, layer = 0;
  int threads = 0;
  std::vector<std::string> set;
};

/// "<method>.<option>=value" entries, by method.
std::map<std::string, attention::OptionValues> method_options(const std::vector<std::string>& set) {
  std::map<std::string, attention::OptionValues> options;
  for (const std::string& entry : set) {
    const std::size_t equals = entry.find('='), dot = entry.find('.');
    if (equals == entry.npos || dot == entry.npos || dot > equals) {
      throw UsageError(fmt::format("--set: expected <method>.<option>=value, got '{}'", entry));
    }
    options[entry.substr(0, dot)][entry.substr(dot + 1, equals - dot - 1)] =
        entry.substr(equals + 1);
  }
  return options;
}

int run(const ApproxFlags& flags) {
  set_threads(flags.threads);
  ApproxOptions options;
  options.methods =
      flags.attention == "all" ? approximating_methods() : method_list(flags.attention);
  options.features = number_list("--features", flags.features, 1, 65536);
  if (!flags.n.empty()) options.lengths = number_list("--n", flags.n, 1, kLongestFresh);
  options.method_options = method_options(flags.set);
  options.trials = flags.trials;
  options.best_rank_trials = flags.best_rank_trials;
  options.layer = flags.layer;
  options.seed = flags.source.seed;
  const InputSource source = flags.source.open(options.lengths);
  if (options.lengths.empty()) options.lengths = source.usual_lengths;
  Progress progress;
  options.progress = [&](std::int64_t done, std::int64_t total) {
    progress.at("trials", done, total);
  };

  const std::vector<ApproxCell> cells = run_approx(source, options);
  const json machine = machine_facts();
  fmt::print("{}\n{}, {} threads, revision {}\n\n{}", source.name,
             machine["cpu"].get<std::string>(), thread_count(), revision(), to_text(cells));
  if (!flags.json_file.empty()) {
    const json settings = {{"trials", options.trials},
                           {"best_rank_trials", options.best_rank_trials},
                           {"layer", check_layer(source, options.layer)},
                           {"seed", options.seed},
                           {"method_options", options.method_options}};
    data::OutputFile file(flags.json_file);
    file.write(json{{"machine", machine},
                    {"source", source.facts},
                    {"settings", settings},
                    {"results", to_json(cells)}}
                   .dump(2) +
               "\n");
    file.commit();
  }
  (void)draw(flags.out, figures(cells, source.name));
  return 0;
}

}  // namespace

void add_approx(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "approx", "error of every approximation against exact attention, over the features");
  const auto flags = std::make_shared<ApproxFlags>();
  flags->source.declare(*command);
  command->add_option("--attention", flags->attention, "methods a,b,… or all")
      ->capture_default_str();
  command->add_option("--features", flags->features, "numbers of features d")
      ->capture_default_str();
  command->add_option("--n", flags->n,
                      "lengths; default: 512, 1024 and 4096 as far as the source has them");
  command->add_option("--trials", flags->trials, "examples, each with fresh draws")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  command
      ->add_option("--best-rank-trials", flags->best_rank_trials,
                   "trials of the row \"best rank d\"; 0: none")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  command->add_option("--layer", flags->layer, "of the model; -1: the last")->capture_default_str();
  command->add_option("--set", flags->set, "<method>.<option>=value")->allow_extra_args(false);
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
