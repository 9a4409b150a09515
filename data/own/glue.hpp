// The TSV files of the GLUE benchmark (Wang et al. 2019): a header, then single sentences or pairs.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "data/own/records.hpp"

namespace skytape::data {

class ByteStream;

/// Where the columns of train.tsv and dev.tsv stand.
struct GlueLayout {
  std::string_view name;    // "QNLI"
  std::string_view header;  // the file's first line
  int first = 0;            // column of the sentence
  int second = -1;          // of the other one of a pair; -1: there is none
  int label = 0;
  bool has_broken_rows = false;  // the official file has rows with too few columns, to be left out
};

/// The layout of SST-2, QNLI or QQP with this first line (and without a CR); null for other files.
[[nodiscard]] const GlueLayout* find_glue_layout(std::string_view header);
/// The layout of a file; null for other files, whatever they hold.
[[nodiscard]] const GlueLayout* glue_layout_of(ByteStream& stream, const std::string& name);

/// Passes every row behind the header to `visit`. No quoting: a quotation mark is one. Returns how
/// many broken rows were left out. DataError with file and line for a row with other columns, or an
/// empty one.
std::int64_t read_glue(ByteStream& stream, const std::string& name, const GlueLayout& layout,
                       const std::function<void(Record&)>& visit);

}  // namespace skytape::data
