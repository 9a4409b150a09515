#include <fmt/format.h>

#include <memory>

#include "data/files/output.hpp"
#include "data/task.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/suggest.hpp"
#include "train/cli/cli.hpp"
#include "train/config/keys.hpp"
#include "train/lab/cli/lab_cli.hpp"
#include "train/lab/studies/cost/cost.hpp"
#include "train/lab/studies/experiment.hpp"
#include "train/process/threads.hpp"
#include "train/process/version.hpp"

namespace skytape::train {
namespace {

struct CostFlags {
  CostOptions options;
  std::string tasks = "listops,text,retrieval,pathfinder,image";
  std::string tables = "all", attention = "all", device = "auto", runs, out;
  std::string lengths = "256,512,1024,2048,4096,8192";
  std::string inference_lengths = "512,1024,2048,4096,8192,16384,32768,65536";
  std::string projected = "128,256,512,1024,2048";
  double limit_gb = 0;
  std::int64_t patience = 10;
  int threads = 0;
  Command command;
};

const std::vector<std::string> kTables = {"parameters", "operations", "tasks", "inference",
                                          "length"};

/// The tables that read a flag.
struct Readers {
  const char *flag, *tables;
};
constexpr Readers kReaders[] = {{"--attention", "parameters|operations|tasks|length"},
                                {"--tasks", "parameters|tasks"},
                                {"--recipe", "parameters|tasks"},
                                {"--batch", "tasks"},
                                {"--memory-limit", "tasks"},
                                {"--size", "tasks|inference|length"},
                                {"--layers", "tasks|inference|length"},
                                {"--steps", "tasks|inference|length"},
                                {"--patience-seconds", "tasks|inference|length"},
                                {"--precision", "tasks|inference|length"},
                                {"--tokens", "inference|length"},
                                {"--lengths", "length"},
                                {"--features", "length"},
                                {"--inference-lengths", "inference"},
                                {"--projected", "inference"},
                                {"--memory", "inference"},
                                {"--materialised", "inference"},
                                {"--n", "operations"},
                                {"--d", "operations"},
                                {"--runs", "convergence"},
                                {"--patience", "convergence"}};

/// UsageError for a flag that no chosen table reads.
void refuse_unread(const CostFlags& flags, const std::vector<std::string>& chosen) {
  for (const Readers& of : kReaders) {
    const bool given = flags.command.count(of.flag) > 0;
    const bool of_make = of.flag == std::string_view("--attention") && flags.attention == "all";
    const auto reads = [&](const std::string& table) { return is_among(of.tables, table); };
    if (given && !of_make && std::none_of(chosen.begin(), chosen.end(), reads)) {
      throw UsageError(fmt::format("{} has no effect on --tables {}", of.flag, flags.tables));
    }
  }
}

std::vector<std::string> chosen_tables(const CostFlags& flags) {
  std::vector<std::string> chosen =
      flags.tables == "all" ? kTables : split_list("--tables", flags.tables);
  std::vector<std::string> known = kTables;
  known.emplace_back("convergence");
  for (const std::string& name : chosen) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      throw UsageError(unknown_name("table", name, known));
    }
    if (name == "convergence" && flags.runs.empty()) {
      throw UsageError("--tables convergence: needs --runs, a folder of finished runs");
    }
  }
  if (!flags.runs.empty() && flags.tables == "all") chosen.emplace_back("convergence");
  refuse_unread(flags, chosen);
  return chosen;
}

