// CSV as RFC 4180 has it, read by libcsv: quoted fields may hold commas, quotes and line ends.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace skytape::data {

class ByteStream;

/// Returns whether this build can read CSV; without, read_csv throws DataError.
[[nodiscard]] bool can_read_csv();

/// Passes the fields of every row to `visit`, with the row's number from 1; rows without any field
/// are left out. Blanks and tabs belong to their field. DataError naming `name`, row and character
/// for a quote out of place, and for a row beyond kMaxLine bytes; where `broken` is given, it takes
/// the message about a quote, and reading continues with the next line. Returns the number of blank
/// lines between rows.
std::int64_t read_csv(
    ByteStream& stream, const std::string& name,
    const std::function<void(std::int64_t row, std::vector<std::string>& fields)>& visit,
    char delimiter = ',', const std::function<void(const std::string& message)>& broken = {});

/// The fields of the first rows of a text, `most` at the most; broken ones are left out. None where
/// this build cannot read CSV.
[[nodiscard]] std::vector<std::vector<std::string>> first_rows(std::string_view text,
                                                               char delimiter, std::size_t most);

}  // namespace skytape::data
