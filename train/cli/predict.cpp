#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>

#include "data/custom/delimiter.hpp"
#include "data/custom/format.hpp"
#include "data/files/json.hpp"
#include "data/files/printable.hpp"
#include "data/files/source.hpp"
#include "data/tokenise.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/suggest.hpp"
#include "train/cli/cli.hpp"
#include "train/process/progress.hpp"
#include "train/process/threads.hpp"
#include "train/process/version.hpp"
#include "train/run/example_rows.hpp"
#include "train/run/saved_model.hpp"
#include "train/step/class_scores.hpp"
#include "train/step/evaluate.hpp"

namespace skytape::train {
namespace {

struct PredictFlags {
  std::string folder, checkpoint = "best", device = "auto";
  ExampleFile file;
  std::int64_t draws = 1, batch = 1024;
  int threads = 0;
  bool scores = false, with_input = false;
};

/// Collects examples and prints an answer for each, in their order.
class Predictor {
 public:
  Predictor(const SavedModel& saved, std::vector<std::string> names, const PredictFlags& flags)
      : saved_(saved), names_(std::move(names)), flags_(flags), evaluator_(*saved.model) {
    options_.seed = saved.config.seed;
    options_.draws = flags.draws;
    options_.positions = saved.config.microbatch_limits().positions;
    agreeing_.resize(static_cast<std::size_t>(flags.draws));
    if (!flags.scores) return;
    fmt::print("label\t{}{}{}\n", listed(names_, "\t"), flags.draws > 1 ? "\tdraws" : "",
               flags.with_input ? "\ttext" : "");
    std::fflush(stdout);
  }

  void add(const data::Record& row) {
    check_label(row);
    const RunConfig& config = saved_.config;
    // Two texts may also be one with a tab between.
    const bool apart = config.pairs && !row.second.empty();
    const std::size_t between = apart ? row.text.size() : row.text.npos;
    data::Tokens tokens = data::tokenise(*config.task, config.vocabulary.get(), row.texts(),
                                         row.place, config.pairs, between);
    const data::BatchOptions& batches = config.batches;
    cut_ += std::any_of(tokens.begin(), tokens.end(), [&](const auto& sequence) {
      const auto dropped = std::count(sequence.begin(), sequence.end(), batches.drop_token);
      return std::ssize(sequence) - dropped > batches.most_tokens();
    });
    for (const std::vector<std::int32_t>& sequence : tokens) {
      waiting_tokens_ += static_cast<std::int64_t>(sequence.size());
    }
    waiting_.push_back({row, std::move(tokens)});
    if (std::ssize(waiting_) == flags_.batch || waiting_tokens_ > kMostTokens) flush();
  }

  /// Computes and prints what has been collected.
  void flush() {
    if (waiting_.empty()) return;
    std::vector<data::Tokens> examples;
    for (const Waiting& waiting : waiting_) examples.push_back(waiting.tokens);
    const std::vector<std::optional<Answer>> answers =
        evaluator_.answers(examples, saved_.config.batches, saved_.config.microbatch(), options_);
    for (std::size_t i = 0; i < answers.size(); ++i) {
      if (!answers[i]) {
        std::fflush(stdout);
        throw NonFiniteError(
            fmt::format("{}: the model's output for this text is not finite: it has no label",
                        waiting_[i].place));
      }
      print(*answers[i], waiting_[i].texts());
      correct_ += names_[static_cast<std::size_t>(answers[i]->label)] == waiting_[i].label;
      ++done_;
    }
    std::fflush(stdout);
    waiting_.clear();
    waiting_tokens_ = 0;
  }

  /// Returns the remarks for the end, one line each.
  [[nodiscard]] std::vector<std::string> summary() const {
    std::vector<std::string> lines;
    if (cut_ > 0) {
      lines.push_back(
          fmt::format("{} of {} examples are longer than the {} tokens that the run "
                      "reads: their ends were not read",
                      cut_, done_, saved_.config.batches.most_tokens()));
    }
    if (labelled_.value_or(false)) {
      lines.push_back(fmt::format("accuracy {:.2f} %: {} of {} examples have the label in the file",
                                  100 * static_cast<double>(correct_) / static_cast<double>(done_),
                                  correct_, done_));
    }
    if (flags_.draws > 1) {
      const auto [fewest, most] = std::minmax_element(agreeing_.begin(), agreeing_.end());
      lines.push_back(
          fmt::format("mean of {} draws: all of them agree on {} of {} examples; each alone "
                      "agrees with the mean on {} to {}",
                      flags_.draws, unanimous_, done_, *fewest, *most));
    }
    return lines;
  }
  [[nodiscard]] std::int64_t done() const { return done_; }

 private:
  static constexpr std::int64_t kMostTokens = 1 << 22;  // of examples that wait for an answer

  struct Waiting : data::Record {
    data::Tokens tokens;
  };

  /// Either every row has a label of the run, or none has one: the first row decides.
  void check_label(const data::Record& row) {
    const bool has_label = !row.label.empty();
    const bool known = std::find(names_.begin(), names_.end(), row.label) != names_.end();
    if (has_label && !known) {
      constexpr std::size_t kShown = 10;
      const std::size_t shown = std::min(kShown, names_.size());
      throw DataError(fmt::format(
          "{}: the label '{}' is none of the run's: {}{}; expected one of them in every row, or no "
          "label in any{}",
          row.place, data::printable(row.label), listed(std::span(names_).first(shown)),
          shown < names_.size() ? ", …" : "",
          labelled_ ? "" : " (if the first row names the columns, say --header)"));
    }
    if (labelled_.value_or(has_label) != has_label) {
      throw DataError(
          fmt::format("{}: {} label, unlike the rows before; expected a label in every row, or in "
                      "none",
                      row.place, has_label ? "has a" : "has no"));
    }
    labelled_ = has_label;
  }

