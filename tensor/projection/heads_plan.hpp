// Sizes of projections by head, as the CPU and CUDA halves take them.
#pragma once

#include <cstdint>

#include "tensor/launch/launch.hpp"
#include "tensor/projection/heads.hpp"

namespace skytape::tensor {

/// An array of each projection; null where there is none. Read by at(): a kernel's argument that is
/// indexed by a variable may be copied to each thread's own memory.
template <class T> struct OfEach {
  T *first = nullptr, *second = nullptr, *third = nullptr;
  HD T* at(std::int64_t p) const { return p == 0 ? first : p == 1 ? second : third; }
};
static_assert(kMostProjections == 3);

/// Addresses of P tensors, null for undefined ones. T is const where they are read.
template <class T> OfEach<T> of_each(std::span<const Tensor> tensors) {
  OfEach<T> all;
  T** const places[] = {&all.first, &all.second, &all.third};
  for (std::size_t p = 0; p < tensors.size(); ++p) {
    if (tensors[p].defined()) *places[p] = tensors[p].data<std::remove_const_t<T>>();
  }
  return all;
}

/// The arrays that project_heads reads and writes on CUDA.
template <class T> struct ProjectionArrays {
  const T* x;              // [B N, E]
  OfEach<const T> weight;  // [H D, E]
  OfEach<const T> bias;    // [H D] or null
  T* y;                    // [P, B, H, N, D]
};
template <class T>
ProjectionArrays<T> projection_arrays(const Tensor& x, std::span<const Tensor> weights,
                                      std::span<const Tensor> biases, Tensor& y) {
  return {x.data<T>(), of_each<const T>(weights), of_each<const T>(biases), y.data<T>()};
}

struct HeadsPlan {
  std::int64_t batch = 0, n = 0, width = 0;  // B, N, E
  std::int64_t parts = 0, heads = 0, d = 0;  // P, H, D

  HD std::int64_t rows() const { return batch * n; }         // of x
  HD std::int64_t out() const { return heads * d; }          // columns of a projection
  HD std::int64_t columns() const { return parts * out(); }  // of all, side by side
  HD std::int64_t part_size() const { return rows() * out(); }

  // Entry (row, column) of the matrix [B N, P H D] stands by head at place_of_row(row) +
  // place_of_column(column) of [P, B, H, N, D]. Rows and columns fit 32 bits: division is slow.
  HD std::int64_t place_of_row(std::int64_t row) const {
    const std::uint32_t b = static_cast<std::uint32_t>(row) / static_cast<std::uint32_t>(n);
    return b * n * out() + (row - b * n) * d;
  }
  HD std::int64_t part_of(std::int64_t column) const {
    return static_cast<std::uint32_t>(column) / static_cast<std::uint32_t>(out());
  }
  /// The same within a projection: column of its own H D.
  HD std::int64_t place_in_part(std::int64_t column) const {
    const std::uint32_t h = static_cast<std::uint32_t>(column) / static_cast<std::uint32_t>(d);
    return h * n * d + (column - h * d);
  }
};

void project_heads_on(Cpu, const HeadsPlan& plan, const Tensor& x, std::span<const Tensor> weights,
                      std::span<const Tensor> biases, Tensor& y);
void project_heads_on(Cuda, const HeadsPlan& plan, const Tensor& x, std::span<const Tensor> weights,
                      std::span<const Tensor> biases, Tensor& y);
void add_biases_on(Cpu, const HeadsPlan& plan, const Tensor& sums, std::span<const Tensor> biases,
                   Tensor& y);
void add_biases_on(Cuda, const HeadsPlan& plan, const Tensor& sums, std::span<const Tensor> biases,
                   Tensor& y);
void add_biases_backward_on(Cpu, const HeadsPlan& plan, const Tensor& sums,
                            std::span<const Tensor> biases, std::span<const Tensor> dy,
                            AddedBiasGradients& d);
void add_biases_backward_on(Cuda, const HeadsPlan& plan, const Tensor& sums,
                            std::span<const Tensor> biases, std::span<const Tensor> dy,
                            AddedBiasGradients& d);
/// CUDA only: y [P, B, H, N, D] of rows [B N, P H D] and biases, P of [H D] or undefined.
void split_heads_on(Cuda, const HeadsPlan& plan, const Tensor& rows, std::span<const Tensor> biases,
                    Tensor& y);
/// CUDA only: rows [B N, H D] of bf16 from a [B, H, N, D] of f32.
void merge_rows_on(Cuda, const HeadsPlan& plan, const Tensor& a, Tensor& rows);
void gather_heads_on(Cpu, const HeadsPlan& plan, std::span<const Tensor> parts, GatheredHeads& g);
void gather_heads_on(Cuda, const HeadsPlan& plan, std::span<const Tensor> parts, GatheredHeads& g);
void stack_weights_on(Cpu, std::span<const Tensor> weights, Tensor& stacked);
void stack_weights_on(Cuda, std::span<const Tensor> weights, Tensor& stacked);

}  // namespace skytape::tensor
