// Finds the format of a file of the user's examples: by --format, by its name, or by its first
// line. It is refused where that could be two formats.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/custom/records.hpp"
#include "data/files/json_fwd.hpp"
#include "data/files/source.hpp"

namespace skytape::data {

inline constexpr const char* kFormatHelp =
    "custom data: tsv, csv or jsonl; else the file's ending says it, or its first line";

/// tsv, csv or jsonl. UsageError for another name.
[[nodiscard]] RecordFormat parse_format(std::string_view name);
[[nodiscard]] std::string_view to_string(RecordFormat format);

/// By the file's ending, .gz left out: .csv; .jsonl, .ndjson or .json; .tsv. Nothing: another one.
[[nodiscard]] std::optional<RecordFormat> format_of(const std::filesystem::path& path);

/// Metadata of a stream that is known before its first line.
struct FormatHints {
  std::string name;                          // for messages
  RecordFormat trained = RecordFormat::tsv;  // of the examples that the labels come from
  std::span<const std::string> labels = {};  // that there are
  ColumnNames columns = {};                  // that training read, besides those of usual names
  char delimiter = ',';                      // of CSV
};

/// A JSON object is JSON Lines, and a line with a tab TSV. Fields of CSV begin with a label, or
/// name the columns; where training read none of it, and where training read CSV but a line with
/// commas has no label, it could be a text as well: UsageError.
[[nodiscard]] RecordFormat format_in(std::string_view line, const FormatHints& hints);

/// Returns the delimiter of CSV's fields: the one that divides a first line that names the text's
/// column, else the one of training's files; where that divides nothing, and training read CSV, one
/// that leaves a label in front.
[[nodiscard]] char delimiter_of(std::string_view line, const FormatHints& hints);

/// The format that the examples of a set had, as its provenance says.
[[nodiscard]] RecordFormat trained_format(const Json& provenance);

}  // namespace skytape::data
