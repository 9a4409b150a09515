// The parts that a batch is computed in. Sorting by length first lets each part be as narrow as its
// own longest sequence; small parts keep their activations in the CPU's cache.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "data/batches.hpp"
#include "nn/model.hpp"

namespace skytape::train {

/// What bounds a chunk. The defaults compute a batch at once.
struct ChunkLimits {
  std::int64_t accumulate = 1;  // at least so many chunks of equal size, but for the last
  std::int64_t positions = 0;  // padded positions of a chunk, if it has two examples; 0: any number
};

/// The number of positions that suits the CPU's caches and keeps all threads busy.
[[nodiscard]] std::int64_t cache_positions();

struct Chunk {
  std::vector<std::int64_t> rows;  // of the batch, longest example first
  std::int64_t first = 0;          // place of rows[0] in the sorted batch: what draws count from
  std::int64_t width = 0;          // trimmed positions
};

/// Every example of the batch in one chunk: sorted by length (equal ones in batch order), longest
/// first, so the place of an example does not depend on the limits.
[[nodiscard]] std::vector<Chunk> chunks_of(const data::Batch& batch, const ChunkLimits& limits);

/// The batch as it is, in one chunk.
[[nodiscard]] Chunk whole(const data::Batch& batch);

/// A chunk on the model's device.
struct Feed {
  nn::ModelInput input;  // [B, N]
  Tensor labels;         // i32[B]
};
[[nodiscard]] Feed upload(const data::Batch& batch, const Chunk& chunk, Device device);

/// Smallest number of unmasked tokens of an example, per tower: counted on the host, so that
/// methods need not ask the device.
[[nodiscard]] std::array<std::int64_t, nn::kMaxTowers> fewest_tokens(const data::Batch& batch);

}  // namespace skytape::train
