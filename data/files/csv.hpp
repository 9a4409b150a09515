// CSV as RFC 4180 has it, read by libcsv: quoted fields may hold commas, quotes and line ends.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace skytape::data {

class ByteStream;

/// Whether this build can read CSV; without, read_csv throws DataError.
[[nodiscard]] bool can_read_csv();

/// Passes the fields of every row to `visit`, with the row's number from 1; rows without any field
/// are left out. DataError naming `name` and the row for a quote out of place, and for a field
/// beyond kMaxLine bytes.
void read_csv(ByteStream& stream, const std::string& name,
              const std::function<void(std::int64_t row, std::vector<std::string>& fields)>& visit);

}  // namespace skytape::data
