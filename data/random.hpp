// Random numbers of generators and shuffles: small keyed streams, one per example.
//
// The n-th example draws from Stream(seed, purpose, n) and from nothing else, so results do not
// depend on how many threads share the work.
#pragma once

#include <cstdint>

#include "data/files/digest.hpp"

namespace skytape::data {

/// Keeps the streams of different uses of one seed apart. Other numbers would be other data.
enum class Purpose : uint64_t { listops = 1, pathfinder = 2, shuffle = 4, variations = 6 };

/// SplitMix64 started at a point that depends on seed, purpose and index.
class Stream {
 public:
  Stream(uint64_t seed, Purpose purpose, uint64_t index)
      : state_(mix64(mix64(mix64(seed + kStep) ^ static_cast<uint64_t>(purpose)) + index * kStep)) {
  }

  [[nodiscard]] uint64_t next() { return mix64(state_ += kStep); }

  /// Uniform in [0, 1), 53 bits.
  [[nodiscard]] double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

  /// Uniform in 0..n-1; the bias of the multiplication is below n / 2^32.
  [[nodiscard]] uint32_t below(uint32_t n) {
    return static_cast<uint32_t>(((next() >> 32) * n) >> 32);
  }

 private:
  static constexpr uint64_t kStep = 0x9e3779b97f4a7c15u;
  uint64_t state_;
};

/// A seeded permutation of 0..size-1, computed one element at a time: a Feistel network over the
/// next power of four, walked until it lands inside. Needs no memory.
class Permutation {
 public:
  Permutation(uint64_t size, uint64_t seed, uint64_t index);
  [[nodiscard]] uint64_t operator()(uint64_t position) const;

 private:
  static constexpr int kRounds = 8;
  uint64_t size_;
  int half_bits_;
  uint64_t keys_[kRounds];
};

}  // namespace skytape::data
