#include "data/custom/records.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "data/custom/encoding.hpp"
#include "data/files/csv.hpp"
#include "data/files/json.hpp"
#include "data/files/printable.hpp"
#include "data/files/source.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/suggest.hpp"

namespace skytape::data {
namespace {

using Visit = std::function<void(Record&)>;

/// Refuses a label that no line of an output could show.
void check(const Record& record, bool need_label, const char* expected) {
  const auto fail = [&](const std::string& what) {
    throw DataError(fmt::format("{}: {}, expected {}", record.place, what, expected));
  };
  if (need_label && record.label.empty()) fail("empty label");
  if (record.text.empty()) fail("empty text");
  constexpr std::size_t kLongestLabel = 200;
  const bool shown = std::none_of(record.label.begin(), record.label.end(),
                                  [](char c) { return static_cast<unsigned char>(c) < ' '; });
  if (!shown || record.label.size() > kLongestLabel) {
    fail(fmt::format("label '{}' has control characters or more than {} bytes",
                     printable(record.label), kLongestLabel));
  }
}

/// Refuses flags that give one column two meanings. `names` are all columns.
void check_distinct(const Columns& columns, const std::vector<std::string>& names,
                    const std::string& file) {
  const std::array<std::pair<const char*, std::optional<std::size_t>>, 3> meanings{
      {{"label", columns.label}, {"text", columns.text}, {"second text", columns.second}}};
  for (std::size_t i = 0; i < meanings.size(); ++i) {
    for (std::size_t j = i + 1; j < meanings.size(); ++j) {
      if (!meanings[i].second || meanings[i].second != meanings[j].second) continue;
      throw UsageError(fmt::format("{}: column '{}' is both {} and {}, expected two columns", file,
                                   printable(names[*meanings[i].second]), meanings[i].first,
                                   meanings[j].first));
    }
  }
}

/// Refuses two columns of one name where it is what finds one of them.
void check_once(const Columns& columns, const ColumnNames& wanted,
                const std::vector<std::string>& names, const std::string& file) {
  const std::array<std::pair<std::optional<std::size_t>, const std::string&>, 3> found{
      {{columns.label, wanted.label},
       {columns.text, wanted.text},
       {columns.second, wanted.second}}};
  for (const auto& [place, asked] : found) {
    if (!place || std::ranges::count(names, names[*place]) < 2) continue;
    if (!asked.empty() && asked != names[*place]) continue;  // by its number
    throw DataError(
        fmt::format("{}: row 1: '{}' names two columns, expected each name once, or the number of "
                    "the column that is meant",
                    file, printable(names[*place])));
  }
}

/// Returns the name of the usual text that is left out where one text of a pair is read.
std::string unread_text(const Columns& columns, const std::vector<std::string>& names) {
  const Columns usual = find_columns(names, {});
  if (!usual.second || columns.second) return {};
  const std::size_t other = usual.second == columns.text ? *usual.text : *usual.second;
  return other == columns.text || other == columns.label ? "" : names[other];
}

/// Finds label and texts in the fields of rows, by a first row of names or by given numbers.
class FieldRows {
 public:
  FieldRows(const RecordOptions& options, const std::string& file)
      : options_(options), file_(file) {}

  /// Takes the first row. True if it is no example.
  bool take_first(const std::vector<std::string>& fields) {
    const ColumnNames& wanted = options_.columns;
    const bool by_number = !wanted.empty() && !wanted.need_header();
    bool header = options_.header || (wanted.need_header() && !options_.may_lack_header);
    const bool pairs = !options_.one_text;
    if (!header && !by_number && is_header(fields, wanted, options_.need_label, pairs)) {
      header = found_.recognised = true;
    }
    if (!header && !by_number) return false;
    if (!header && options_.may_lack_header && fields.size() == 1) return false;  // a text alone
    columns_ = find_columns(fields, wanted, pairs);
    check_distinct(columns_, fields, file_);
    if (header) check_once(columns_, wanted, fields, file_);
    if (header && options_.one_text) found_.unread = unread_text(columns_, fields);
    const auto name = [&](const char* what, const char* flag, std::optional<std::size_t> place,
                          const std::string& asked, bool needed) -> std::string {
      if (place) return header ? fields[*place] : asked;
      if (!needed && (asked.empty() || options_.may_lack_header)) return {};
      throw DataError(fmt::format(
          "{}: row 1: no column '{}' in {}; {} NAME, or its number from 1, says which it is{}",
          file_, asked.empty() ? what : asked, printable(listed(fields, ","), 200), flag,
          options_.header ? "; if that row names no columns, leave --header out" : ""));
    };
    found_.names.text = name("text", "--text-column", columns_.text, wanted.text, true);
    found_.names.label =
        name("label", "--label-column", columns_.label, wanted.label, options_.need_label);
    found_.names.second = name("text2", "--text2-column", columns_.second, wanted.second, false);
    count_ = fields.size();
    return header;
  }

