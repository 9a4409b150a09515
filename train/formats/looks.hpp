// The looks of lines: the same for a method in every figure, and no two methods alike, however many
// there are. In a figure no two lines of up to 45 have one colour.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace skytape::train {

struct Look {
  std::string colour;  // "#rrggbb"
  int marker = 0;      // gnuplot's point type
  int dash = 1;        // gnuplot's dash type; 1: solid
  int extra = 0;       // points of width beyond the usual: of a ninety-first method
  friend bool operator==(const Look&, const Look&) = default;
};

/// The look of the method with this place in the registry, or of the `position`-th other name.
[[nodiscard]] Look method_look(int position);
[[nodiscard]] Look other_look(int position);
/// The look of an attention method or, for any other name, of the `other`-th of such names.
[[nodiscard]] Look look_of(std::string_view name, int other = 0);
/// Those of a figure's lines. Methods have their own; other lines, which are dotted next to methods
/// and solid among themselves, have a colour that is free.
[[nodiscard]] std::map<std::string, Look> looks_of(const std::vector<std::string>& names);

}  // namespace skytape::train
