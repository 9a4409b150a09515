// The parts that a batch is computed in. Sorting by length first lets each part be as narrow as its
// own longest sequence; small parts keep their activations in the CPU's cache.
#pragma once

#include <cstdint>
#include <vector>

#include "data/batch.hpp"

namespace skytape::train {

/// The limits of a microbatch. By default a batch is one microbatch.
struct MicrobatchLimits {
  std::int64_t accumulate = 1;  // at least so many of equal size, but for the last
  std::int64_t positions = 0;   // most padded positions in one, if it has two examples; 0: any
};

/// The number of positions that suits the CPU's caches and keeps all threads busy.
[[nodiscard]] std::int64_t cache_positions();

struct Microbatch {
  std::vector<std::int64_t> rows;  // of the batch, longest example first
  std::int64_t first = 0;          // place of rows[0] in the sorted batch: what draws count from
  std::int64_t width = 0;          // trimmed positions
};

/// Every example of the batch in one of the microbatches: sorted by length (equal ones in batch
/// order), longest first, so the place of an example does not depend on the limits.
[[nodiscard]] std::vector<Microbatch> microbatches_of(const data::Batch& batch,
                                                      const MicrobatchLimits& limits);

}  // namespace skytape::train
