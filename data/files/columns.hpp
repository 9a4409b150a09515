// Finds the columns of a file of the user's examples that hold the label and the texts.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "data/files/json_fwd.hpp"

namespace skytape::data {

/// By name, as the first row or a member of JSON Lines has it, or by number from 1. Empty: by the
/// names that are usual for it.
struct ColumnNames {
  std::string label, text, second;
  [[nodiscard]] bool empty() const { return label.empty() && text.empty() && second.empty(); }
  /// Some column is called by a name, not a number: then there is a row of names.
  [[nodiscard]] bool need_header() const;
};

/// The columns that the examples of a set were read from, as its provenance says.
[[nodiscard]] ColumnNames columns_in(const Json& provenance);

/// The indices of the fields of a row.
struct Columns {
  std::optional<std::size_t> label, text, second;
};

/// The columns among `names`: those that are wanted; else those with a usual name ("label", "text";
/// "sentence1" and "sentence2" of a pair, where `pairs` are sought), whatever the case. What is not
/// there is not set.
[[nodiscard]] Columns find_columns(const std::vector<std::string>& names, const ColumnNames& wanted,
                                   bool pairs = true);

/// Returns whether a first row names the columns: a label and a text have usual names, or the
/// wanted ones. If rows need no label, a text alone with the wanted name is enough.
[[nodiscard]] bool is_header(const std::vector<std::string>& fields, const ColumnNames& wanted,
                             bool need_label, bool pairs = true);

}  // namespace skytape::data
