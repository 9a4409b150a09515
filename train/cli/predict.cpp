#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>

#include "data/files/json.hpp"
#include "data/files/source.hpp"
#include "data/own/records.hpp"
#include "data/tokenise.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/suggest.hpp"
#include "train/cli/cli.hpp"
#include "train/process/progress.hpp"
#include "train/process/version.hpp"
#include "train/runs/run_folder.hpp"
#include "train/runs/saved_model.hpp"
#include "train/step/step_inputs.hpp"

namespace skytape::train {
namespace {

struct PredictFlags {
  std::string folder, checkpoint = "best", from, device = "auto";
  int threads = 0;
  bool scores = false, header = false;
};

/// A row of the file: its label, where it has one, and what the model reads.
struct Row {
  std::string label, text, place;
};

/// Names of the classes: those of own data stand in the run's configuration.
std::vector<std::string> class_names(const SavedModel& saved, const data::Json& config) {
  const auto classes = static_cast<std::size_t>(saved.model->config().classes);
  const data::Json& provenance = config["data_provenance"];
  std::vector<std::string> names(saved.config.task->labels.begin(),
                                 saved.config.task->labels.end());
  if (provenance.is_object()) names = provenance.value("labels", names);
  if (names.size() == classes) return names;
  names.clear();
  for (std::size_t c = 0; c < classes; ++c) names.push_back(std::to_string(c));
  return names;
}

/// Passes the rows of the examples' file to `visit`, without blank ones.
template <class Visit>
void visit_rows(const PredictFlags& flags, const RunConfig& config, const Visit& visit) {
  const data::TaskInfo& task = *config.task;
  const bool piped = flags.from == "-";
  if (std::filesystem::is_directory(flags.from)) {
    throw DataError(fmt::format(
        "{}: a folder; expected a file of examples, or - for standard input", flags.from));
  }
  const std::string shown = piped ? "standard input" : flags.from;
  const auto stream = data::open_file(piped ? "/dev/stdin" : flags.from);
  if (data::is_own_data(task)) {
    const data::RecordFormat format = piped ? data::RecordFormat::tsv : data::format_of(flags.from);
    const data::RecordOptions rows{format, flags.header, false, config.pairs};
    data::read_records(*stream, shown, rows, [&](data::Record& record) {
      if (record.text.find_first_not_of(" \t") == record.text.npos) return;
      visit(Row{record.label, record.text, record.place});
    });
    return;
  }
  data::LineReader lines(*stream, shown, data::kMaxLine);
  for (std::string_view line; lines.next(line);) {
    const bool first = lines.line_number() == 1;
    if (first && line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);  // byte order mark
    if (first && (flags.header || line == "Source\tTarget")) continue;     // of official files
    if (line.find_first_not_of(" \t") == line.npos) continue;
    auto [label, text] = data::split_label(task, line);
    visit(Row{label, text, fmt::format("{}:{}", shown, lines.line_number())});
  }
}

/// Collects examples into batches and prints an answer for each.
class Predictor {
 public:
  Predictor(const SavedModel& saved, std::vector<std::string> names, bool scores)
      : saved_(saved), names_(std::move(names)), scores_(scores) {
    if (scores_) fmt::print("label\t{}\n", listed(names_, "\t"));
  }

  void add(const Row& row) {
    check_label(row);
    const RunConfig& config = saved_.config;
    const data::Tokens tokens =
        data::tokenise(*config.task, config.vocabulary.get(), row.text, row.place, config.pairs);
    const auto most = static_cast<std::size_t>(saved_.config.batches.max_length);
    cut_ += std::any_of(tokens.begin(), tokens.end(), [&](const auto& tower) {
      return tower.size() > most + static_cast<std::size_t>(dropped_of(tower));
    });
    examples_.push_back(tokens);
    labels_.push_back(row.label);
    if (static_cast<std::int64_t>(examples_.size()) == saved_.config.microbatch()) flush();
  }

  /// Computes and prints what has been collected.
  void flush() {
    if (examples_.empty()) return;
    const Tensor logits = compute();  // [B, C]
    const std::vector<double> values = logits.to_vector();
    const auto classes = names_.size();
    for (std::size_t b = 0; b < examples_.size(); ++b) {
      const auto row = values.begin() + static_cast<std::ptrdiff_t>(b * classes);
      const auto best = std::max_element(row, row + static_cast<std::ptrdiff_t>(classes));
      const std::string& answer = names_[static_cast<std::size_t>(best - row)];
      correct_ += answer == labels_[b];
      fmt::print("{}", answer);
      if (scores_) print_scores({row, row + static_cast<std::ptrdiff_t>(classes)}, *best);
      fmt::print("\n");
    }
    std::fflush(stdout);
    done_ += static_cast<std::int64_t>(examples_.size());
    examples_.clear();
    labels_.clear();
  }

