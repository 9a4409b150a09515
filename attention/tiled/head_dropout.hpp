// Dropout of one head's weights as the kernels of tiled attention decide it, CUDA only.
#pragma once

#include <cstdint>

#include "attention/tiled/tiled_plan.hpp"
#include "tensor/launch/launch.hpp"
#include "tensor/random/philox.hpp"

namespace skytape::attention::tiled_cuda {

/// Keys of a chunk of 128 that one counter decides about: 16 apart (philox.hpp, "16 bits per
/// element").
inline constexpr int kKeysOfCounter = philox::kChunk / philox::kLanes;
static_assert(kKeysOfCounter == 8);

template <class T> class HeadDropout {
 public:
  /// keep [B, H, N, M]: decisions as given, null: drawn. bh: the head's number, b H + h.
  __device__ HeadDropout(const TiledPlan& plan, const T* keep, std::int64_t bh)
      : plan_(plan),
        given_(keep == nullptr ? nullptr : keep + bh * plan.queries * plan.keys),
        first_counter_(static_cast<std::uint64_t>((plan.first_head + bh) * plan.row_count) *
                       counters()),
        step_(philox::step_of(plan.step)) {}

  [[nodiscard]] __device__ bool drops() const { return given_ != nullptr || plan_.threshold != 0; }
  /// Of kept weights.
  [[nodiscard]] __device__ T scale() const { return static_cast<T>(plan_.keep_scale); }

  /// Decisions about query i and the keys j, j + 16, … j + 112: a bit each, from bit 0 on, 1 keeps.
  /// j: first of a chunk plus 0 to 15.
  [[nodiscard]] __device__ unsigned kept(int i, int j) const {
    if (!drops()) return 0xffu;
    return given_ == nullptr ? drawn(i, j) : as_given(i, j);
  }

 private:
  /// Of a row: rows are whole chunks apart.
  [[nodiscard]] __device__ std::uint32_t counters() const {
    return static_cast<std::uint32_t>(plan_.row_stride) / kKeysOfCounter;
  }
  [[nodiscard]] __device__ unsigned drawn(int i, int j) const {
    const auto row = static_cast<std::uint32_t>(i), column = static_cast<std::uint32_t>(j);
    const std::uint64_t counter = first_counter_ + std::uint64_t{row} * counters() +
                                  column / philox::kChunk * philox::kLanes +
                                  column % philox::kLanes;
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
    for (int r = 0; r < kKeysOfCounter; ++r, j += philox::kLanes) {
      const bool keeps = i < plan_.queries && j < plan_.keys && given_[i * plan_.keys + j] != 0;
      bits |= (keeps ? 1u : 0u) << r;
    }
    return bits;
  }

  const TiledPlan& plan_;
  const T* given_;  // [N, M]
  std::uint64_t first_counter_;
  std::uint64_t step_;
};

}  // namespace skytape::attention::tiled_cuda
