// The collective operations of a simulated warp's lanes: shuffles, votes, barriers.
#pragma once

#include <cstdint>
#include <type_traits>

namespace skytape::cuda_simulator {

inline constexpr int kWarp = 32;

/// Works on one pointer per lane; lanes that do not take part are null.
using WarpOp = void (*)(void* const (&slots)[kWarp]);

/// Waits until every lane of `mask` that has not ended calls this with the same mask and op; then
/// the op runs once. The slots lie on the lanes' stacks. An error where lanes disagree.
void warp_together(unsigned mask, WarpOp op, void* slot);

[[nodiscard]] int lane();

struct Shuffle {
  const void* value;
  void* result;
  int bytes, source;  // source: lane read from
};
void shuffle_lanes(void* const (&slots)[kWarp]);

struct Vote {
  bool yes;
  unsigned ballot;
};
void vote_lanes(void* const (&slots)[kWarp]);
void meet_lanes(void* const (&slots)[kWarp]);

/// wgmma: where the running thread's sums are until it waits for them; d becomes NaN until then.
[[nodiscard]] float* begun_sums(float (&d)[32]);
/// The eight numbers from `column` on of a row of a descriptor's operand in shared memory.
void read_eight_of_b(std::uint64_t descriptor, int row, int column, std::uint16_t (&eight)[8]);

template <class T> T shuffle(unsigned mask, T value, int source) {
  static_assert(std::is_arithmetic_v<T> && (sizeof(T) == 4 || sizeof(T) == 8));
  T result{};
  Shuffle slot{&value, &result, sizeof(T), source};
  warp_together(mask, shuffle_lanes, &slot);
  return result;
}

}  // namespace skytape::cuda_simulator

inline void __syncwarp(unsigned mask = 0xffffffffu) {
  using namespace skytape::cuda_simulator;
  char nothing = 0;
  warp_together(mask, meet_lanes, &nothing);
}
template <class T> T __shfl_sync(unsigned mask, T value, int source) {
  return skytape::cuda_simulator::shuffle(mask, value, source % skytape::cuda_simulator::kWarp);
}
template <class T> T __shfl_xor_sync(unsigned mask, T value, int lanes) {
  return skytape::cuda_simulator::shuffle(mask, value, skytape::cuda_simulator::lane() ^ lanes);
}
inline unsigned __ballot_sync(unsigned mask, int yes) {
  using namespace skytape::cuda_simulator;
  Vote slot{yes != 0, 0};
  warp_together(mask, vote_lanes, &slot);
  return slot.ballot;
}
