#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>

#include "data/files/json.hpp"
#include "data/files/printable.hpp"
#include "data/files/source.hpp"
#include "data/own/delimiter.hpp"
#include "data/own/format.hpp"
#include "data/own/glue.hpp"
#include "data/own/records.hpp"
#include "data/tokenise.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/suggest.hpp"
#include "train/cli/cli.hpp"
#include "train/process/progress.hpp"
#include "train/process/threads.hpp"
#include "train/process/version.hpp"
#include "train/run/saved_model.hpp"
#include "train/step/class_scores.hpp"
#include "train/step/evaluate.hpp"

namespace skytape::train {
namespace {

struct PredictFlags {
  std::string folder, checkpoint = "best", from, device = "auto", format, delimiter;
  std::int64_t draws = 1, batch = 1024;
  data::ColumnNames columns;
  int threads = 0;
  bool scores = false, header = false, with_input = false;
};

/// A row of the file: its label, where it has one, and what the model reads.
struct Row {
  std::string label, text, place;
  std::size_t between = std::string::npos;  // place of the tab between a pair; npos: the first one
};

/// Returns the options for reading rows of custom data: the user's columns, or those that training
/// read, where the file has them.
data::RecordOptions rows_of(const PredictFlags& flags, data::RecordFormat format,
                            const data::FormatHints& hints, bool pairs) {
  data::RecordOptions rows{format, flags.header, false, pairs};
  rows.may_lack_header = flags.columns.empty();
  rows.one_text = !pairs && flags.columns.second.empty();
  rows.columns = flags.columns.empty() ? hints.columns : flags.columns;
  rows.delimiter = hints.delimiter;
  return rows;
}

/// Returns the format of a file of custom data.
data::RecordFormat format_of(data::Preview& file, const PredictFlags& flags,
                             const data::FormatHints& hints) {
  if (!flags.format.empty()) return data::parse_format(flags.format);
  if (flags.from != "-") {
    if (const auto ending = data::format_of(flags.from)) return *ending;
  }
  return data::format_in(file.first_line(), hints);
}

/// Returns the columns of a file of GLUE, where the run could have been trained on such a file and
/// no flag says otherwise; nullptr: it is none.
const data::GlueLayout* glue_layout_of(data::Preview& file, const PredictFlags& flags,
                                       const RunConfig& config, const data::FormatHints& hints) {
  const bool free =
      flags.format.empty() && !flags.header && flags.columns.empty() && hints.columns.empty();
  const data::GlueLayout* const found = free ? data::find_glue_layout(file.first_line()) : nullptr;
  if (found == nullptr || found->label < 0 || (found->second >= 0) != config.pairs) return nullptr;
  // Rows without a header may be texts with tabs: CoLA's classes are 0 and 1.
  const bool known = hints.labels.size() == 2 && hints.labels[0] == "0" && hints.labels[1] == "1";
  return found->header.empty() && !known ? nullptr : found;
}

/// Returns a text on the columns that were found by a first row of names, or by the members of JSON
/// objects.
std::string columns_text(const data::ColumnNames& names, data::RecordFormat format) {
  const auto column = [](const char* what, const std::string& name) {
    return name.empty() ? "" : fmt::format(", {} '{}'", what, data::printable(name));
  };
  const bool jsonl = format == data::RecordFormat::jsonl;  // where no label need be there
  return fmt::format("{}{}{}{}",
                     jsonl ? "its members are known by name" : "its first row names the columns",
                     column("text", names.text), column("text2", names.second),
                     column("label", jsonl && names.label == "label" ? "" : names.label));
}

/// Returns the warning about rows that have texts alone, from the first on: the first may have been
/// a name.
std::string texts_alone_text(const std::string& name, const std::string& first, bool own) {
  return fmt::format(
      "{}: each row is a text, the first one, '{}', too; if that names the column, {} leaves it "
      "out",
      name, data::printable(first), own ? "--header with --text-column NAME" : "--header");
}

/// Passes the rows of the examples' file to `visit`, without blank ones. `hints`: of custom data.
template <class Visit> void visit_rows(data::ByteStream& stream, const PredictFlags& flags,
                                       const RunConfig& config, data::FormatHints hints,
                                       const Visit& visit) {
  const data::TaskInfo& task = *config.task;
  const std::string& shown = hints.name;
  std::optional<std::string> first_text;  // of rows without labels
  if (data::is_custom_data(task)) {
    data::Preview preview(stream);
    const auto take = [&](data::Record& record) {
      // Two texts may also come as one with a tab between.
      const std::size_t between = record.second.empty() ? std::string::npos : record.text.size();
      if (!record.second.empty()) record.text += "\t" + record.second;
      if (!first_text) first_text = record.label.empty() ? record.text : "";
      visit(Row{record.label, record.text, record.place, between});
    };
    if (const data::GlueLayout* const glue = glue_layout_of(preview, flags, config, hints)) {
      const std::int64_t left_out = data::read_glue(preview, shown, *glue, take, nullptr);
      if (left_out > 0) {
        Progress().line(
            fmt::format("{}: {} rows without all columns have no answer", shown, left_out));
      }
      return;
    }
    if (flags.delimiter.empty()) {
      hints.delimiter = data::delimiter_of(preview.first_line(), hints);
    }
    const data::RecordOptions rows =
        rows_of(flags, format_of(preview, flags, hints), hints, config.pairs);
    const data::FoundColumns found = data::read_records(preview, shown, rows, take);
    const bool jsonl = rows.format == data::RecordFormat::jsonl;
    const bool other = !found.names.empty() && found.names.text != rows.columns.text;
    if (!found.unread.empty()) {
      Progress().line(fmt::format("{}: '{}' is not read, as the run was trained on single texts",
                                  shown, data::printable(found.unread)));
    }
    if (found.recognised || (jsonl && other)) {
      Progress().line(fmt::format("{}: {}", shown, columns_text(found.names, rows.format)));
    } else if (!flags.header && !jsonl && !first_text.value_or("").empty()) {
      Progress().line(texts_alone_text(shown, *first_text, true));
    }
    return;
  }
  data::LineReader lines(stream, shown, data::kMaxLine);
  for (std::string_view line; lines.next(line);) {
    const bool first = lines.line_number() == 1;
    if (first && line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);  // byte order mark
    if (first && (flags.header || line == "Source\tTarget")) continue;     // of official files
    if (line.find_first_not_of(" \t") == line.npos) continue;
    const auto [label, text] = data::split_label(task, line);
    if (!first_text) first_text = std::string(label.empty() && !flags.header ? text : "");
    visit(Row{label, text, fmt::format("{}:{}", shown, lines.line_number())});
  }
  if (!first_text.value_or("").empty()) {
    Progress().line(texts_alone_text(shown, *first_text, false));
  }
}

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

