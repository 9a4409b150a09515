// Figures: the numbers as a text file, a gnuplot script that draws them, and, where gnuplot is
// installed, the pictures.
//
//   NAME.dat   every series and heat map, one block each
//   NAME.gp    `gnuplot NAME.gp` in that folder makes the two pictures again
//   NAME.png, NAME.svg
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace skytape::train {

/// One line. Points without a finite x and y are gaps, never zeros.
struct Series {
  std::string name;            // in the legend; an attention method's name decides the line's look
  std::vector<double> x, y;    // as many of each
  std::vector<double> errors;  // half lengths of error bars; empty: none
  std::vector<double> low = {}, high = {};  // ends of a band around the line; empty: none
};

enum class Scale { linear, log2, log10 };

struct Axis {
  std::string label;  // with the unit
  Scale scale = Scale::linear;
  std::optional<double> low = {};  // what lies beyond the ends is cut off; none: as the numbers ask
  std::optional<double> high = {};
};

struct LinePanel {
  std::string title;
  Axis x, y;
  std::vector<Series> series;
};

/// A rectangle of coloured cells, the first row at the bottom. Values of both signs are drawn
/// around white.
struct HeatMap {
  std::string title;
  std::string x_label, y_label, value_label;  // with units
  std::vector<std::string> columns, rows;     // names of the cells
  std::vector<std::vector<double>> values;    // [rows][columns]; NaN: an empty cell
  std::optional<double> low = {}, high = {};  // ends of the colours; none: as the values ask
};

/// Panels from left to right, then from top to bottom; one legend for all of them at the right.
struct Figure {
  std::string name;  // of the files: letters, digits, - and _
  std::string title;
  std::vector<std::variant<LinePanel, HeatMap>> panels;
  int columns = 2;  // panels in a row
};

/// Writes all files of the figures into `folder`, which is made if need be. Returns whether the
/// pictures were drawn; without gnuplot one line on stderr says what to install. Error when a file
/// cannot be written, when gnuplot fails, and for series whose lengths differ.
bool draw(const std::filesystem::path& folder, std::span<const Figure> figures);

}  // namespace skytape::train