  /// What is to be said at the end, one line each.
  [[nodiscard]] std::vector<std::string> summary() const {
    std::vector<std::string> lines;
    if (cut_ > 0) {
      lines.push_back(
          fmt::format("{} of {} examples are longer than the {} tokens that the run "
                      "reads: their ends were not read",
                      cut_, done_, saved_.config.batches.max_length));
    }
    if (labelled_.value_or(false)) {
      lines.push_back(fmt::format("accuracy {:.2f} %: {} of {} examples have the label in the file",
                                  100 * static_cast<double>(correct_) / static_cast<double>(done_),
                                  correct_, done_));
    }
    return lines;
  }
  [[nodiscard]] std::int64_t done() const { return done_; }

 private:
  /// Either every row has a label of the run, or none has one: the first row decides.
  void check_label(const Row& row) {
    const bool has_label = !row.label.empty();
    const bool known = std::find(names_.begin(), names_.end(), row.label) != names_.end();
    if (has_label && !known) {
      constexpr std::size_t kShown = 10;
      const std::size_t shown = std::min(kShown, names_.size());
      throw DataError(fmt::format(
          "{}: '{}' beside the tab is none of the run's labels: {}{}; expected a label on every "
          "line, or on none{}",
          row.place, data::printable(row.label), listed(std::span(names_).first(shown)),
          shown < names_.size() ? ", …" : "",
          labelled_ ? "" : " (--header leaves the first row out)"));
    }
    if (labelled_.value_or(has_label) != has_label) {
      throw DataError(
          fmt::format("{}: {} label, unlike the rows before; expected a label on every "
                      "line, or on none",
                      row.place, has_label ? "has a" : "has no"));
    }
    labelled_ = has_label;
  }

  /// Tokens that are left out on reading.
  [[nodiscard]] std::int64_t dropped_of(const std::vector<std::int32_t>& tokens) const {
    return std::count(tokens.begin(), tokens.end(), saved_.config.batches.drop_token);
  }

  [[nodiscard]] Tensor compute() const {
    const data::Batch batch = data::pad(examples_, saved_.config.batches);
    const Feed feed = upload(batch, whole(batch), saved_.config.device);
    nn::StepContext context;
    // As Evaluator draws.
    context.random = {saved_.config.seed, Tensor::full({1}, static_cast<double>(done_), DType::i32,
                                                       saved_.config.device)};
    context.fewest_tokens = feed.fewest_tokens;
    Tape tape(Tape::Mode::eval);
    return saved_.model->logits(tape, feed.input, context).value();  // [B, C]
  }

  /// The softmax of the classes' scores, a column for each.
  static void print_scores(std::vector<double> scores, double highest) {
    double sum = 0;
    for (double& score : scores) sum += score = std::exp(score - highest);
    for (const double score : scores) fmt::print("\t{:.6f}", score / sum);
  }

  const SavedModel& saved_;
  std::vector<std::string> names_;
  bool scores_;
  std::vector<data::Tokens> examples_;
  std::vector<std::string> labels_;
  std::optional<bool> labelled_;
  std::int64_t done_ = 0, correct_ = 0, cut_ = 0;
};

int run(const PredictFlags& flags) {
  set_threads(flags.threads);
  const SavedModel saved = load_run(flags.folder, flags.checkpoint, parse_device(flags.device));
  const data::Json config = read_json(std::filesystem::path(flags.folder) / "config.json");
  Predictor predictor(saved, class_names(saved, config), flags.scores);
  try {
    visit_rows(flags, saved.config, [&](const Row& row) { predictor.add(row); });
  } catch (const DataError&) {
    predictor.flush();  // the answers to what stands before the broken line
    throw;
  }
  predictor.flush();
  if (predictor.done() == 0) {
    throw DataError(fmt::format("{}: no example in it", flags.from));
  }
  Progress progress;
  for (const std::string& line : predictor.summary()) progress.line(line);
  return 0;
}

}  // namespace

void add_predict(CommandLine& program) {
  Command command = program.command("predict", "print a label for each line of a file");
  const auto flags = std::make_shared<PredictFlags>();
  command.option("--run", flags->folder, "run folder").required();
  command
      .option("--from", flags->from,
              "file of examples, or - for standard input; where it has labels, too, the accuracy "
              "is said at the end")
      .required();
  command.flag("--scores", flags->scores,
               "probabilities beside the label, a column for each class");
  command.flag("--header", flags->header, "the first row names the columns");
  command.option("--checkpoint", flags->checkpoint, "best or last").show_default();
  command.option("--device", flags->device, "auto, cpu or cuda").show_default();
  command.option("--threads", flags->threads, "CPU threads; 0: all cores").show_default();
  command.runs([flags] { return run(*flags); });
}

}  // namespace skytape::train
