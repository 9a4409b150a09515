// Dropout's bits where a lane has four neighbouring numbers, CUDA only.
#pragma once

#include <cstdint>

#include "tensor/launch/four.hpp"
#include "tensor/random/philox.hpp"

namespace skytape::philox {

/// Returns the kept elements of two chunks, whose numbers 4 lane to 4 lane + 3 are a lane's: bit u
/// is that of the first chunk's, bit 16 + u of the second one's. Each lane draws one counter; the
/// votes about the 16 numbers of a run are in one word, of both chunks.
__device__ inline unsigned kept_fours(std::uint64_t key, std::uint64_t step, std::int64_t first,
                                      std::int64_t second, std::uint32_t threshold) {
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
  const auto chunk = static_cast<std::uint64_t>(lane < kLanes ? first : second);
  const Words words = draw(key, chunk * kLanes + lane % kLanes, step);
  unsigned mine = 0;
#pragma unroll
  for (int run = 0; run < kChunk / kLanes; ++run) {
    const std::uint32_t bits = (words.w[run / 2] >> (16 * (run % 2))) & 0xffffu;
    const unsigned votes = __ballot_sync(cuda::kAllLanes, bits >= threshold);
    if (lane / 4 == run) mine = votes;
  }
  return mine >> (4 * (lane % 4));
}

/// Scales the lane's numbers of a chunk that are kept, and drops the others; `kept` from its bit
/// on.
template <class T> __device__ void keep(cuda::Four<T>& four, unsigned kept, T scale) {
#pragma unroll
  for (int u = 0; u < 4; ++u) four.x[u] *= (kept >> u & 1) != 0 ? scale : T(0);
}

}  // namespace skytape::philox
