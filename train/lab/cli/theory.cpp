#include <fmt/format.h>

#include <memory>

#include "tensor/core/error.hpp"
#include "tensor/core/suggest.hpp"
#include "train/cli/cli.hpp"
#include "train/lab/cli/lab_cli.hpp"
#include "train/lab/studies/experiment.hpp"
#include "train/lab/studies/theory/theory.hpp"
#include "train/process/threads.hpp"

namespace skytape::train {
namespace {

struct TheoryFlags {
  std::string statements = "all", out, model, text;
  std::int64_t seeds = 20, layer = 0;
  std::uint64_t seed = 42;
  TheorySizes sizes;
  int threads = 1;
  Command command;
};

/// The statements of the list, in its order. UsageError for an unknown name.
std::vector<Statement> chosen(const std::string& list) {
  const std::vector<Statement> all = theory_statements();
  if (list == "all") return all;
  std::vector<std::string> names;
  for (const Statement& s : all) names.push_back(s.name);
  std::vector<Statement> some;
  for (const std::string& name : split_list("--statements", list)) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) throw UsageError(unknown_name("statement", name, names));
    some.push_back(all[static_cast<std::size_t>(found - names.begin())]);
  }
  return some;
}

/// Random numbers, or those of the encoder, which `experiment` then names.
TheorySizes sizes_of(const TheoryFlags& flags, Experiment& experiment) {
  if (flags.model.empty() != flags.text.empty()) {
    throw UsageError("--model FOLDER, an encoder, and --text FILE, its texts, go together");
  }
  if (flags.model.empty()) {
    if (flags.command.count("--layer") > 0) {
      throw UsageError("--layer has no effect without --model");
    }
    experiment.note("deviation", flags.sizes.deviation);
    return flags.sizes;
  }
  for (const char* flag : {"--deviation", "--width"}) {
    if (flags.command.count(flag) > 0) {
      throw UsageError(fmt::format("{} has no effect with --model", flag));
    }
  }
  if (flags.sizes.n < kFewestReal) {
    throw UsageError(
        fmt::format("--n: expected at least {} with --model, got {}", kFewestReal, flags.sizes.n));
  }
  const InputSource source = encoder_inputs(flags.model, flags.text);
  experiment.note("source", source.facts);
  experiment.note("layer", check_layer(flags.layer, source.layers, source.name));
  TheorySizes sizes = real_sizes(source, flags.layer, flags.sizes.n, flags.seed);
  const std::string repeated = repetition(source, sizes.n, flags.seeds);
  fmt::print("{}{}\n\n", source.name, repeated.empty() ? "" : "; " + repeated);
  if (!repeated.empty()) experiment.note("repetition", repeated);
  return sizes;
}

int run(const TheoryFlags& flags) {
  set_threads(flags.threads);
  const std::vector<Statement> statements = chosen(flags.statements);
  Experiment experiment("theory", flags.out);
  const TheorySizes sizes = sizes_of(flags, experiment);
  const std::vector<Verdict> verdicts = check(statements, sizes, flags.seed, flags.seeds);
  experiment.note("n", sizes.n);
  experiment.note("width", sizes.width);
  experiment.note("seed", flags.seed);
  experiment.note("seeds", flags.seeds);
  experiment.add(to_table(verdicts));
  experiment.save(/*has_pictures=*/false);
  if (all_hold(verdicts)) return 0;
  for (const Verdict& v : verdicts) {
    if (!v.statement->must_hold || v.holds) continue;
    fmt::print(stderr, "skytape: theory: {} {} does not hold: {:.6g}, bound {:.6g}\n",
               v.statement->name, v.at, v.worst, v.bound);
  }
  return 1;
}

}  // namespace

void add_theory(const Command& program) {
  const Command command =
      program.add_command("theory", "check the papers' statements with numbers, over many seeds");
  const auto flags = std::make_shared<TheoryFlags>();
  flags->command = command;
  command.add_option("--statements", flags->statements, "statements a,b,… or all");
  command.add_option("--seeds", flags->seeds, "number of seeds").between(1, 100000);
  command.add_option("--seed", flags->seed, "first seed");
  command.add_option("--n", flags->sizes.n, "queries and keys").between(16, 4096);
  command.add_option("--width", flags->sizes.width, "of a head").between(1, 1024);
  command
      .add_option("--deviation", flags->sizes.deviation,
                  "of queries, keys and values; a fresh model has about 0.2")
      .within(0.001, 100.0);
  command.add_option(
      "--model", flags->model,
      "folder of a BERT or RoBERTa encoder, whose queries, keys and values are taken; a "
      "seed stands for a text and a head");
  command.add_option("--text", flags->text, "file with one text a line");
  command.add_option("--layer", flags->layer, "of the encoder; -1: the last");
  command.add_option("--threads", flags->threads,
                     "CPU threads; small sizes are not worth sharing; 0: all cores");
  command.add_option("--out", flags->out, "folder for JSON and tables");
  command.runs([flags] { return run(*flags); });
}

}  // namespace skytape::train
