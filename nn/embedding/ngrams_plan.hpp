// The two builds of the n-gram kernels (ngrams.kernel.cpp).
#pragma once

#include "tensor/core/tensor.hpp"

namespace skytape::nn {

/// slots[g, b, i] = row of the (g+2)-gram that ends at position i. ids: i32[B, N], slots: i32[G, B, N].
void ngram_slots_on(Cpu, const Tensor& ids, std::int64_t rows, Tensor& slots);
void ngram_slots_on(Cuda, const Tensor& ids, std::int64_t rows, Tensor& slots);

/// y[b, i] = x[b, i] + sum over g of table[slots[g, b, i]]. x, y: [B, N, E], table: [S, E].
void add_rows_at_on(Cpu, const Tensor& x, const Tensor& table, const Tensor& slots, Tensor& y);
void add_rows_at_on(Cuda, const Tensor& x, const Tensor& table, const Tensor& slots, Tensor& y);

}  // namespace skytape::nn
