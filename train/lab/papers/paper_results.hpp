// Accuracy on the Long Range Arena as the papers print it: what a reproduction is compared with.
//
// Skyformer: Chen et al., NeurIPS 2021, Table 1 (128 features, 50k steps). Skeinformer: Chen et
// al., NAACL 2022, Table 1 (256 features, early stopping). Both: 2 layers, width 64, mean of three
// seeds. Their ListOps columns are on input without `]`, and Text is selected on the test set. Long
// Range Arena: Tay et al., ICLR 2021, Table 1: models of another size for each task, see recipe lra
// and train/config/lra.md.
#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace skytape::train {

/// A row of a paper's table, in percent, the columns in the papers' order.
struct PaperRow {
  std::string_view method;  // as our registry calls it
  std::string_view paper;   // which table, and what is special about the row
  double text, listops, retrieval, pathfinder, image, average;
};

/// All rows of the three tables, the papers one after the other.
[[nodiscard]] std::span<const PaperRow> paper_results();

/// A row's accuracy in percent on a task; nothing for a task that the papers do not have, as
/// substitute data and Path-X.
[[nodiscard]] std::optional<double> paper_accuracy(const PaperRow& row, std::string_view task);

}  // namespace skytape::train
