// Sorting a block's keys by a bitonic network, whole or only as far as its smallest keys, CUDA
// only.
//
// Two neighbouring runs of sorted keys, one ascending and one descending, are a bitonic sequence.
// Its stages, with distances of half its length down to 1, exchange keys that lie in the wrong
// order and leave one sorted run. A warp does the stages with distances of 32 and less on 64 keys
// in registers, without a barrier; longer ones go through the block's memory.
#pragma once

#include <cstdint>

#include "tensor/launch/cuda.hpp"

namespace skytape::cuda {

inline constexpr int kWarpKeys = 2 * kWarp;  // keys that a warp holds, two a lane

/// Keys that `keep_smallest` takes for so many: a power of two, at least kWarpKeys.
inline std::int64_t padded_keys(std::int64_t count) {
  std::int64_t padded = kWarpKeys;
  while (padded < count) padded *= 2;
  return padded;
}

/// A key of 64 bits and a number, compared in this order.
struct LongKey {
  std::uint64_t high;
  std::uint32_t low;
  __device__ bool operator<(const LongKey& other) const {
    return high < other.high || (high == other.high && low < other.low);
  }
};

__device__ inline std::uint64_t of_lane(std::uint64_t key, int distance) {
  return __shfl_xor_sync(kAllLanes, key, distance);
}
__device__ inline LongKey of_lane(const LongKey& key, int distance) {
  return {of_lane(key.high, distance), __shfl_xor_sync(kAllLanes, key.low, distance)};
}

/// The stages of runs of `size` with distances of 32 and less. a is the warp's key `i`, b the one
/// 32 places behind it.
template <class Key> __device__ void merge_in_warp(Key& a, Key& b, int i, int size) {
  const bool rises = (i & size) == 0, b_rises = ((i + kWarp) & size) == 0;
  if (size > kWarp && (b < a) == rises) {
    const Key lower = b;
    b = a;
    a = lower;
  }
  for (int distance = (size < kWarp ? size : kWarp) / 2; distance > 0; distance /= 2) {
    const bool first = (i & distance) == 0;  // of the two keys
    const Key other_a = of_lane(a, distance), other_b = of_lane(b, distance);
    if ((other_a < a) == (first == rises)) a = other_a;
    if ((other_b < b) == (first == b_rises)) b = other_b;
  }
}

/// Moves the `keep` smallest of keys[count] to the front, ascending; those behind them are lost.
/// Both numbers are powers of two, kWarpKeys <= keep <= count. Every thread of the block calls
/// this, behind a barrier; it ends with one.
template <class Key> __device__ void keep_smallest(Key* keys, int count, int keep) {
  const int warps = blockDim.x / kWarp, warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  int gap = 1;  // of `gap` runs of `keep` keys only the first one counts any more
  const auto at = [&](int i) { return (i & ~(keep - 1)) * gap + (i & (keep - 1)); };
  const auto in_warps = [&](int smallest, int largest) {  // sizes of runs
    for (int base = warp * kWarpKeys; base < count; base += warps * kWarpKeys) {
      Key* const own = keys + at(base) + lane;
      Key a = own[0], b = own[kWarp];
      for (int size = smallest; size <= largest; size *= 2) merge_in_warp(a, b, base + lane, size);
      own[0] = a;
      own[kWarp] = b;
    }
    __syncthreads();
  };
  const auto merge = [&](int size) {  // runs of half the size, longer than a warp's keys
    for (int distance = size / 2; distance > kWarp; distance /= 2) {
      for (int pair = threadIdx.x; pair < count / 2; pair += blockDim.x) {
        const int i = 2 * pair - (pair & (distance - 1));
        Key* const first = keys + at(i);
        const Key a = first[0], b = first[distance];
        if ((b < a) == ((i & size) == 0)) {
          first[0] = b;
          first[distance] = a;
        }
      }
      __syncthreads();
    }
    in_warps(size, size);
  };
  in_warps(2, kWarpKeys);
  for (int size = 2 * kWarpKeys; size <= keep; size *= 2) merge(size);
  while (count > keep) {
    count /= 2;
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
      // The smaller keys at each place of a rising and a falling run are the smallest of both.
      Key* const first = keys + 2 * gap * (i & ~(keep - 1)) + (i & (keep - 1));
      const Key a = first[0], b = first[gap * keep];
      if (b < a) first[0] = b;
    }
    gap *= 2;
    __syncthreads();
    merge(keep);
  }
}

}  // namespace skytape::cuda
