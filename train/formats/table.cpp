#include "train/formats/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "data/files/json.hpp"
#include "tensor/core/error.hpp"

namespace skytape::train {
namespace {

using data::Json;

std::string print(const Column& column, const Cell& cell) {
  if (cell.kind == Cell::Kind::missing) return "-";
  if (cell.kind == Cell::Kind::words) return cell.words;
  return std::isfinite(cell.number) ? fmt::format(fmt::runtime(column.format), cell.number)
                                    : fmt::format("{}", cell.number);
}

/// Returns how many letters UTF-8 text has, by which columns are aligned.
std::size_t letters(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

}  // namespace

void Table::add(std::vector<Cell> row) {
  ENSURE(row.size() == columns.size(), "table ", name, ": a row of ", row.size(), " cells for ",
         columns.size(), " columns");
  rows.push_back(std::move(row));
}

std::string to_text(const Table& table) {
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    widths.push_back(letters(table.columns[c].title));
    for (const auto& row : table.rows) {
      widths[c] = std::max(widths[c], letters(print(table.columns[c], row[c])));
    }
  }
  const auto line = [&](const auto& text_of, const auto& left) {
    std::string out;
    for (std::size_t c = 0; c < widths.size(); ++c) {
      const char* gap = c == 0 ? "" : "  ";
      out += left(c) ? fmt::format("{}{:<{}}", gap, text_of(c), widths[c])
                     : fmt::format("{}{:>{}}", gap, text_of(c), widths[c]);
    }
    out.erase(out.find_last_not_of(' ') + 1);
    return out + "\n";
  };
  const auto of_words = [&](std::size_t c) {
    return std::any_of(table.rows.begin(), table.rows.end(),
                       [&](const auto& row) { return row[c].kind == Cell::Kind::words; });
  };
  std::string text = table.title + "\n";
  text += line([&](std::size_t c) { return table.columns[c].title; }, of_words);
  for (const auto& row : table.rows) {
    text += line([&](std::size_t c) { return print(table.columns[c], row[c]); },
                 [&](std::size_t c) { return row[c].kind == Cell::Kind::words; });
  }
  for (const std::string& note : table.notes) text += note + "\n";
  return text;
}

Json to_json(const Table& table) {
  Json titles = Json::array(), formats = Json::array(), rows = Json::array();
  for (const Column& column : table.columns) {
    titles.push_back(column.title);
    formats.push_back(column.format);
  }
  for (const auto& row : table.rows) {
    Json cells = Json::array();
    for (const Cell& cell : row) {
      if (cell.kind == Cell::Kind::number) {
        cells.push_back(std::isfinite(cell.number) ? Json(cell.number)
                                                   : Json(fmt::format("{}", cell.number)));
      } else {
        cells.push_back(cell.kind == Cell::Kind::words ? Json(cell.words) : Json());
      }
    }
    rows.push_back(std::move(cells));
  }
  return {{"title", table.title},
          {"columns", titles},
          {"formats", formats},
          {"rows", rows},
          {"notes", table.notes}};
}

}  // namespace skytape::train
