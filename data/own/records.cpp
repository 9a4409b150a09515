#include "data/own/records.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "data/files/csv.hpp"
#include "data/files/json.hpp"
#include "data/files/source.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/suggest.hpp"

namespace skytape::data {
namespace {

/// Leaves out a UTF-8 byte order mark at the front, which some editors write.
class WithoutMark : public ByteStream {
 public:
  explicit WithoutMark(ByteStream& inner) : inner_(inner) {}

  std::size_t read(std::span<std::uint8_t> buffer) override {
    if (!started_) start();
    if (front_.empty()) return inner_.read(buffer);
    const std::size_t part = std::min(buffer.size(), front_.size());
    std::copy_n(front_.begin(), part, buffer.begin());
    front_.erase(0, part);
    return part;
  }

 private:
  void start() {
    started_ = true;
    constexpr std::string_view kMark = "\xEF\xBB\xBF";
    std::uint8_t first[3];
    std::size_t got = 0;
    while (got < kMark.size()) {
      const std::size_t part = inner_.read(std::span(first).subspan(got));
      if (part == 0) break;
      got += part;
    }
    front_.assign(first, first + got);
    if (front_ == kMark) front_.clear();
  }

  ByteStream& inner_;
  bool started_ = false;
  std::string front_;  // read already, not handed out yet
};

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

void read_tsv(ByteStream& stream, const std::string& name, const RecordOptions& options,
              const Visit& visit) {
  constexpr const char* kExpected = "label<TAB>text";
  LineReader lines(stream, name, kMaxLine);
  Record record;
  for (std::string_view line; lines.next(line);) {
    if (options.header && lines.line_number() == 1) continue;
    if (line.empty()) continue;
    const std::size_t tab = line.find('\t');
    if (options.need_label && tab == line.npos) {
      lines.fail(fmt::format("no tab in '{}', expected {}", printable(line), kExpected));
    }
    record.place = fmt::format("{}:{}", name, lines.line_number());
    const bool labelled =
        tab != line.npos && (!options.pairs || line.find('\t', tab + 1) != line.npos);
    record.label = labelled ? line.substr(0, tab) : "";
    record.text = labelled ? line.substr(tab + 1) : line;
    check(record, labelled, kExpected);
    visit(record);
  }
}

/// Which field of a row is what.
struct Columns {
  std::size_t label = 0, text = 1;
};

Columns named_columns(const std::vector<std::string>& names, const std::string& file) {
  const auto find = [&](const char* name) {
    return static_cast<std::size_t>(std::find(names.begin(), names.end(), name) - names.begin());
  };
  const Columns columns{find("label"), find("text")};
  if (columns.text == names.size()) {
    throw DataError(fmt::format("{}: row 1: no column 'text' in the header {}", file,
                                printable(listed(names, ","))));
  }
  return columns;
}

void read_csv_records(ByteStream& stream, const std::string& name, const RecordOptions& options,
                      const Visit& visit) {
  constexpr const char* kExpected = "label,text";
  Columns columns;
  Record record;
  read_csv(stream, name, [&](std::int64_t row, std::vector<std::string>& fields) {
    if (options.header && row == 1) {
      columns = named_columns(fields, name);
      return;
    }
    record.place = fmt::format("{}: row {}", name, row);
    const bool text_alone = !options.header && fields.size() == 1;
    const std::size_t text = text_alone ? 0 : columns.text;
    const bool has_label = !text_alone && columns.label < fields.size();
    // Without a header the columns are known only where there are two of them.
    const bool unclear = !options.header && fields.size() > 2;
    if (unclear || text >= fields.size() || (options.need_label && !has_label)) {
      throw DataError(fmt::format("{}: {} fields, expected {}{}", record.place, fields.size(),
                                  kExpected,
                                  unclear ? "; --header finds columns by their names" : ""));
    }
    record.label = has_label ? fields[columns.label] : "";
    record.text = fields[text];
    check(record, has_label, kExpected);
    visit(record);
  });
}

void read_json_lines(ByteStream& stream, const std::string& name, const RecordOptions& options,
                     const Visit& visit) {
  constexpr const char* kExpected = R"({"label": …, "text": "…"})";
  if (options.header) {
    throw UsageError(fmt::format("--header: JSON Lines have none ({})", name));
  }
  LineReader lines(stream, name, kMaxLine);
  Record record;
  for (std::string_view line; lines.next(line);) {
    if (line.find_first_not_of(" \t") == line.npos) continue;
    const Json object = try_parse_json(line);
    const Json& text = object["text"];
    if (!text.is_string()) {
      lines.fail(fmt::format("no JSON object with a text in '{}', expected {}", printable(line),
                             kExpected));
    }
    const Json* label = object.find("label");
    const bool has_label = label != nullptr;
    if (has_label ? label->is_null() || label->is_array() || label->is_object()
                  : options.need_label) {
      lines.fail(fmt::format("no label in '{}', expected {}", printable(line), kExpected));
    }
    record.place = fmt::format("{}:{}", name, lines.line_number());
    record.text = text.get<std::string>();
    record.label = !has_label           ? ""
                   : label->is_string() ? label->get<std::string>()
                                        : json_text(*label);
    check(record, has_label, kExpected);
    visit(record);
  }
}

}  // namespace

void read_records(ByteStream& stream, const std::string& name, const RecordOptions& options,
                  const std::function<void(Record&)>& visit) {
  WithoutMark plain(stream);
  switch (options.format) {
    case RecordFormat::tsv:
      return read_tsv(plain, name, options, visit);
    case RecordFormat::csv:
      return read_csv_records(plain, name, options, visit);
    case RecordFormat::jsonl:
      return read_json_lines(plain, name, options, visit);
  }
}

}  // namespace skytape::data
