// The plans that the CPU and CUDA halves of sampling.cpp are given.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "tensor/core/device.hpp"
#include "tensor/core/tensor.hpp"
#include "tensor/launch/math.hpp"

namespace skytape::attention {

/// The source of the rows' random numbers (RowNumbers on the device).
struct NumberPlan {
  std::uint64_t key = 0;
  const std::int32_t* step = nullptr;  // on the tensors' device; null: step 0
  std::int64_t first_row = 0, row_length = 0, alike = 0;
};

/// A number whose ascending order is the descending order of x, by which top_k sorts on every
/// device: NaN counts as inf, -0 as 0.
template <class T> HD auto descending_key(T x) {
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  constexpr Bits kSign = Bits{1} << (8 * sizeof(T) - 1);
  const T value = x == x ? x + T(0) : std::numeric_limits<T>::infinity();
  const Bits bits = std::bit_cast<Bits>(value);
  return (bits & kSign) != 0 ? bits : static_cast<Bits>(~(bits | kSign));
}

/// values: [rows, n] -> index: i32[rows, k].
void top_k_on(Cpu, const Tensor& values, Tensor& index);
void top_k_on(Cuda, const Tensor& values, Tensor& index);

/// keys = log(weight) - log(E), E ~ Exp(1); -inf where the weight is zero. Both [rows, n].
void race_keys_on(Cpu, const NumberPlan& plan, const Tensor& weights, Tensor& keys);
void race_keys_on(Cuda, const NumberPlan& plan, const Tensor& weights, Tensor& keys);

/// weights, cumulative (scratch): [rows, n] -> index: i32[rows, k].
void invert_cumulative_on(Cpu, const NumberPlan& plan, const Tensor& weights, Tensor& cumulative,
                          Tensor& index);
void invert_cumulative_on(Cuda, const NumberPlan& plan, const Tensor& weights, Tensor& cumulative,
                          Tensor& index);

}  // namespace skytape::attention
