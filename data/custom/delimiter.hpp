// The delimiter of CSV's fields: a comma, or the one that a file's first rows show.
#pragma once

#include <filesystem>
#include <string>

#include "data/files/json_fwd.hpp"

namespace skytape::data {

/// One character, or "tab". UsageError for anything else, and for a quote or the end of a line.
[[nodiscard]] char parse_delimiter(const std::string& text);
[[nodiscard]] std::string delimiter_name(char delimiter);

/// Comma, semicolon, tab or bar: that which cuts the first rows of a file into equally many fields,
/// two at least. A comma where none does, and where the file can be read only once.
[[nodiscard]] char find_delimiter(const std::filesystem::path& file);

/// The delimiter that the examples of a set had, as its provenance says.
[[nodiscard]] char delimiter_in(const Json& provenance);

}  // namespace skytape::data