  /// The label; with --scores the probability of each class, and how large a share of the draws
  /// says the label.
  /// With --with-input the text behind it, on one line.
  void print(const Answer& answer, std::string text) {
    fmt::print("{}", names_[static_cast<std::size_t>(answer.label)]);
    std::int64_t agreeing = 0;
    for (std::size_t k = 0; k < answer.of_draws.size(); ++k) {
      const bool same = answer.of_draws[k] == answer.label;
      agreeing_[k] += same;
      agreeing += same;
    }
    unanimous_ += answer.unanimous();
    if (flags_.scores) {
      for (const double log : answer.log_probabilities) fmt::print("\t{:.6f}", std::exp(log));
      if (flags_.draws > 1) {
        fmt::print("\t{:.2f}", static_cast<double>(agreeing) / static_cast<double>(flags_.draws));
      }
    }
    if (flags_.with_input) {
      for (char& c : text) c = c == '\n' || c == '\r' ? ' ' : c;
      fmt::print("\t{}", text);
    }
    fmt::print("\n");
  }

  const SavedModel& saved_;
  std::vector<std::string> names_;
  const PredictFlags& flags_;
  Evaluator evaluator_;
  EvaluateOptions options_;
  std::vector<Waiting> waiting_;
  std::int64_t waiting_tokens_ = 0;
  std::optional<bool> labelled_;
  std::int64_t done_ = 0, correct_ = 0, cut_ = 0, unanimous_ = 0;
  std::vector<std::int64_t> agreeing_;  // [K]: answers that a draw alone gives, too
};

/// Refuses flags of custom data where the run was trained on a task of the program.
void refuse_idle_flags(const ExampleFile& file, const data::TaskInfo& task) {
  const bool no_columns = file.columns.empty() && file.delimiter.empty();
  if ((file.format.empty() && no_columns) || data::is_custom_data(task)) return;
  throw UsageError(fmt::format("predict: {} has no effect on {}, which is no data of your own",
                               no_columns ? "--format" : "a flag of columns or --delimiter",
                               task.name));
}

int run(const PredictFlags& flags) {
  const ExampleFile& file = flags.file;
  if (std::filesystem::is_directory(file.path)) {
    throw DataError(fmt::format(
        "{}: a folder; expected a file of examples, or - for standard input", file.path));
  }
  set_threads(flags.threads);
  const SavedModel saved = load_run(flags.folder, flags.checkpoint, parse_device(flags.device));
  const data::Json& provenance = saved.provenance;
  const std::vector<std::string> labels = class_names(
      *saved.config.task, provenance, static_cast<std::size_t>(saved.model->config().classes));
  const data::FormatHints hints{file.path == "-" ? "standard input" : file.path,
                                data::trained_format(provenance), labels,
                                data::columns_in(provenance),
                                file.delimiter.empty() ? data::delimiter_in(provenance)
                                                       : data::parse_delimiter(file.delimiter)};
  refuse_idle_flags(file, *saved.config.task);
  Predictor predictor(saved, labels, flags);
  Progress progress;
  try {
    const auto stream = file.path == "-" ? data::open_standard_input([&] { predictor.flush(); })
                                         : data::open_file(file.path);
    const auto add = [&](const data::Record& row) { predictor.add(row); };
    for (const std::string& remark : read_examples(*stream, file, saved.config, hints, add)) {
      progress.line(remark);
    }
  } catch (const DataError&) {
    predictor.flush();  // the answers to what stands before the broken line
    throw;
  }
  predictor.flush();
  if (predictor.done() == 0) throw DataError(fmt::format("{}: no example in it", hints.name));
  for (const std::string& line : predictor.summary()) progress.line(line);
  return 0;
}

}  // namespace

void add_predict(const Command& program) {
  const Command command = program.add_command("predict", "print a label for each line of a file");
  const auto flags = std::make_shared<PredictFlags>();
  command.add_option("--run", flags->folder, "run folder").required();
  command
      .add_option("--from", flags->file.path,
                  "file of examples, or - for standard input; if it has labels, too, the accuracy "
                  "is printed at the end")
      .required();
  command.add_flag("--scores", flags->scores,
                   "probabilities after the label, a column for each class");
  command.add_option("--draws", flags->draws, kDrawsHelp).between(1, kMostDraws);
  command
      .add_option(
          "--batch", flags->batch,
          "most examples that are read before they are answered; an answer never waits for further "
          "input")
      .between(1, std::int64_t{1} << 20);
  command.add_option("--format", flags->file.format, data::kFormatHelp);
  command.add_flag("--header", flags->file.header, "the first row names the columns");
  command.add_flag("--with-input", flags->with_input,
                   "print label, tab and text; line ends of the text become blanks");
  declare_columns(command, flags->file.columns, flags->file.delimiter);
  command.add_option("--checkpoint", flags->checkpoint, "best or last");
  command.add_option("--device", flags->device, "auto, cpu or cuda");
  command.add_option("--threads", flags->threads, "CPU threads; 0: all cores");
  command.runs([flags] { return run(*flags); });
}

}  // namespace skytape::train
