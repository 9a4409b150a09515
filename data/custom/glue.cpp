#include "data/custom/glue.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "data/custom/encoding.hpp"
#include "data/files/source.hpp"
#include "tensor/core/error.hpp"

namespace skytape::data {
namespace {

constexpr GlueLayout kLayouts[] = {
    {"CoLA", "", 3, -1, 1},
    {"SST-2", "sentence\tlabel", 0, -1, 1},
    {"MRPC", "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", 3, 4, 0},
    {"RTE or WNLI", "index\tsentence1\tsentence2\tlabel", 1, 2, 3},
    {"QNLI", "index\tquestion\tsentence\tlabel", 1, 2, 3},
    {"QQP", "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate", 3, 4, 5, true},
    {"MNLI",
     "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\t"
     "sentence1_parse\tsentence2_parse\tsentence1\tsentence2\tlabel1\tgold_label",
     8, 9, 11, false, "dev_matched"},
    {"MNLI",
     "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\t"
     "sentence1_parse\tsentence2_parse\tsentence1\tsentence2\tlabel1\tlabel2\tlabel3\tlabel4\t"
     "label5\tgold_label",
     8, 9, 15, false, "dev_matched"},
    {"STS-B",
     "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore", 7, 8,
     -1},
};
constexpr std::size_t kColumnsOfCola = 4;  // source, label, "*" of a wrong sentence, sentence

/// CoLA's rows show what they are: a label, and after it nothing or a star.
bool is_cola(std::string_view line) {
  const std::vector<std::string_view> columns = split(line, '\t');
  return columns.size() == kColumnsOfCola && (columns[1] == "0" || columns[1] == "1") &&
         (columns[2].empty() || columns[2] == "*");
}

std::string_view without_mark(std::string_view line) {
  if (line.starts_with(kByteOrderMark)) line.remove_prefix(kByteOrderMark.size());  // MRPC has it
  return line;
}

}  // namespace

const GlueLayout* find_glue_layout(std::string_view first_line) {
  const std::string_view line = without_mark(first_line);
  const auto* const found =
      std::find_if(std::begin(kLayouts), std::end(kLayouts), [&](const GlueLayout& layout) {
        return layout.header.empty() ? is_cola(line) : layout.header == line;
      });
  return found == std::end(kLayouts) ? nullptr : found;
}

const GlueLayout* glue_layout_of(const std::filesystem::path& file) {
  if (!std::filesystem::is_regular_file(file)) return nullptr;
  const auto stream = open_file(file);
  LineReader lines(*stream, file.string(), kMaxLine);
  std::string_view first;
  return lines.next(first) ? find_glue_layout(first) : nullptr;
}

std::int64_t read_glue(ByteStream& stream, const std::string& name, const GlueLayout& layout,
                       const std::function<void(Record&)>& visit, const BrokenRow& broken) {
  if (layout.label < 0) {
    throw DataError(
        fmt::format("{}: {} has scores for labels, expected classes", name, layout.name));
  }
  const bool has_header = !layout.header.empty();
  const std::size_t wanted = has_header ? split(layout.header, '\t').size() : kColumnsOfCola;
  LineReader lines(stream, name, kMaxLine);
  std::string_view line;
  if (has_header && (!lines.next(line) || without_mark(line) != layout.header)) {
    throw DataError(
        fmt::format("{}: expected the header of {}: {}", name, layout.name, layout.header));
  }
  std::int64_t left_out = 0;
  while (lines.next(line)) {
    const std::vector<std::string_view> columns = split(line, '\t');
    if (layout.has_broken_rows && columns.size() < wanted) {
      ++left_out;
      continue;
    }
    read_row(broken, [&] {
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
          return;
        }
        lines.fail(
            fmt::format("an empty column, expected a sentence and a label of {}", layout.name));
      }
      visit(record);
    });
  }
  return left_out;
}

}  // namespace skytape::data
