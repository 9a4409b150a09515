// Launch header: the same kernel file becomes CPU code under g++ and CUDA code under nvcc.
//
// A kernel is a functor over plain pointers. `map(n, f)` calls f(i) for every i; `rows(count,
// width, f)` calls f(row, team) for every row, where the team offers each, sum and max over the
// row's `width` entries. Kernel files never mention threads, blocks or streams.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "tensor/core/bf16.hpp"
#include "tensor/core/tensor.hpp"
#include "tensor/launch/math.hpp"
#ifdef __CUDACC__
#include "tensor/launch/cuda.hpp"
#endif

namespace skytape {

/// Calls f.operator()<float>() or <double>(): the one place where a dtype becomes a C++ type.
template <class F> void dispatch_float(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32:
      return f.template operator()<float>();
    case DType::f64:
      return f.template operator()<double>();
    case DType::i32:
    case DType::bf16:
      break;
  }
  throw Error(join("expected a floating-point tensor (f32 or f64), got ", name(dtype)));
}
/// Calls f.operator()<Y>() with the type of the numbers that a kernel of T writes: T, or Bf16, to
/// which a kernel of float rounds the operands of products.
template <class T, class F> void dispatch_written(DType written, F&& f) {
  if constexpr (std::is_same_v<T, float>) {
    if (written == DType::bf16) return f.template operator()<Bf16>();
  }
  f.template operator()<T>();
}

#ifndef __CUDACC__
namespace cpu {

/// One thread owns the row; loops vectorise.
struct Team {
  template <class F> void each(std::int64_t n, const F& f) const {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) f(i);
  }
  // Inlined always: a call would get what `f` captured through a pointer, and vectors become
  // gathers.
  /// Sum of f(i) in blocks, the blocks in double: long f32 sums keep their digits.
  template <class F> [[gnu::always_inline]] auto sum(std::int64_t n, const F& f) const {
    using T = decltype(f(std::int64_t{}));
    constexpr std::int64_t kBlock = 512;
    const F local = f;  // through the reference, pointers would be reloaded and loads be gathers
    double total = 0;
    for (std::int64_t begin = 0; begin < n; begin += kBlock) {
      const std::int64_t end = begin + kBlock < n ? begin + kBlock : n;
      T block = 0;
#pragma omp simd reduction(+ : block)
      for (std::int64_t i = begin; i < end; ++i) block += local(i);
      total += block;
    }
    return static_cast<T>(total);
  }
  /// Maximum of f(i); -inf for n = 0.
  template <class F> [[gnu::always_inline]] auto max(std::int64_t n, const F& f) const {
    using T = decltype(f(std::int64_t{}));
    const F local = f;  // as in sum
    T best = -std::numeric_limits<T>::infinity();
#pragma omp simd reduction(max : best)
    for (std::int64_t i = 0; i < n; ++i) {
      const T value = local(i);
      best = value > best ? value : best;
    }
    return best;
  }
  /// True in exactly one thread of the team: guards a store of one result per row.
  [[nodiscard]] bool leader() const { return true; }
};

inline constexpr std::int64_t kParallelWork = 1 << 14;  // with fewer elements one thread is faster

template <class F> void map(std::int64_t n, const F& f) {
  // Blocks of whole vectors: libm's scalar and vector functions differ in the last bit, so where the
  // scalar rest lies must not depend on the number of threads.
  constexpr std::int64_t kBlock = 4096;
#pragma omp parallel for schedule(static) if (n > kParallelWork)
  for (std::int64_t begin = 0; begin < n; begin += kBlock) {
    const std::int64_t end = begin + kBlock < n ? begin + kBlock : n;
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) f(i);
  }
}
template <class F> void rows(std::int64_t count, std::int64_t width, const F& f) {
#pragma omp parallel for schedule(static) if (count * width > kParallelWork)
  for (std::int64_t row = 0; row < count; ++row) f(row, Team{});
}

}  // namespace cpu
// One definition f_on(Backend, …) becomes f_on(Cpu, …) by g++ and f_on(Cuda, …) by nvcc.
using Backend = Cpu;
using cpu::map;
using cpu::rows;
#else
using Backend = Cuda;
using cuda::map;
using cuda::rows;
#endif

}  // namespace skytape
