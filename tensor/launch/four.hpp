// Four neighbouring numbers, which a GPU moves by one instruction, at most 16 bytes each (f64:
// two), CUDA only.
#pragma once

#include <bit>
#include <cstdint>

namespace skytape::cuda {

template <class T> struct alignas(sizeof(T) < 4 ? 4 * sizeof(T) : 16) Four {
  T x[4];

  /// Those at an aligned address.
  __device__ static Four at(const T* from) { return *reinterpret_cast<const Four*>(from); }
  __device__ void store(T* to) const { *reinterpret_cast<Four*>(to) = *this; }
  /// The same, to global memory, by as few instructions wherever that is: where `to` is a sum of
  /// offsets, nvcc 13.0 makes four of store()'s, and so writes bf16 in pieces of two bytes.
  __device__ void store_global(T* to) const {
#ifdef __CUDA_ARCH__
    constexpr int kWords = sizeof(Four) / 4;
    static_assert(kWords == 2 || kWords % 4 == 0);
    struct Words {
      std::uint32_t of[kWords];
    };
    const Words w = std::bit_cast<Words>(*this);
    if constexpr (kWords == 2) {
      asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(w.of[0]), "r"(w.of[1])
                   : "memory");
    } else {
#pragma unroll
      for (int i = 0; i < kWords; i += 4) {
        asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(
                         reinterpret_cast<std::uint32_t*>(to) + i),
                     "r"(w.of[i]), "r"(w.of[i + 1]), "r"(w.of[i + 2]), "r"(w.of[i + 3])
                     : "memory");
      }
    }
#else
    store(to);
#endif
  }
  __host__ __device__ static bool aligned(const T* at) {
    return reinterpret_cast<std::uintptr_t>(at) % alignof(Four) == 0;
  }
};

/// Entries [c, c + 4) of a row of `width`; zeros beyond it, and everywhere where it is null.
template <class T> __device__ Four<T> load_four(const T* row, int c, std::int64_t width) {
  Four<T> four{};
  if (row == nullptr) return four;
  if (c + 4 <= width && Four<T>::aligned(row + c)) return Four<T>::at(row + c);
#pragma unroll
  for (int i = 0; i < 4; ++i) four.x[i] = c + i < width ? row[c + i] : T(0);
  return four;
}

/// The same of row `row` of source [count, width], zeros beyond `count`, too. Whether rows are
/// aligned is asked of all of them, so that a loop asks once.
template <class T> __device__ Four<T> load_four(const T* source, std::int64_t row,
                                                std::int64_t count, std::int64_t width, int c) {
  Four<T> four{};
  if (row >= count || c >= width) return four;
  const T* const from = source + row * width + c;
  if (width % 4 == 0 && Four<T>::aligned(source)) return Four<T>::at(from);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (c + i < width) four.x[i] = from[i];
  }
  return four;
}

/// To entries [c, c + 4) of a row of global memory, as far as it has them.
template <class T>
__device__ void store_four(const Four<T>& four, T* row, int c, std::int64_t width) {
  if (c + 4 <= width && Four<T>::aligned(row + c)) return four.store_global(row + c);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (c + i < width) row[c + i] = four.x[i];
  }
}

}  // namespace skytape::cuda
