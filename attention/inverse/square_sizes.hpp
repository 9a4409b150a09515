// The sizes that blocks' square matrices are compiled for.
#pragma once

#include <cstdint>

namespace skytape::attention::square {

/// Largest matrices that a block takes; larger ones leave it no room for two of them.
inline constexpr int kLargest = 128;

/// Calls f.operator()<kSize>() for the smallest compiled size that holds the matrices.
template <class F> void dispatch_size(std::int64_t size, const F& f) {
  if (size <= 32) {
    f.template operator()<32>();
  } else if (size <= 64) {
    f.template operator()<64>();
  } else {
    f.template operator()<kLargest>();
  }
}

/// That size.
inline std::int64_t rows_of(std::int64_t size) {
  std::int64_t rows = 0;
  dispatch_size(size, [&]<int kSize>() { rows = kSize; });
  return rows;
}

}  // namespace skytape::attention::square
