// Examples as a user writes them, one a line, into batches: for `skytape predict`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/batch.hpp"
#include "data/batch_options.hpp"
#include "data/task.hpp"

namespace skytape::data {

class Vocabulary;

/// Token ids of one example, per sequence, before truncation.
using Tokens = std::vector<std::vector<std::int32_t>>;

/// Symbols: what the task's parser reads; bytes as they are, two documents with a tab between them
/// for two sequences; pixels: intensities apart by blanks; words or integers where custom data have
/// a vocabulary (else null). Custom data of `pairs` are two texts with a tab between, which become
/// one sequence: the tab is the first one, or stands at `between`. DataError naming `place` for an
/// unknown token, a value outside 0..255, or a missing document.
[[nodiscard]] Tokens tokenise(const TaskInfo& task, const Vocabulary* vocabulary,
                              std::string_view line, const std::string& place, bool pairs = false,
                              std::size_t between = std::string_view::npos);

/// Makes the tab that ends the first text of a pair, which has so many bytes, the first one of
/// `text`: those before it become blanks. Bytes have no other mark of that end.
void mark_end(std::string& text, std::size_t first);

/// The label and texts of a row of a file of examples, before they become tokens.
struct LabelledText {
  std::string label;  // empty: there is none
  std::string text;
};

/// Takes the label column off a row, where it has one: behind the tab of an expression; before the
/// first of two tabs of a pair of documents; before the first tab of a text. Pixels have none.
[[nodiscard]] LabelledText split_label(const TaskInfo& task, std::string_view line);

/// Examples as one batch by the rules of `options`, as wide as collate() makes it; labels are zero.
[[nodiscard]] Batch pad(const std::vector<Tokens>& examples, const BatchOptions& options);

}  // namespace skytape::data
