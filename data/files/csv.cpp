#include "data/files/csv.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "data/files/digest.hpp"
#include "data/files/printable.hpp"
#include "data/files/source.hpp"
#include "tensor/core/error.hpp"

#ifdef SKYTAPE_HAVE_CSV
#include <csv.h>
#endif

namespace skytape::data {

#ifdef SKYTAPE_HAVE_CSV
namespace {

/// Rows that are complete. Nothing is thrown here: the callers are libcsv's C functions.
struct Rows {
  std::vector<std::vector<std::string>> done;
  std::vector<std::string> fields;  // of the row being read
};

void end_of_field(void* text, std::size_t bytes, void* rows) {
  static_cast<Rows*>(rows)->fields.emplace_back(static_cast<const char*>(text), bytes);
}

void end_of_row(int, void* to) {
  auto& rows = *static_cast<Rows*>(to);
  rows.done.push_back(std::move(rows.fields));
  rows.fields.clear();
}

/// Returns the error at byte `at` of a row, with the character that stands there.
std::string misplaced_quote(std::string_view row, std::size_t at, char delimiter) {
  const auto before = std::count_if(row.begin(), row.begin() + static_cast<std::ptrdiff_t>(at),
                                    [](char c) { return (c & 0xC0) != 0x80; });
  const std::string place = fmt::format("character {} of '{}'", before + 1,
                                        printable(row.substr(0, row.find_first_of("\r\n", at))));
  if (row[at] == '"') {
    return fmt::format(
        "{}: a quote within a field; expected quotes around the whole field, and \"\" for each in "
        "it",
        place);
  }
  return fmt::format(
      "{}: text behind a field's closing quote; expected '{}' or the row's end, and "
      "\"\" for a quote within the field",
      place, delimiter);
}

class Parser {
 public:
  explicit Parser(char delimiter) {
    ENSURE(csv_init(&parser_, CSV_STRICT | CSV_STRICT_FINI) == 0, "csv: libcsv does not start");
    csv_set_delim(&parser_, static_cast<unsigned char>(delimiter));
    // libcsv would take off blanks and tabs around a field.
    csv_set_space_func(&parser_, [](unsigned char) { return 0; });
  }
  ~Parser() { csv_free(&parser_); }
  Parser(const Parser&) = delete;
  Parser& operator=(const Parser&) = delete;
  csv_parser* get() { return &parser_; }

 private:
  csv_parser parser_{};
};

}  // namespace

bool can_read_csv() { return true; }

std::int64_t read_csv(
    ByteStream& stream, const std::string& name,
    const std::function<void(std::int64_t row, std::vector<std::string>& fields)>& visit,
    char delimiter, const std::function<void(const std::string&)>& broken) {
  std::optional<Parser> parser(delimiter);
  Rows rows;
  std::int64_t row = 0, blank_lines = 0;
  bool returned = false;  // the last line ended in CR, whose LF is no line
  std::string since_row;  // bytes of the row that has not ended
  const auto hand_out = [&] {
    for (std::vector<std::string>& fields : rows.done) visit(++row, fields);
    rows.done.clear();
  };
  const auto refuse = [&](const std::string& what) {  // the row being read
    const std::string message = fmt::format("{}: row {}: {}", name, ++row, what);
    if (!broken) throw DataError(message);
    broken(message);
  };
  bool skips = false;  // the rest of a broken line
  std::vector<std::uint8_t> block(1 << 16);
  for (std::size_t got; (got = stream.read(block)) > 0;) {
    // Line by line, so that the place within a row is known.
    for (std::string_view left(reinterpret_cast<const char*>(block.data()), got); !left.empty();) {
      const std::size_t end = std::min(left.find_first_of("\r\n"), left.size() - 1);
      const std::string_view line = left.substr(0, end + 1);
      left.remove_prefix(line.size());
      const bool ends = line.ends_with('\n') || line.ends_with('\r');
      if (std::exchange(skips, skips && !ends)) continue;
      since_row += line;
      const std::size_t taken =
          csv_parse(parser->get(), line.data(), line.size(), end_of_field, end_of_row, &rows);
      if (taken < line.size()) {
        refuse(misplaced_quote(since_row, since_row.size() - line.size() + taken, delimiter));
        parser.emplace(delimiter);
        rows.fields.clear();
        since_row.clear();
        skips = !ends;
      }
      if (since_row.size() > kMaxLine) {
        refuse(fmt::format("longer than {} bytes; a quote that never closes? The rest is not read",
                           kMaxLine));
        return blank_lines;
      }
      const bool blank = since_row == "\n" || since_row == "\r";  // belongs to no row
      blank_lines += blank && !(returned && since_row == "\n");
      returned = line.ends_with('\r');
      if (blank || !rows.done.empty()) since_row.clear();
      hand_out();
    }
  }
  if (csv_fini(parser->get(), end_of_field, end_of_row, &rows) != 0) {
    const auto lines = std::count(since_row.begin(), since_row.end(), '\n');
    refuse(
        fmt::format("its last quote never closes, and the rest of the file is inside it, {} line{}",
                    lines, lines == 1 ? "" : "s"));
  }
  hand_out();
  return blank_lines;
}
#else
bool can_read_csv() { return false; }

std::int64_t read_csv(ByteStream&, const std::string& name,
                      const std::function<void(std::int64_t, std::vector<std::string>&)>&, char,
                      const std::function<void(const std::string&)>&) {
  throw DataError(
      fmt::format("{}: this build reads no CSV: install libcsv-dev and type make, or bring label, "
                  "tab, text (.tsv) or JSON Lines (.jsonl)",
                  name));
}
#endif

std::vector<std::vector<std::string>> first_rows(std::string_view text, char delimiter,
                                                 std::size_t most) {
  std::vector<std::vector<std::string>> rows;
  if (!can_read_csv()) return rows;
  const auto keep = [&](std::int64_t, std::vector<std::string>& fields) {
    if (rows.size() < most) rows.push_back(std::move(fields));
  };
  read_csv(*open_memory(as_bytes(text)), "", keep, delimiter, [](const std::string&) {});
  return rows;
}

}  // namespace skytape::data