  void add(const Row& row) {
    check_label(row);
    const RunConfig& config = saved_.config;
    data::Tokens tokens = data::tokenise(*config.task, config.vocabulary.get(), row.text, row.place,
                                         config.pairs, config.pairs ? row.between : row.text.npos);
    const data::BatchOptions& batches = config.batches;
    cut_ += std::any_of(tokens.begin(), tokens.end(), [&](const auto& sequence) {
      const auto dropped = std::count(sequence.begin(), sequence.end(), batches.drop_token);
      return std::ssize(sequence) - dropped > batches.max_length;
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
      print(*answers[i], waiting_[i].text);
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
                      cut_, done_, saved_.config.batches.max_length));
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

  struct Waiting : Row {
    data::Tokens tokens;
  };

  /// Either every row has a label of the run, or none has one: the first row decides.
  void check_label(const Row& row) {
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

int run(const PredictFlags& flags) {
  if (std::filesystem::is_directory(flags.from)) {
    throw DataError(fmt::format(
        "{}: a folder; expected a file of examples, or - for standard input", flags.from));
  }
  set_threads(flags.threads);
  const SavedModel saved = load_run(flags.folder, flags.checkpoint, parse_device(flags.device));
  const data::Json& provenance = saved.provenance;
  const std::vector<std::string> labels = class_names(
      *saved.config.task, provenance, static_cast<std::size_t>(saved.model->config().classes));
  const data::FormatHints hints{flags.from == "-" ? "standard input" : flags.from,
                                data::trained_format(provenance), labels,
                                data::columns_in(provenance),
                                flags.delimiter.empty() ? data::delimiter_in(provenance)
                                                        : data::parse_delimiter(flags.delimiter)};
  const bool no_columns = flags.columns.empty() && flags.delimiter.empty();
  if ((!flags.format.empty() || !no_columns) && !data::is_custom_data(*saved.config.task)) {
    throw UsageError(fmt::format("predict: {} has no effect on {}, which is no data of your own",
                                 no_columns ? "--format" : "a flag of columns or --delimiter",
                                 saved.config.task->name));
  }
  Predictor predictor(saved, labels, flags);
  try {
    const auto stream = flags.from == "-" ? data::open_standard_input([&] { predictor.flush(); })
                                          : data::open_file(flags.from);
    visit_rows(*stream, flags, saved.config, hints, [&](const Row& row) { predictor.add(row); });
  } catch (const DataError&) {
    predictor.flush();  // the answers to what stands before the broken line
    throw;
  }
  predictor.flush();
  if (predictor.done() == 0) {
    throw DataError(
        fmt::format("{}: no example in it", flags.from == "-" ? "standard input" : flags.from));
  }
  Progress progress;
  for (const std::string& line : predictor.summary()) progress.line(line);
  return 0;
}

}  // namespace

void add_predict(const Command& program) {
  const Command command = program.add_command("predict", "print a label for each line of a file");
  const auto flags = std::make_shared<PredictFlags>();
  command.add_option("--run", flags->folder, "run folder").required();
  command
      .add_option("--from", flags->from,
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
  command.add_option("--format", flags->format, data::kFormatHelp);
  command.add_flag("--header", flags->header, "the first row names the columns");
  command.add_flag("--with-input", flags->with_input,
                   "print label, tab and text; line ends of the text become blanks");
  declare_columns(command, flags->columns, flags->delimiter);
  command.add_option("--checkpoint", flags->checkpoint, "best or last");
  command.add_option("--device", flags->device, "auto, cpu or cuda");
  command.add_option("--threads", flags->threads, "CPU threads; 0: all cores");
  command.runs([flags] { return run(*flags); });
}

}  // namespace skytape::train