  /// Returns the number of fields of a row; 0: no header, fields go by position.
  [[nodiscard]] std::size_t count() const { return count_; }
  /// Returns whether the last field is a text, which may contain the delimiter.
  [[nodiscard]] bool ends_with_text() const {
    return columns_.text == count_ - 1 || columns_.second == count_ - 1;
  }
  [[nodiscard]] const FoundColumns& found() const { return found_; }

  void fill(Record& record, const std::vector<std::string>& fields) const {
    if (fields.size() != count_) {
      throw DataError(fmt::format("{}: {} fields, expected {} as in row 1", record.place,
                                  fields.size(), count_));
    }
    record.label = columns_.label ? fields[*columns_.label] : "";
    record.text = fields[*columns_.text];
    record.second = columns_.second ? fields[*columns_.second] : "";
    check(record, options_.need_label, "a label and a text");
    if (columns_.second && record.second.empty()) {
      throw DataError(fmt::format("{}: empty second text", record.place));
    }
  }

 private:
  const RecordOptions& options_;
  const std::string& file_;
  Columns columns_;
  std::size_t count_ = 0;
  FoundColumns found_;
};

/// Returns the fields between tabs. Of more than `most`, the last one keeps its tabs.
std::vector<std::string> between_tabs(std::string_view line, std::size_t most) {
  const std::vector<std::string_view> parts = split(line, '\t', most);
  return {parts.begin(), parts.end()};
}

FoundColumns read_tsv(ByteStream& stream, const std::string& name, const RecordOptions& options,
                      const Visit& visit) {
  constexpr const char* kExpected = "label<TAB>text";
  LineReader lines(stream, name, kMaxLine);
  FieldRows rows(options, name);
  bool first = true;
  std::int64_t blank_lines = 0;
  for (std::string_view line; lines.next(line);) {
    if (line.empty() || (!options.need_label && line.find_first_not_of(" \t") == line.npos)) {
      ++blank_lines;
      continue;
    }
    if (std::exchange(first, false) && rows.take_first(between_tabs(line, line.npos))) continue;
    read_row(options.broken, [&] {
      Record record;
      record.place = fmt::format("{}:{}", name, lines.line_number());
      if (rows.count() > 0) {
        rows.fill(record, between_tabs(line, rows.ends_with_text() ? rows.count() : line.npos));
      } else {
        const std::size_t tab = line.find('\t');
        if (options.need_label && tab == line.npos) {
          lines.fail(fmt::format("no tab in '{}', expected {}; --delimiter names another character",
                                 printable(line), kExpected));
        }
        const bool labelled =
            tab != line.npos && (!options.pairs || line.find('\t', tab + 1) != line.npos);
        record.label = labelled ? line.substr(0, tab) : "";
        record.text = labelled ? line.substr(tab + 1) : line;
        check(record, labelled, kExpected);
      }
      visit(record);
    });
  }
  FoundColumns found = rows.found();
  found.blank_lines = blank_lines;
  return found;
}

FoundColumns read_csv_records(ByteStream& stream, const std::string& name,
                              const RecordOptions& options, const Visit& visit) {
  FieldRows rows(options, name);
  const std::size_t texts = options.pairs ? 2 : 1;
  bool first = true;
  std::int64_t blank_rows = 0;
  const std::int64_t blank_lines = read_csv(
      stream, name,
      [&](std::int64_t row, std::vector<std::string>& fields) {
        // A row without any character is not handed out; what is empty here stands in quotes.
        const bool blanks =
            fields.size() == 1 && fields[0].find_first_not_of(" \t") == fields[0].npos;
        if (blanks && !fields[0].empty()) {
          ++blank_rows;
          return;
        }
        if (std::exchange(first, false) && rows.take_first(fields)) return;
        read_row(options.broken, [&] {
          Record record;
          record.place = fmt::format("{}: row {}", name, row);
          if (rows.count() > 0) {
            rows.fill(record, fields);
          } else {
            const bool has_label = fields.size() == texts + 1;
            const std::string shown = printable(std::string(1, options.delimiter));
            if (!has_label && (options.need_label || fields.size() != texts)) {
              throw DataError(fmt::format(
                  "{}: found {} field{} separated by '{}', expected label{}text{}", record.place,
                  fields.size(), fields.size() == 1 ? "" : "s", shown, shown,
                  fields.size() > texts ? "; a first row of names says more, or --label-column and "
                                          "--text-column (and "
                                          "--text2-column of a pair)"
                                        : "; --delimiter sets another separator"));
            }
            if (has_label) record.label = fields[0];
            record.text = fields[has_label ? 1 : 0];
            if (options.pairs) record.second = fields.back();
            check(record, has_label, "label,text");
          }
          visit(record);
        });
      },
      options.delimiter, options.broken);
  FoundColumns found = rows.found();
  found.blank_lines = blank_lines + blank_rows;
  return found;
}

/// The names of the members that hold label and texts, as this object has them. `unread` becomes
/// that of a text which is left out.
ColumnNames members_of(const Json& object, const RecordOptions& options, const std::string& file,
                       std::string& unread) {
  const ColumnNames& wanted = options.columns;
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  const Columns columns = find_columns(keys, wanted, !options.one_text);
  check_distinct(columns, keys, file);
  if (options.one_text && unread.empty()) unread = unread_text(columns, keys);
  const auto name = [&](const std::string& asked, std::optional<std::size_t> place,
                        const char* otherwise) {
    const bool must_be = !asked.empty() && !options.may_lack_header;
    return must_be ? asked : place ? keys[*place] : otherwise;
  };
  // `data --export` writes "text2", whatever the columns of training were.
  const bool exported = options.pairs && !columns.text && object.contains("text2");
  return {name(wanted.label, columns.label, "label"), name(wanted.text, columns.text, "text"),
          name(wanted.second, columns.second, exported ? "text2" : "")};
}

FoundColumns read_json_lines(ByteStream& stream, const std::string& name,
                             const RecordOptions& options, const Visit& visit) {
  if (options.header) {
    throw UsageError(fmt::format("--header: JSON Lines have none ({})", name));
  }
  LineReader lines(stream, name, kMaxLine);
  ColumnNames members{"label", "text", ""};
  std::string unread;
  std::int64_t blank_lines = 0;
  bool known = false;  // by a first row that was read whole
  const auto expected = [&] {
    const std::string second =
        members.second.empty() ? "" : fmt::format(R"(, "{}": "…")", members.second);
    return fmt::format(R"({{"{}": …, "{}": "…"{}}})", members.label, members.text, second);
  };
  for (std::string_view line; lines.next(line);) {
    if (line.find_first_not_of(" \t") == line.npos) {
      ++blank_lines;
      continue;
    }
    read_row(options.broken, [&] {
      Json object;
      try {
        object = parse_json(line);
      } catch (const Json::other_error& error) {  // what we refuse of what is JSON
        lines.fail(printable(problem_of(error), 200));
      } catch (const JsonError&) {  // said below, with what is expected
      }
      const ColumnNames found =
          object.is_object() ? members_of(object, options, name, unread) : members;
      if (!known) members = found;
      if (members.second.empty() && !found.second.empty()) {
        lines.fail(fmt::format("two texts, '{}' and '{}', unlike the first row", found.text,
                               found.second));
      }
      const Json& text = member(object, members.text);
      const Json& second = member(object, members.second);
      if (!text.is_string() || (!members.second.empty() && !second.is_string())) {
        const bool utf8 = first_not_utf8(line) == line.npos;  // JSON is
        lines.fail(fmt::format("no JSON object with a text in '{}', expected {}{}", printable(line),
                               expected(), utf8 ? "" : " in UTF-8 (`iconv` makes it)"));
      }
      known = true;
      const Json& label = member(object, members.label);
      const bool has_label = object.contains(members.label);
      if (has_label ? label.is_null() || label.is_structured() : options.need_label) {
        lines.fail(fmt::format("no label in '{}', expected {}", printable(line), expected()));
      }
      if (label.is_number_float() && std::abs(label.get<double>()) >= 0x1p63) {
        lines.fail(
            fmt::format("label {} is beyond 64 bits, where numbers become alike; expected it "
                        "in quotes",
                        json_text(label)));
      }
      Record record;
      record.place = fmt::format("{}:{}", name, lines.line_number());
      record.text = text.get<std::string>();
      if (!members.second.empty()) record.second = second.get<std::string>();
      record.label = !has_label          ? ""
                     : label.is_string() ? label.get<std::string>()
                                         : json_text(label);
      check(record, has_label, "a label and a text");
      visit(record);
    });
  }
  const bool usual = members.label == "label" && members.text == "text" && members.second.empty();
  return {usual ? ColumnNames{} : members, !usual && options.columns.empty(), unread, blank_lines};
}

}  // namespace

void read_row(const BrokenRow& broken, const std::function<void()>& read) {
  if (!broken) return read();
  try {
    read();
  } catch (const DataError& error) {
    broken(error.what());
  }
}

FoundColumns read_records(ByteStream& stream, const std::string& name, const RecordOptions& options,
                          const std::function<void(Record&)>& visit) {
  Preview plain(stream);
  const std::string_view front = plain.front(kByteOrderMark.size());
  refuse_utf16(front, name);
  // Some editors write a byte-order mark.
  if (front.starts_with(kByteOrderMark)) plain.skip(kByteOrderMark.size());
  const auto read = options.format == RecordFormat::csv     ? read_csv_records
                    : options.format == RecordFormat::jsonl ? read_json_lines
                                                            : read_tsv;
  return read(plain, name, options, visit);
}

}  // namespace skytape::data
