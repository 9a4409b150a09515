#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "data/files/output.hpp"
#include "data/prepare.hpp"
#include "data/tokenisers/vocabulary.hpp"
#include "tensor/core/error.hpp"
#include "train/cli/cli.hpp"
#include "train/lab/cli/lab_cli.hpp"
#include "train/lab/curves/mlm_curves.hpp"
#include "train/lab/studies/experiment.hpp"
#include "train/process/progress.hpp"
#include "train/process/signals.hpp"
#include "train/process/threads.hpp"

namespace skytape::train {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kHeadWidth = 64, kHiddenPerWidth = 4;  // BERT's shape
constexpr std::int64_t kFewestHeads = 2;  // of one head two of the sharings are the same

struct CurvesFlags {
  RunFlags run;
  CurvesOptions options;
  std::string from, tokens = "bytes", learn_tokens, lengths = "256,512,1024", shares = "4,8";
  std::string out = "runs/mlm-curves";
  std::int64_t layers = 4, width = 256;
  int jobs = 1;
  bool table_only = false;
};

CurvesOptions curves_options(const CurvesFlags& flags) {
  CurvesOptions options = flags.options;
  options.lengths = number_list("--lengths", flags.lengths, 2, std::int64_t{1} << 20);
  options.shares = number_list("--shares", flags.shares, 2, std::int64_t{1} << 20);
  options.base = flags.run.choices();
  options.out = flags.out;
  const auto choose = [&](const char* key, std::int64_t value, const char* origin) {
    options.base.settings.push_back({key, std::to_string(value), origin});
  };
  choose("layers", flags.layers, "--layers");
  choose("width", flags.width, "--width");
  choose("ff_width", kHiddenPerWidth * flags.width, "--width");
  std::int64_t heads = std::max(kFewestHeads, flags.width / kHeadWidth);
  while (flags.width % heads != 0) --heads;
  choose("heads", heads, "--width");
  return options;
}

/// Packs the corpus for every length that has none yet.
void prepare_corpora(const CurvesFlags& flags, const CurvesOptions& options) {
  const data::TaskInfo& task = data::find_task("corpus");
  const data::TokenChoice tokens = data::parse_token_choice(flags.tokens);
  Progress progress;
  for (const std::int64_t n : options.lengths) {
    const fs::path root = options.out / "data" / fmt::format("n{}", n);
    if (data::is_prepared(task, root)) {
      progress.line(fmt::format(
          "{} is packed already: --from, --tokens and --learn-tokens are not read again",
          root.string()));
      continue;
    }
    if (flags.from.empty()) {
      throw DataError(
          fmt::format("{}: no corpus there; --from names the texts to pack", root.string()));
    }
    data::PrepareOptions prepare;
    prepare.from = flags.from;
    prepare.tokens = flags.tokens;
    // Learnt with the first length; the others read the file.
    const bool learnt = !tokens.from.empty() && fs::exists(tokens.from);
    if (!learnt) prepare.learn_tokens = flags.learn_tokens;
    prepare.length = n;
    prepare.threads = flags.run.threads;
    prepare.progress = [&](std::string_view what, std::int64_t done, std::int64_t total) {
      progress.at(what, done, total);
      stop_if_signalled();  // what is half written goes
    };
    prepare.warn = [&](std::string_view text) { progress.line(fmt::format("warning: {}", text)); };
    data::prepare(task, root, prepare);
  }
}

/// Prints the table, and writes it and the points of the figure.
void show(const CurvesFlags& flags, const CurvesOptions& options,
          const std::vector<CurveCell>& cells) {
  std::vector<Curve> curves;
  for (const CurveCell& cell : cells) curves.push_back(read_curve(cell, options.out));
  Experiment experiment("mlm-curves", options.out);
  experiment.note("layers", flags.layers);
  experiment.note("width", flags.width);
  experiment.note("tokens per step", options.batch * options.lengths.front());
  experiment.note("seed", flags.run.seed);
  experiment.add(curve_table(curves));
  data::write_file(options.out / "mlm-curves.csv", curve_csv(curves));
  experiment.save();
}

int run(const CurvesFlags& flags) {
  const CurvesOptions options = curves_options(flags);
  std::vector<CurveCell> cells = curve_cells(options);
  GridOptions grid;
  grid.base = options.base;
  grid.out = options.out;
  grid.jobs = flags.jobs;
  grid.threads = thread_count();
  if (!flags.table_only) {
    watch_signals();
    prepare_corpora(flags, options);
  } else if (!fs::is_directory(options.out)) {
    throw DataError(fmt::format("mlm-curves: {}: no folder of runs", options.out.string()));
  }
  std::vector<GridCell> runs;
  for (const CurveCell& cell : cells) runs.push_back(cell.run);
  place_cells(runs, options.out);
  for (std::size_t i = 0; i < cells.size(); ++i) cells[i].run = runs[i];
  const int code = flags.table_only ? 0 : run_grid(runs, grid);
  show(flags, options, cells);
  return code;
}

}  // namespace

void add_mlm_curves(const Command& program) {
  const Command command = program.add_command(
      "mlm-curves",
      "masked language models with exact attention and with Linformer: perplexity against steps "
      "and seconds");
  const auto flags = std::make_shared<CurvesFlags>();
  command.add_option("--from", flags->from,
                     "texts: file, folder or archive, as for data --task corpus");
  command.add_option("--tokens", flags->tokens,
                     "bytes, sentencepiece:FILE, wordpiece:FILE, bpe:FOLDER or unigram:FILE");
  command.add_option("--learn-tokens", flags->learn_tokens,
                     "first make the FILE of sentencepiece, unless it is there: unigram:NUMBER or "
                     "bpe:NUMBER of pieces");
  command.add_option("--lengths", flags->lengths, "n,…: tokens of a sequence, ascending");
  command.add_option("--shares", flags->shares,
                     "s,…: Linformer with k = n/s; the first of the shortest n is the k of all n");
  command.add_option("--layers", flags->layers, "encoder layers").between(1, 1024);
  command
      .add_option("--width", flags->width,
                  "channels; the MLP has four times as many, and a head 64 of them at most")
      .between(1, 65536);
  command.add_option("--steps", flags->run.steps, "steps of every run and of its schedule");
  command
      .add_option("--batch", flags->options.batch,
                  "sequences of the shortest n in a step, which has as many tokens at every n")
      .between(1, 65536);
  command.add_option("--seed", flags->run.seed, "seed of every run");
  command.add_option("--precision", flags->run.precision, kRunPrecisionHelp);
  command
      .add_option("--set", flags->run.set,
                  "key=value, for every run; attention_dropout, else 0, for the exact ones")
      .no_default();
  command.add_option("--device", flags->run.device, "auto, cpu or cuda");
  command.add_option("--jobs", flags->jobs, "runs at a time, which share the threads")
      .between(1, 256);
  command.add_option("--threads", flags->run.threads, "CPU threads in all; 0: all cores");
  command.add_option("--out", flags->out, "folder of the runs, of JSON, CSV and tables");
  command.add_flag("--table-only", flags->table_only, "train nothing, show the results so far");
  command.runs([flags] { return run(*flags); });
}

}  // namespace skytape::train
