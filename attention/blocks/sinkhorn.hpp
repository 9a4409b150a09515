// Sinkhorn normalisation: scores become a matrix whose rows and columns sum to one, by turns.
//
// In logarithms, with potentials a of rows and c of columns, R_ij = exp(S_ij - a_i - c_j). A step
// makes the rows sum to one, then the columns:
//   a_i = log sum_j exp(S_ij - c_j)      c_j = log sum_i exp(S_ij - a_i)      c = 0 at the start
// Only the potentials are kept for backward, which makes the matrices of the steps again.
//
// Letters: B batch, H heads, Q rows and columns, K steps.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/core/tensor.hpp"

namespace skytape::attention {

/// (S + noise) / temperature among the rows and columns that are there. The others are alone: their
/// diagonal is 0, the rest of their row and column -inf. s: [B, H, Q, Q], noise: the same or
/// undefined, present: [B, Q] of 1 and 0.
[[nodiscard]] Tensor sinkhorn_scores(const Tensor& s, const Tensor& noise, const Tensor& present,
                                     double temperature);

struct SinkhornForward {
  Tensor matrix;                      // R: [B, H, Q, Q]
  std::vector<Tensor> rows, columns;  // a and c after each step: K times [B, H, Q]
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
/// sums_i = log sum_j exp(x_ij - shift_j). x: [B, H, Q, Q], shift, sums: [B, H, Q].
void log_sums_on(Cpu, const Tensor& x, const Tensor& shift, Tensor& sums);
void log_sums_on(Cuda, const Tensor& x, const Tensor& shift, Tensor& sums);
/// exp(x_ij - row_i - column_j).
void sinkhorn_matrix_on(Cpu, const Tensor& x, const Tensor& row, const Tensor& column, Tensor& y);
void sinkhorn_matrix_on(Cuda, const Tensor& x, const Tensor& row, const Tensor& column, Tensor& y);
/// With w_ij = exp(x_ij - row_i - column_j): dx_ij += w_ij g_j, drow_i -= sum_j w_ij g_j.
void log_sums_backward_on(Cpu, const Tensor& x, const Tensor& row, const Tensor& column,
                          const Tensor& g, Tensor& dx, Tensor& drow);
void log_sums_backward_on(Cuda, const Tensor& x, const Tensor& row, const Tensor& column,
                          const Tensor& g, Tensor& dx, Tensor& drow);

}  // namespace skytape::attention
