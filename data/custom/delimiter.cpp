#include "data/custom/delimiter.hpp"

#include <fmt/format.h>

#include <vector>

#include "data/files/columns.hpp"
#include "data/files/csv.hpp"
#include "data/files/json.hpp"
#include "data/files/source.hpp"
#include "tensor/core/error.hpp"

namespace skytape::data {
namespace {

constexpr std::size_t kLooksAt = 1 << 16;  // bytes of a file
constexpr std::size_t kRows = 20;

/// The first bytes of a file, cut behind the last line end among them.
std::string beginning_of(const std::filesystem::path& file) {
  const auto stream = open_file(file);
  std::string text(kLooksAt, '\0');
  const std::size_t filled =
      read_full(*stream, {reinterpret_cast<std::uint8_t*>(text.data()), text.size()});
  const bool whole = filled < text.size();
  text.resize(filled);
  const std::size_t end = text.rfind('\n');
  if (!whole && end != text.npos) text.resize(end + 1);
  return text;
}

/// Nine of ten rows have as many fields as the first one, and it has two at least.
bool divides(const std::vector<std::vector<std::string>>& rows) {
  if (rows.empty() || rows[0].size() < 2) return false;
  std::size_t alike = 0;
  for (const auto& row : rows) alike += row.size() == rows[0].size();
  return alike * 10 >= rows.size() * 9;
}

/// Returns whether the delimiter divides every row alike, and is no mark of a text, which a blank
/// follows.
bool divides_all(const std::vector<std::vector<std::string>>& rows) {
  bool blanks = true;
  for (const auto& row : rows) {
    if (row.size() < 2 || row.size() != rows[0].size()) return false;
    for (std::size_t i = 1; i < row.size(); ++i) blanks = blanks && row[i].starts_with(' ');
  }
  return !rows.empty() && !blanks;
}

}  // namespace

char parse_delimiter(const std::string& text) {
  if (text == "tab" || text == "\\t") return '\t';
  if (text.size() == 1 && text != "\"" && text != "\n" && text != "\r") return text[0];
  throw UsageError(fmt::format("--delimiter: expected one character, or tab, got '{}'", text));
}

std::string delimiter_name(char delimiter) {
  return delimiter == '\t' ? "tab" : std::string(1, delimiter);
}

char delimiter_in(const Json& provenance) {
  const Json& sources = member(provenance, "sources");
  if (!sources.is_array() || sources.empty()) return ',';
  return parse_delimiter(sources[0].value("delimiter", ","));
}

char find_delimiter(const std::filesystem::path& file) {
  if (!std::filesystem::is_regular_file(file)) return ',';
  const std::string text = beginning_of(file);
  char best = ',';
  std::size_t earliest = std::string::npos;
  std::vector<std::string> all;  // that divide every row
  for (const char delimiter : {',', ';', '\t', '|'}) {
    const auto rows = first_rows(text, delimiter, kRows);
    if (!divides(rows)) continue;
    if (is_header(rows[0], {}, true)) return delimiter;
    if (divides_all(rows)) all.push_back(delimiter_name(delimiter));
    if (rows[0][0].size() >= earliest) continue;
    earliest = rows[0][0].size();  // the one that ends the first field first
    best = delimiter;
  }
  if (all.size() > 1) {
    throw UsageError(fmt::format("{}: '{}' and '{}' both divide its rows; --delimiter says which",
                                 file.string(), all[0], all[1]));
  }
  return best;
}

}  // namespace skytape::data
