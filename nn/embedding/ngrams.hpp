// Vectors of n-grams: a sum that tells a position which tokens stand before its own.
//
// A byte says little; two to six of them are nearly words. Their vectors are in one table, at a row
// that a hash chooses, as in Bojanowski et al. 2017 (fastText) and Pagnoni et al. 2024, sec. 3.2.1
// (byte latent transformer): a table of all 256^6 would be mostly empty, and n-grams that share a
// row are told apart by the others that end at the same place.
//
// Notation: B batch, N positions of this batch, E width, G lengths of n-grams, S rows of the table.
#pragma once

#include <cstdint>

#include "autograd/tape.hpp"
#include "tensor/core/tensor.hpp"

namespace skytape::nn {

/// Row in [0, rows) of every n-gram of 2 to `longest` tokens, by its last position; before the
/// first token stands the padding id 0. ids: i32[B, N] -> i32[longest - 1, B, N]. The row follows
/// from the tokens alone: h = 0; for each token from the last to the first, in 64 bits,
/// h = (h xor (id + 1)) * 0x9E3779B97F4A7C15; h = h xor (h >> 32); the row is h mod rows.
[[nodiscard]] Tensor ngram_slots(const Tensor& ids, int longest, std::int64_t rows);

/// y[b, i] = x[b, i] + sum over g of table[slots[g, b, i]]. x: [B, N, E], table: [S, E], slots:
/// i32[G, B, N] in [0, S). The gradient touches the rows that were read, and no others.
[[nodiscard]] Var add_rows_at(Var x, Var table, const Tensor& slots);

// The two builds of the kernels behind these (ngrams.kernel.cpp).

/// slots[g, b, i] = row of the (g+2)-gram that ends at position i. ids: i32[B, N], slots:
/// i32[G, B, N].
void ngram_slots_on(Cpu, const Tensor& ids, std::int64_t rows, Tensor& slots);
void ngram_slots_on(Cuda, const Tensor& ids, std::int64_t rows, Tensor& slots);

/// y[b, i] = x[b, i] + sum over g of table[slots[g, b, i]]. x, y: [B, N, E], table: [S, E].
void add_rows_at_on(Cpu, const Tensor& x, const Tensor& table, const Tensor& slots, Tensor& y);
void add_rows_at_on(Cuda, const Tensor& x, const Tensor& table, const Tensor& slots, Tensor& y);

}  // namespace skytape::nn
