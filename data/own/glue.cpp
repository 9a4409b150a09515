#include "data/own/glue.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "data/files/source.hpp"
#include "tensor/core/error.hpp"

namespace skytape::data {
namespace {

constexpr GlueLayout kLayouts[] = {
    {"SST-2", "sentence\tlabel", 0, -1, 1},
    {"QNLI", "index\tquestion\tsentence\tlabel", 1, 2, 3},
    {"QQP", "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate", 3, 4, 5, true},
};

std::vector<std::string_view> columns_of(std::string_view line) {
  std::vector<std::string_view> columns;
  for (std::size_t begin = 0;;) {
    const std::size_t end = std::min(line.find('\t', begin), line.size());
    columns.push_back(line.substr(begin, end - begin));
    if (end == line.size()) return columns;
    begin = end + 1;
  }
}

}  // namespace

const GlueLayout* find_glue_layout(std::string_view header) {
  const auto* const found =
      std::find_if(std::begin(kLayouts), std::end(kLayouts),
                   [&](const GlueLayout& layout) { return layout.header == header; });
  return found == std::end(kLayouts) ? nullptr : found;
}

const GlueLayout* glue_layout_of(ByteStream& stream, const std::string& name) {
  LineReader lines(stream, name, kMaxLine);
  std::string_view header;
  return lines.next(header) ? find_glue_layout(header) : nullptr;
}

std::int64_t read_glue(ByteStream& stream, const std::string& name, const GlueLayout& layout,
                       const std::function<void(Record&)>& visit) {
  const std::size_t wanted = columns_of(layout.header).size();
  LineReader lines(stream, name, kMaxLine);
  std::string_view line;
  if (!lines.next(line) || line != layout.header) {
    throw DataError(
        fmt::format("{}: expected the header of {}: {}", name, layout.name, layout.header));
  }
  std::int64_t left_out = 0;
  while (lines.next(line)) {
    const std::vector<std::string_view> columns = columns_of(line);
    if (layout.has_broken_rows && columns.size() < wanted) {
      ++left_out;
      continue;
    }
    if (columns.size() != wanted) {
      lines.fail(
          fmt::format("{} columns, expected the {} of {}", columns.size(), wanted, layout.name));
    }
    const auto column = [&](int index) {
      return std::string(columns[static_cast<std::size_t>(index)]);
    };
    Record record{column(layout.label), column(layout.first),
                  fmt::format("{}:{}", name, lines.line_number())};
    if (layout.second >= 0) record.second = column(layout.second);
    if (record.label.empty() || record.text.empty() ||
        (layout.second >= 0 && record.second.empty())) {
      if (layout.has_broken_rows && !record.label.empty()) {
        ++left_out;
        continue;
      }
      lines.fail(
          fmt::format("an empty column, expected a sentence and a label of {}", layout.name));
    }
    visit(record);
  }
  return left_out;
}

}  // namespace skytape::data
