// Broken piece 1: kernelized attention of one head. One line is wrong.
// tool: gradcheck
// minutes: 5
//
//   C_ij = exp(-|q_i - k_j|^2 / 2)     O = C V          Q: [N, D]   K, V: [M, D]
//
// Backward, with E = C dC entry by entry:
//
//   dV = C^T dO    dC = dO V^T    dQ_i = sum_j E_ij (k_j - q_i)    dK_j = sum_i E_ij (q_i - k_j)
//
// The table in the terminal is gradcheck's: for each input its worst entry (index, counted row by
// row), what backward says (analytic), what differences say (numeric). Page 2 of the tour reads one.
#include "tests/exercises/judge.hpp"

#include <cstdio>

using namespace skytape::exercises;

Matrix kernel(const Matrix& q, const Matrix& k) {
  Matrix c(q.rows, k.rows);
  for (int i = 0; i < q.rows; ++i) {
    for (int j = 0; j < k.rows; ++j) {
      double distance = 0;
      for (int e = 0; e < q.columns; ++e) distance += (q(i, e) - k(j, e)) * (q(i, e) - k(j, e));
      c(i, j) = std::exp(-distance / 2);
    }
  }
  return c;
}

Matrices backward(const Matrices& in, const Matrix& dout) {
  const Matrix &q = in[0], &k = in[1], &v = in[2];
  const Matrix c = kernel(q, k);
  const Matrix dc = matmul(dout, transpose(v));
  Matrix dq(q.rows, q.columns), dk(k.rows, k.columns);
  for (int i = 0; i < q.rows; ++i) {
    for (int j = 0; j < k.rows; ++j) {
      const double e = c(i, j) * dc(i, j);
      for (int d = 0; d < q.columns; ++d) {
        dq(i, d) += e * (k(j, d) - q(i, d));
        dk(j, d) -= e * (q(i, d) - k(j, d));
      }
    }
  }
  return {dq, dk, matmul(transpose(c), dout)};
}

int main() {
  bool passed = false;
  const std::string table = gradcheck_table(
      [](const Matrices& in) { return matmul(kernel(in[0], in[1]), in[2]); }, backward,
      {random_matrix(4, 3), random_matrix(5, 3, 2), random_matrix(5, 3, 5)}, {"q", "k", "v"},
      passed);
  std::printf("%s", table.c_str());
  return passed ? 0 : 1;
}

// hint: One input's gradient is wrong, and its two numbers have a simple relation.
