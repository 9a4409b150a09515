// The TSV files of the GLUE benchmark (Wang et al. 2019): a header, then single sentences or pairs.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "data/custom/records.hpp"

namespace skytape::data {

class ByteStream;

/// The columns of train.tsv and dev.tsv.
struct GlueLayout {
  std::string_view name;         // "QNLI"
  std::string_view header;       // the file's first line; empty: CoLA's files have none
  int first = 0;                 // column of the sentence
  int second = -1;               // of the other one of a pair; -1: there is none
  int label = 0;                 // -1: the file has scores in place of classes
  bool has_broken_rows = false;  // the official file has rows with too few columns, to be left out
  std::string_view dev = "dev";  // the file that holds labelled examples besides train.tsv
};

/// The layout of a labelled file of GLUE's with this first line (without a CR); null for others.
[[nodiscard]] const GlueLayout* find_glue_layout(std::string_view first_line);
/// The layout of a file; null for other files, whatever they hold.
[[nodiscard]] const GlueLayout* glue_layout_of(const std::filesystem::path& file);

/// Passes every row behind the header to `visit`. No quoting: a quotation mark is one. Returns how
/// many broken rows were left out. DataError with file and line for a row with other columns, or an
/// empty one.
std::int64_t read_glue(ByteStream& stream, const std::string& name, const GlueLayout& layout,
                       const std::function<void(Record&)>& visit, const BrokenRow& broken = {});

}  // namespace skytape::data
