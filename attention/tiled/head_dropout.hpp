// Dropout of one head's weights as the kernels of tiled attention decide it, CUDA only.
//
// Decisions are bits, 1 keeps. Those about a query and a chunk of 128 keys fill four words: bit c
// of byte 2 n + e of word t is about key 16 c + 8 n + 2 t + e of the chunk. One counter decides
// about a byte, and a word holds what a lane of a tensor core's product has of a query: columns 2t
// and 2t + 1 of eights of keys.
//
// Drawing a bit takes about ten instructions, so that forward keeps them and backward reads them,
// where that is no more memory than q, k, v and out (kept_decisions in tiled.cpp); elsewhere
// backward draws them again. The bits are the same.
#pragma once

#include <cstdint>

#include "attention/tiled/tiled_cuda.hpp"
#include "tensor/launch/launch.hpp"
#include "tensor/random/philox.hpp"

namespace skytape::attention::tiled_cuda {

/// Keys of a chunk of 128 that one counter decides about: 16 apart (philox.hpp, "16 bits per
/// element").
inline constexpr int kKeysOfCounter = philox::kChunk / philox::kLanes;
inline constexpr int kWordsOfChunk = philox::kChunk / 32;
static_assert(kKeysOfCounter == 8);

template <class T> class HeadDropout {
 public:
  /// in.keep: decisions as given, null: drawn. in.kept: decisions in memory, null: they are not
  /// kept. bh: the head's number, b H + h.
  template <class In> __device__ HeadDropout(const TiledPlan& plan, const In& in, std::int64_t bh)
      : plan_(plan),
        given_(in.keep == nullptr ? nullptr : in.keep + bh * plan.queries * plan.keys),
        kept_(in.kept == nullptr ? nullptr : in.kept + bh * words_of_head(plan)),
        first_counter_(static_cast<std::uint64_t>((plan.first_head + bh) * plan.row_count) *
                       counters()),
        step_(philox::step_of(plan.step)) {}

  [[nodiscard]] __device__ bool drops() const { return given_ != nullptr || plan_.threshold != 0; }
  [[nodiscard]] __device__ bool stores_decisions() const { return kept_ != nullptr; }
  /// Returns the factor of kept weights.
  [[nodiscard]] __device__ T scale() const { return static_cast<T>(plan_.keep_scale); }

  /// Forward: decides about query i and the keys j, j + 16, … j + 112, a bit each, from bit 0 on.
  /// j: first of a chunk plus 0 to 15.
  [[nodiscard]] __device__ unsigned decide(int i, int j) const {
    const unsigned bits = byte(i, j);
    if (stores_decisions()) *byte_in_memory(i, j) = static_cast<std::uint8_t>(bits);
    return bits;
  }
  /// Backward: what forward decided.
  [[nodiscard]] __device__ unsigned decided(int i, int j) const {
    return stores_decisions() ? *byte_in_memory(i, j) : byte(i, j);
  }

  /// The same of word t of query i and the chunk of keys at j0.
  [[nodiscard]] __device__ unsigned decide_word(int i, int j0, int t) const {
    const unsigned bits = word(i, j0, t);
    if (stores_decisions()) words(i, j0)[t] = bits;
    return bits;
  }
  [[nodiscard]] __device__ unsigned decided_word(int i, int j0, int t) const {
    return stores_decisions() ? words(i, j0)[t] : word(i, j0, t);
  }

  /// In memory: the words of queries from i on, about the chunk of keys at j0.
  [[nodiscard]] __device__ std::uint32_t* words(int i, int j0) const {
    const auto chunk = static_cast<std::int64_t>(j0 / philox::kChunk);
    return kept_ + (chunk * whole_chunks(plan_.queries) + i) * kWordsOfChunk;
  }

 private:
  [[nodiscard]] __device__ std::uint8_t* byte_in_memory(int i, int j) const {
    const int lane = j % philox::kLanes;
    return reinterpret_cast<std::uint8_t*>(words(i, j)) + lane % 8 / 2 * 4 + lane / 8 * 2 +
           lane % 2;
  }
  [[nodiscard]] __device__ static std::int64_t words_of_head(const TiledPlan& plan) {
    return whole_chunks(plan.keys) / philox::kChunk * whole_chunks(plan.queries) * kWordsOfChunk;
  }
  /// Drawn or as given.
  [[nodiscard]] __device__ unsigned byte(int i, int j) const {
    if (!drops()) return 0xffu;
    return given_ == nullptr ? drawn(counter(i, j)) : as_given(i, j);
  }
  [[nodiscard]] __device__ unsigned word(int i, int j0, int t) const {
    if (!drops()) return ~0u;
    const auto lane = [](int b) { return b / 2 * 8 + b % 2; };  // of a byte, the word's 2 t less
    unsigned bits = 0;
    if (given_ == nullptr) {
      const std::uint64_t first = counter(i, j0 + 2 * t);
#pragma unroll 2  // counters side by side share their round keys
      for (int b = 0; b < 4; ++b) bits |= drawn(first | lane(b)) << (8 * b);
    } else {
#pragma unroll 1
      for (int b = 0; b < 4; ++b) bits |= as_given(i, j0 + 2 * t + lane(b)) << (8 * b);
    }
    return bits;
  }
  /// Returns the counters of a row: rows are whole chunks apart.
  [[nodiscard]] __device__ std::uint32_t counters() const {
    return static_cast<std::uint32_t>(plan_.row_stride) / kKeysOfCounter;
  }
  /// Returns the counter of query i and key j, first of a chunk plus 0 to 15: these are the
  /// counter's last four bits.
  [[nodiscard]] __device__ std::uint64_t counter(int i, int j) const {
    const auto row = static_cast<std::uint32_t>(i), column = static_cast<std::uint32_t>(j);
    return first_counter_ + std::uint64_t{row} * counters() +
           column / philox::kChunk * philox::kLanes + column % philox::kLanes;
  }
  [[nodiscard]] __device__ unsigned drawn(std::uint64_t counter) const {
    const philox::Words words = philox::draw(plan_.key, counter, step_);
    const std::uint32_t threshold = plan_.threshold << 16;  // below 2^16 before
    unsigned bits = 0;
#pragma unroll
    for (int r = 0; r < kKeysOfCounter; ++r) {
      const std::uint32_t word = words.w[r / 2];
      bits |= ((r % 2 == 0 ? word << 16 : word) >= threshold ? 1u : 0u) << r;
    }
    return bits;
  }
  [[nodiscard]] __device__ unsigned as_given(int i, std::int64_t j) const {
    unsigned bits = 0;
#pragma unroll 1
    for (int r = 0; r < kKeysOfCounter; ++r, j += philox::kLanes) {
      const bool keeps = i < plan_.queries && j < plan_.keys && given_[i * plan_.keys + j] != 0;
      bits |= (keeps ? 1u : 0u) << r;
    }
    return bits;
  }

  const TiledPlan& plan_;
  const T* given_;       // [N, M]
  std::uint32_t* kept_;  // [M' / 128, N', 4]
  std::uint64_t first_counter_;
  std::uint64_t step_;
};

}  // namespace skytape::attention::tiled_cuda
