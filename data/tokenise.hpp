// Examples as a user writes them, one a line, into batches: for `skytape predict`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/batches.hpp"
#include "data/task.hpp"

namespace skytape::data {

/// Token ids of one example, per tower, before truncation.
using Tokens = std::vector<std::vector<std::int32_t>>;

/// Symbols: what the task's parser reads (a label behind a tab is ignored); bytes as they are, two
/// documents with a tab between them for two towers; pixels: grey values apart by blanks. DataError
/// naming `place` for an unknown token, a value outside 0..255, or a missing document.
[[nodiscard]] Tokens tokenise(const TaskInfo& task, std::string_view line,
                              const std::string& place);

/// Pads examples to one batch by the rules of `options` (labels are zero).
[[nodiscard]] Batch pad(const std::vector<Tokens>& examples, const BatchOptions& options);

}  // namespace skytape::data
