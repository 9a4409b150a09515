// Examples as a user writes them, one a line, into batches: for `skytape predict`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/batches.hpp"
#include "data/task.hpp"

namespace skytape::train {

/// Token ids of one example, per tower, before truncation.
using Tokens = std::vector<std::vector<std::int32_t>>;

/// ListOps: an expression (a label behind a tab is ignored); texts: bytes, two documents with a tab
/// between them for Retrieval; images: grey values apart by blanks. DataError naming `place` for an
/// unknown token, a value outside 0..255, or a missing document.
[[nodiscard]] Tokens tokenise(const data::TaskInfo& task, std::string_view line,
                              const std::string& place);

/// Pads examples to one batch by the rules of `options` (labels are zero).
[[nodiscard]] data::Batch pad(const std::vector<Tokens>& examples,
                              const data::BatchOptions& options);

}  // namespace skytape::train
