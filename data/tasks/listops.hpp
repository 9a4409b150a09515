// ListOps (Nangia & Bowman 2018; the long form in the Long Range Arena): nested list operations
// whose value, one digit, is the label.
//
//   [MAX 2 9 [MIN 4 7 ] 0 ]  ->  9
//
// Stored tokens: 1..10 = digits 0..9, 11 [MIN, 12 [MAX, 13 [MED, 14 [SM, 15 ]. Round brackets of
// the official files carry no information and are not stored. The papers' pipeline also loses `]`:
// recipe key drop_close gives that input.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace skytape::data {

class ByteStream;
class CacheWriter;

inline constexpr uint8_t kListOpsDigit0 = 1;  // .. 10 = digit 9
inline constexpr uint8_t kListOpsMin = 11;
inline constexpr uint8_t kListOpsMax = 12;
inline constexpr uint8_t kListOpsMed = 13;
inline constexpr uint8_t kListOpsSum = 14;
inline constexpr uint8_t kListOpsClose = 15;

struct ListOpsSample {
  std::vector<uint8_t> tokens;
  int label = 0;
};

/// The `attempt`-th tree of the official generator; false if its length is outside 501..1999.
[[nodiscard]] bool draw_listops(uint64_t seed, uint64_t attempt, ListOpsSample& sample);

/// Value of an expression, computed apart from the generator; empty if it is malformed.
[[nodiscard]] std::optional<int> evaluate_listops(std::span<const uint8_t> tokens);

/// The official text: `( ( ( [MAX 2 ) 9 ) ] )`.
[[nodiscard]] std::string listops_text(std::span<const uint8_t> tokens);

inline constexpr std::string_view kListOpsSpelt = "( ) 0..9 [MIN [MAX [MED [SM ]";

/// Appends the tokens of an official text. On an unknown word returns it, otherwise nothing.
[[nodiscard]] std::string_view parse_listops(std::string_view text, std::vector<uint8_t>& tokens);

/// Reads one official TSV file into `out`: header `Source<TAB>Target`, CRLF or LF. DataError with
/// file and line. Examples whose label is not the value of the expression are kept and reported.
void read_listops(ByteStream& stream, const std::string& name, CacheWriter& out,
                  const std::function<void(std::string_view)>& warn);

}  // namespace skytape::data
