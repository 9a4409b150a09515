#include "train/run/example_rows.hpp"

#include <fmt/format.h>

#include <optional>
#include <string_view>
#include <utility>

#include "data/custom/delimiter.hpp"
#include "data/custom/glue.hpp"
#include "data/custom/records.hpp"
#include "data/files/printable.hpp"
#include "data/tokenise.hpp"

namespace skytape::train {
namespace {

using Visit = std::function<void(const data::Record&)>;

/// Returns the options for reading rows of custom data: the user's columns, or those that training
/// read, where the file has them.
data::RecordOptions rows_of(const ExampleFile& file, data::RecordFormat format,
                            const data::FormatHints& hints, bool pairs) {
  data::RecordOptions rows{format, file.header, false, pairs};
  rows.may_lack_header = file.columns.empty();
  rows.one_text = !pairs && file.columns.second.empty();
  rows.columns = file.columns.empty() ? hints.columns : file.columns;
  rows.delimiter = hints.delimiter;
  return rows;
}

/// Returns the format of a file of custom data.
data::RecordFormat format_of(data::Preview& preview, const ExampleFile& file,
                             const data::FormatHints& hints) {
  if (!file.format.empty()) return data::parse_format(file.format);
  if (file.path != "-") {
    if (const auto ending = data::format_of(file.path)) return *ending;
  }
  return data::format_in(preview.first_line(), hints);
}

/// Returns whether a flag or the file's ending says that it is CSV.
bool says_csv(const ExampleFile& file) {
  if (!file.format.empty()) return data::parse_format(file.format) == data::RecordFormat::csv;
  return file.path != "-" && data::format_of(file.path) == data::RecordFormat::csv;
}

/// Returns the columns of a file of GLUE, where the run could have been trained on such a file and
/// no flag says otherwise; nullptr: it is none.
const data::GlueLayout* glue_layout_of(data::Preview& preview, const ExampleFile& file,
                                       const RunConfig& config, const data::FormatHints& hints) {
  const bool free =
      file.format.empty() && !file.header && file.columns.empty() && hints.columns.empty();
  const data::GlueLayout* const found =
      free ? data::find_glue_layout(preview.first_line()) : nullptr;
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
      "{}: every row is read as a text, the first one, '{}', too; if that names the column, add {}",
      name, data::printable(first), own ? "--header --text-column NAME" : "--header");
}

/// Adds a remark on blank lines, which have no answer.
void say_blank(std::int64_t lines, const std::string& name, std::vector<std::string>& remarks) {
  if (lines == 0) return;
  remarks.push_back(
      fmt::format("{}: {} blank line{} skipped", name, lines, lines == 1 ? " was" : "s were"));
}

std::vector<std::string> read_custom_data(data::ByteStream& stream, const ExampleFile& file,
                                          const RunConfig& config, data::FormatHints hints,
                                          const Visit& visit) {
  const std::string& shown = hints.name;
  std::optional<std::string> first_text;  // of rows without labels
  data::Preview preview(stream);
  const auto take = [&](const data::Record& record) {
    if (!first_text) first_text = record.label.empty() ? record.texts() : "";
    visit(record);
  };
  if (const data::GlueLayout* const glue = glue_layout_of(preview, file, config, hints)) {
    const std::int64_t left_out = data::read_glue(preview, shown, *glue, take, nullptr);
    if (left_out == 0) return {};
    return {fmt::format("{}: {} rows without all columns have no answer", shown, left_out)};
  }
  const char trained = hints.delimiter;
  if (file.delimiter.empty()) {
    data::FormatHints csv = hints;  // where the file's ending or a flag says so, whatever was read
    if (says_csv(file)) csv.trained = data::RecordFormat::csv;
    hints.delimiter = data::delimiter_of(preview.first_line(), csv);
  }
  const data::RecordOptions rows =
      rows_of(file, format_of(preview, file, hints), hints, config.pairs);
  if (rows.format != data::RecordFormat::csv && !file.delimiter.empty()) {
    throw UsageError(fmt::format("--delimiter: {} is no CSV", shown));
  }
  const data::FoundColumns found = data::read_records(preview, shown, rows, take);
  const bool jsonl = rows.format == data::RecordFormat::jsonl;
  const bool other = !found.names.empty() && found.names.text != rows.columns.text;
  std::vector<std::string> remarks;
  if (rows.format == data::RecordFormat::csv && hints.delimiter != trained) {
    remarks.push_back(fmt::format("{}: its fields are divided by {}, those of training by {}",
                                  shown, data::delimiter_name(hints.delimiter),
                                  data::delimiter_name(trained)));
  }
  if (!found.unread.empty()) {
    remarks.push_back(fmt::format("{}: '{}' is not read, as the run was trained on single texts",
                                  shown, data::printable(found.unread)));
  }
  if (found.recognised || (jsonl && other)) {
    remarks.push_back(fmt::format("{}: {}", shown, columns_text(found.names, rows.format)));
  } else if (!file.header && !jsonl && !first_text.value_or("").empty()) {
    remarks.push_back(texts_alone_text(shown, *first_text, true));
  }
  say_blank(found.blank_lines, shown, remarks);
  return remarks;
}

/// Lines of a task, as its files have them: [label<TAB>]text.
std::vector<std::string> read_lines(data::ByteStream& stream, const ExampleFile& file,
                                    const data::TaskInfo& task, const std::string& shown,
                                    const Visit& visit) {
  std::optional<std::string> first_text;  // of lines without labels
  std::int64_t blank_lines = 0;
  data::LineReader lines(stream, shown, data::kMaxLine);
  for (std::string_view line; lines.next(line);) {
    const bool first = lines.line_number() == 1;
    if (first && line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);  // byte order mark
    if (first && (file.header || line == "Source\tTarget")) continue;      // of official files
    if (line.find_first_not_of(" \t") == line.npos) {
      ++blank_lines;
      continue;
    }
    const auto [label, text] = data::split_label(task, line);
    if (!first_text) first_text = std::string(label.empty() && !file.header ? text : "");
    visit({label, text, fmt::format("{}:{}", shown, lines.line_number())});
  }
  std::vector<std::string> remarks;
  if (!first_text.value_or("").empty()) {
    remarks.push_back(texts_alone_text(shown, *first_text, false));
  }
  say_blank(blank_lines, shown, remarks);
  return remarks;
}

}  // namespace

std::vector<std::string> read_examples(data::ByteStream& stream, const ExampleFile& file,
                                       const RunConfig& config, data::FormatHints hints,
                                       const Visit& visit) {
  const data::TaskInfo& task = *config.task;
  if (!data::is_custom_data(task)) return read_lines(stream, file, task, hints.name, visit);
  return read_custom_data(stream, file, config, std::move(hints), visit);
}

}  // namespace skytape::train
