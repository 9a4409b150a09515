// Sinkhorn normalisation: scores become a matrix whose rows and columns sum to one, by turns.
//
// In logarithms, with potentials a of rows and c of columns, R_ij = exp(S_ij - a_i - c_j). A step
// makes the rows sum to one, then the columns:
//   a_i = log sum_j exp(S_ij - c_j)      c_j = log sum_i exp(S_ij - a_i)      c = 0 at the start
// Only the potentials are kept for backward, which makes the matrices of the steps again.
//
// Notation: B batch, H heads, Q rows and columns, K steps.
#pragma once

#include <cstdint>

#include "tensor/core/tensor.hpp"

namespace skytape::attention {

/// (S + noise) / temperature among the rows and columns that are there. The others are alone: their
/// diagonal is 0, the rest of their row and column -inf. s: [B, H, Q, Q], noise: the same or
/// undefined, present: [B, Q] of 1 and 0.
[[nodiscard]] Tensor sinkhorn_scores(const Tensor& s, const Tensor& noise, const Tensor& present,
                                     double temperature);

struct SinkhornForward {
  Tensor matrix;         // R: [B, H, Q, Q]
  Tensor rows, columns;  // a and c after each step: [K, B, H, Q]
};
/// R after `steps` >= 1 steps. Columns sum to one, rows nearly.
[[nodiscard]] SinkhornForward sinkhorn(const Tensor& scores, std::int64_t steps);

/// dS from dR, through every step.
[[nodiscard]] Tensor sinkhorn_backward(const Tensor& scores, const SinkhornForward& saved,
                                       const Tensor& dmatrix);

void sinkhorn_scores_on(Cpu, const Tensor& s, const Tensor& noise, const Tensor& present,
                        double temperature, Tensor& scores);
void sinkhorn_scores_on(Cuda, const Tensor& s, const Tensor& noise, const Tensor& present,
                        double temperature, Tensor& scores);

/// A backend pair: on the CPU a pass over all matrices after the other, on the GPU a block takes a
/// matrix through all of them. result: memory for R, a and c.
void sinkhorn_on(Cpu, const Tensor& scores, SinkhornForward& result);
void sinkhorn_on(Cuda, const Tensor& scores, SinkhornForward& result);
void sinkhorn_backward_on(Cpu, const Tensor& scores, const SinkhornForward& saved,
                          const Tensor& dmatrix, Tensor& ds);
void sinkhorn_backward_on(Cuda, const Tensor& scores, const SinkhornForward& saved,
                          const Tensor& dmatrix, Tensor& ds);

}  // namespace skytape::attention
