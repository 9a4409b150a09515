#include "data/custom/format.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "data/files/csv.hpp"
#include "data/files/digest.hpp"
#include "data/files/json.hpp"
#include "data/files/printable.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/suggest.hpp"

namespace skytape::data {
namespace {

using NamedFormat = std::pair<std::string_view, RecordFormat>;
constexpr NamedFormat kFormats[] = {
    {"tsv", RecordFormat::tsv}, {"csv", RecordFormat::csv}, {"jsonl", RecordFormat::jsonl}};

/// The fields of a line of CSV; empty if it is none.
std::vector<std::string> fields_of(std::string_view line, char delimiter) {
  const auto rows = first_rows(line, delimiter, 1);
  return rows.empty() ? std::vector<std::string>() : rows[0];
}

/// The names of an object's members; none of another value.
std::vector<std::string> keys_of(const Json& object) {
  std::vector<std::string> keys;
  if (!object.is_object()) return keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;
}

/// Returns whether one of the names is that of a text: a usual name, or the one in training's
/// files.
bool names_text(const std::vector<std::string>& names, const FormatHints& hints) {
  const std::string& own = hints.columns.text;
  const bool trained = !own.empty() && std::find(names.begin(), names.end(), own) != names.end();
  return trained || find_columns(names, {}).text;
}

}  // namespace

RecordFormat parse_format(std::string_view name) {
  return find_named("format", name, kFormats, &NamedFormat::first).second;
}

std::string_view to_string(RecordFormat format) {
  return std::find_if(std::begin(kFormats), std::end(kFormats),
                      [&](const auto& known) { return known.second == format; })
      ->first;
}

std::optional<RecordFormat> format_of(const std::filesystem::path& path) {
  std::filesystem::path plain = path.filename();
  if (plain.extension() == ".gz") plain = plain.stem();
  const std::string ending = plain.extension().string();
  if (ending == ".csv") return RecordFormat::csv;
  if (ending == ".jsonl" || ending == ".ndjson" || ending == ".json") return RecordFormat::jsonl;
  if (ending == ".tsv") return RecordFormat::tsv;
  return std::nullopt;
}

RecordFormat format_in(std::string_view line, const FormatHints& hints) {
  const auto unclear = [&](const char* first, const char* second) {
    return UsageError(fmt::format("{}: '{}' could be {} or {}; --format tsv, csv or jsonl says it",
                                  hints.name, printable(line), first, second));
  };
  if (line.starts_with('{')) {
    const Json object = try_parse_json(line);
    if (names_text(keys_of(object), hints)) return RecordFormat::jsonl;
    if (object.is_object() || hints.trained == RecordFormat::jsonl) {
      throw unclear("JSON Lines without a text", "a text");
    }
  }
  if (line.find('\t') != line.npos) return RecordFormat::tsv;
  const std::vector<std::string> fields = fields_of(line, hints.delimiter);
  const bool labelled = fields.size() > 1 && (names_text(fields, hints) ||
                                              std::find(hints.labels.begin(), hints.labels.end(),
                                                        fields[0]) != hints.labels.end());
  const bool quoted = line.starts_with('"') && fields.size() == 1;
  if (hints.trained == RecordFormat::csv && (labelled || quoted)) return RecordFormat::csv;
  const bool commas = fields.size() > 1 && hints.trained == RecordFormat::csv;
  if (labelled || commas) throw unclear("fields of CSV", "a text with commas");
  return RecordFormat::tsv;
}

char delimiter_of(std::string_view line, const FormatHints& hints) {
  if (line.starts_with('{')) return hints.delimiter;
  constexpr char kUsual[] = {',', ';', '\t', '|'};
  const bool divides = fields_of(line, hints.delimiter).size() > 1;
  if (divides && names_text(fields_of(line, hints.delimiter), hints)) return hints.delimiter;
  for (const char delimiter : kUsual) {
    const std::vector<std::string> fields = fields_of(line, delimiter);
    if (fields.size() > 1 && names_text(fields, hints)) return delimiter;
  }
  if (divides || hints.trained != RecordFormat::csv) return hints.delimiter;
  for (const char delimiter : kUsual) {
    const std::vector<std::string> fields = fields_of(line, delimiter);
    const bool labelled = fields.size() > 1 && std::find(hints.labels.begin(), hints.labels.end(),
                                                         fields[0]) != hints.labels.end();
    if (labelled) return delimiter;
  }
  return hints.delimiter;
}

RecordFormat trained_format(const Json& provenance) {
  const Json& sources = member(provenance, "sources");
  if (!sources.is_array() || sources.empty()) return RecordFormat::tsv;
  const std::string said = sources[0].value("format", "");
  if (!said.empty()) return parse_format(said);
  return format_of(sources[0].value("file", "")).value_or(RecordFormat::tsv);
}

}  // namespace skytape::data
