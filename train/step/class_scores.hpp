// The scores of each class: precision, recall and F1 from a confusion matrix.
//
// Notation: C classes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/files/json_fwd.hpp"
#include "data/task.hpp"

namespace skytape::train {

struct ClassScore {
  std::int64_t examples = 0;  // of the class
  // Precision: of the answers with the class, the share that is right. Recall: of its examples, the
  // share that is found. F1: their harmonic mean. 0 where there is nothing to divide by.
  double precision = 0, recall = 0, f1 = 0;
};

/// `confusion`: [C, C], the examples of a class (row) that were answered with another (column).
[[nodiscard]] std::vector<ClassScore> class_scores(std::span<const std::int64_t> confusion);
/// The mean over the classes that have examples, each counting once.
[[nodiscard]] ClassScore macro_average(const std::vector<ClassScore>& scores);
/// Share of the class with most examples: the accuracy of who always answers with it.
[[nodiscard]] double majority_share(std::span<const std::int64_t> confusion);

/// {"majority_share", "macro_precision", …, "classes": [{"name", …}], "confusion": [[…]]}.
[[nodiscard]] data::Json scores_json(std::span<const std::int64_t> confusion,
                                     const std::vector<std::string>& names);
/// The same as a table for a terminal; the confusion matrix on demand.
[[nodiscard]] std::string scores_table(std::span<const std::int64_t> confusion,
                                       const std::vector<std::string>& names, bool matrix);

/// Names of a set's classes: those of custom data stand in their provenance; numbers where there
/// are none.
[[nodiscard]] std::vector<std::string> class_names(const data::TaskInfo& task,
                                                   const data::Json& provenance,
                                                   std::size_t classes);

}  // namespace skytape::train
