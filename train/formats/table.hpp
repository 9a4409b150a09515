// Tables of results: on the terminal and as JSON, which train/report makes pages of. A cell without
// a value is shown as missing ("-", in JSON null), never as zero.
#pragma once

#include <concepts>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/files/json_fwd.hpp"

namespace skytape::train {

/// Nothing, a number or words. (A struct rather than a std::variant, over which g++ 12 stumbles.)
struct Cell {
  enum class Kind { missing, number, words } kind = Kind::missing;
  double number = 0;
  std::string words;

  Cell() = default;
  Cell(double value) : kind(Kind::number), number(value) {}
  template <std::integral Number> Cell(Number value) : Cell(static_cast<double>(value)) {}
  Cell(std::string text) : kind(Kind::words), words(std::move(text)) {}
  Cell(const char* text) : Cell(std::string(text)) {}
  template <class Number> Cell(const std::optional<Number>& value) {
    if (value) *this = Cell(static_cast<double>(*value));
  }
};

struct Column {
  std::string title;            // with the unit
  std::string format = "{:g}";  // of its numbers, in {fmt}'s notation
};

struct Table {
  std::string name;   // one word: what JSON and options call it
  std::string title;  // one sentence
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;
  std::vector<std::string> notes;  // below the table

  /// Throws Error unless there is a cell for every column.
  void add(std::vector<Cell> row);
};

/// Columns aligned: words to the left, numbers to the right.
[[nodiscard]] std::string to_text(const Table& table);
/// {"title", "columns": [titles], "formats": [of each column's numbers], "rows": [[…]], "notes"}.
/// Numbers are whole, not as printed; one that is not finite is written in words.
[[nodiscard]] data::Json to_json(const Table& table);

}  // namespace skytape::train
