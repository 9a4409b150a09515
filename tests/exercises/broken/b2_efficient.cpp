// Broken piece 2: efficient attention of one head (Shen et al. 2021). One line is wrong.
// tool: gradcheck
// minutes: 15
//
//   A = softmax(Q) over each row: [N, D]      every query spreads itself over D features
//   C = softmax(K) over each column: [N, D]   every feature spreads itself over N positions
//   T = C^T V: [D, D]      O = A T: [N, D]
//
// Nothing of [N, N] is formed. The table in the terminal is gradcheck's: for each input its
// worst entry.
#include "tests/exercises/judge.hpp"

#include <cstdio>

using namespace skytape::exercises;

/// dx_i = y_i (dy_i - sum_j y_j dy_j), row by row.
Matrix softmax_backward(const Matrix& y, const Matrix& dy) {
  Matrix dx(y.rows, y.columns);
  for (int i = 0; i < y.rows; ++i) {
    double sum = 0;
    for (int j = 0; j < y.columns; ++j) sum += y(i, j) * dy(i, j);
    for (int j = 0; j < y.columns; ++j) dx(i, j) = y(i, j) * (dy(i, j) - sum);
  }
  return dx;
}

Matrix softmax_of_columns(const Matrix& x) { return transpose(softmax(transpose(x))); }

Matrix forward(const Matrices& in) {
  const Matrix a = softmax(in[0]);
  const Matrix c = softmax_of_columns(in[1]);
  return matmul(a, matmul(transpose(c), in[2]));
}

Matrices backward(const Matrices& in, const Matrix& dout) {
  const Matrix &q = in[0], &k = in[1], &v = in[2];
  const Matrix a = softmax(q);
  const Matrix c = softmax_of_columns(k);
  const Matrix t = matmul(transpose(c), v);
  const Matrix da = matmul(dout, transpose(t));
  const Matrix dt = matmul(transpose(a), dout);
  const Matrix dc = matmul(v, transpose(dt));
  const Matrix dv = matmul(c, dt);
  const Matrix dq = softmax_backward(a, da);
  const Matrix dk = softmax_backward(c, dc);
  return {dq, dk, dv};
}

int main() {
  bool passed = false;
  const std::string table = gradcheck_table(
      forward, backward, {random_matrix(5, 3), random_matrix(5, 3, 2), random_matrix(5, 3, 5)},
      {"q", "k", "v"}, passed);
  std::printf("%s", table.c_str());
  return passed ? 0 : 1;
}

// hint: dv passes, so c and dt are right. What is between dt and dk, and over which axis does each
// hint: softmax run?
