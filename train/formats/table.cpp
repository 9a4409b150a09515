#include "train/formats/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "data/files/json.hpp"
#include "tensor/core/error.hpp"
#include "train/formats/html.hpp"

namespace skytape::train {
namespace {

using data::Json;

std::string print(const Column& column, const Cell& cell) {
  if (cell.kind == Cell::Kind::missing) return "-";
  if (cell.kind == Cell::Kind::words) return cell.words;
  return std::isfinite(cell.number) ? fmt::format(fmt::runtime(column.format), cell.number)
                                    : fmt::format("{}", cell.number);
}

/// Words of a cell inside a Markdown row.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
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
    widths.push_back(table.columns[c].title.size());
    for (const auto& row : table.rows) {
      widths[c] = std::max(widths[c], print(table.columns[c], row[c]).size());
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

std::string to_markdown(const Table& table) {
  std::string head = "|", rule = "|", body;
  for (const Column& column : table.columns) {
    head += fmt::format(" {} |", escaped(column.title));
    rule += "---|";
  }
  for (const auto& row : table.rows) {
    body += "|";
    for (std::size_t c = 0; c < row.size(); ++c) {
      body += fmt::format(" {} |", escaped(print(table.columns[c], row[c])));
    }
    body += "\n";
  }
  std::string notes;
  for (const std::string& note : table.notes) notes += fmt::format("\n{}\n", note);
  return fmt::format("{}\n\n{}\n{}\n{}{}", table.title, head, rule, body, notes);
}

std::string to_html(const Table& table) {
  std::string head, body, notes;
  for (const Column& column : table.columns) {
    head += fmt::format("<th>{}</th>", html_escaped(column.title));
  }
  for (const auto& row : table.rows) {
    body += "<tr>";
    for (std::size_t c = 0; c < row.size(); ++c) {
      body +=
          fmt::format("<td{}>{}</td>", row[c].kind == Cell::Kind::words ? "" : " class=\"number\"",
                      html_escaped(print(table.columns[c], row[c])));
    }
    body += "</tr>\n";
  }
  for (const std::string& note : table.notes) {
    notes += fmt::format("<p class=\"note\">{}</p>\n", html_escaped(note));
  }
  return fmt::format(
      "<figure>\n<figcaption>{}</figcaption>\n<div class=\"wide\"><table>\n"
      "<thead><tr>{}</tr></thead>\n<tbody>\n{}</tbody>\n</table></div>\n{}</figure>\n",
      html_escaped(table.title), head, body, notes);
}

Json to_json(const Table& table) {
  Json titles = Json::array(), rows = Json::array();
  for (const Column& column : table.columns) titles.push_back(column.title);
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
  return {{"title", table.title}, {"columns", titles}, {"rows", rows}, {"notes", table.notes}};
}

Table table_from_json(const Json& j, const std::string& file) {
  Table table;
  try {
    table.title = j.at("title").get<std::string>();
    for (const Json& title : j.at("columns"))
      table.columns.push_back({title.get<std::string>(), "{:.4g}"});
    for (const Json& row : j.at("rows")) {
      std::vector<Cell> cells;
      for (const Json& cell : row) {
        cells.push_back(cell.is_number()   ? Cell(cell.get<double>())
                        : cell.is_string() ? Cell(cell.get<std::string>())
                                           : Cell());
      }
      table.add(std::move(cells));
    }
    table.notes = j.at("notes").get<std::vector<std::string>>();
  } catch (const std::exception& error) {  // also a row of another width
    throw DataError(fmt::format("{}: not a table of ours: {}", file, data::problem_of(error)));
  }
  return table;
}

}  // namespace skytape::train