int run(CostFlags flags) {
  set_threads(flags.threads);
  CostOptions& o = flags.options;
  o.device = parse_device(flags.device);
  (void)parse_precision(o.precision);  // before the first table is on the screen
  (void)model_size(o.size);
  o.methods = method_list(flags.attention);
  o.tasks = task_list(flags.tasks);
  o.lengths = number_list("--lengths", flags.lengths, 1, 1 << 20);
  o.inference_lengths = number_list("--inference-lengths", flags.inference_lengths, 1, 1 << 20);
  o.projected = number_list("--projected", flags.projected, 1, 1 << 20);
  std::sort(o.lengths.begin(), o.lengths.end());
  if (flags.limit_gb > 0) o.limit_gb = flags.limit_gb;

  Experiment experiment("cost", flags.out);
  experiment.note("device", name(o.device));
  experiment.note("precision", o.precision);
  experiment.note("repetitions", o.steps);
  const std::vector<std::string> chosen = chosen_tables(flags);
  experiment.note("size", o.size);
  if (o.layers > 0) experiment.note("layers", o.layers);
  for (const std::string& table : chosen) {
    if (table == "parameters") experiment.add(parameter_table(o));
    if (table == "operations") experiment.add(operation_table(o));
    if (table == "tasks") experiment.add(task_table(o));
    if (table == "inference") experiment.add(inference_table(o));
    if (table == "convergence") experiment.add(convergence_table(flags.runs, flags.patience));
    if (table == "length") {
      const LengthStudy study = measure_lengths(o);
      experiment.add(length_table(study));
      experiment.add(crossover_table(o, study));
    }
  }
  experiment.save(/*has_pictures=*/std::any_of(
      chosen.begin(), chosen.end(),
      [](const std::string& table) { return table == "length" || table == "inference"; }));
  return 0;
}

}  // namespace

void add_cost(const Command& program) {
  const Command command =
      program.add_command("cost", "costs of methods: parameters, operations, time, memory");
  const auto flags = std::make_shared<CostFlags>();
  flags->command = command;
  CostOptions& o = flags->options;
  command.add_option("--tables", flags->tables,
                     "parameters, operations, tasks, inference, length, or all of these; "
                     "convergence");
  command.add_option("--attention", flags->attention, "methods a,b,… or all");
  command.add_option("--tasks", flags->tasks, "tasks a,b,… or all");
  command.add_option("--recipe", o.recipe,
                     "recipe of batches and features: skyformer, skeinformer…");
  command.add_option("--batch", o.batch, "examples of a timed step of a task").between(1, 1 << 20);
  add_size(command, o.size, o.layers);
  command.add_option("--steps", o.steps, "timed repetitions").between(1, 1 << 20);
  command
      .add_option("--patience-seconds", o.patience_seconds,
                  "a case that takes longer is timed once; 0: no limit")
      .within(0.0, 1e6);
  command.add_option("--n", o.operations_n, "length, for operations").between(64, 1 << 20);
  command.add_option("--d", o.operations_features, "features, for operations").between(1, 65536);
  command.add_option("--lengths", flags->lengths, "lengths of the study by length");
  command.add_option("--features", o.features, "features in the study by length").between(1, 65536);
  command.add_option("--tokens", o.tokens, "tokens of a batch in the study by length")
      .between(1, 1 << 20);
  command.add_option("--inference-lengths", flags->inference_lengths,
                     "lengths of Linformer's table");
  command.add_option("--projected", flags->projected, "k of Linformer's table");
  command.add_option("--memory", o.memory_gb, "GB that batches are compared on").within(0.001, 1e6);
  command
      .add_option("--materialised", o.materialised_gb,
                  "most GB for the n x n arrays of exact attention that stores them")
      .within(0.0, 1e6);
  command.add_option("--memory-limit", flags->limit_gb, "GB: find the largest batch that fits")
      .within(0.001, 1e6)
      .no_default();
  command.add_option("--runs", flags->runs, "folder of finished runs, for convergence");
  command.add_option("--patience", flags->patience, "evaluations without progress, for convergence")
      .between(1, 1 << 20);
  command.add_option("--device", flags->device, "auto, cpu or cuda");
  command.add_option("--precision", o.precision, kPrecisionHelp);
  command.add_option("--threads", flags->threads, "CPU threads; 0: all cores");
  command.add_option("--out", flags->out, kPicturesHelp);
  command.runs([flags] { return run(*flags); });
}

}  // namespace skytape::train
