// Solution of exercise 7: lines (3), (2), (1) in reverse.
#include "tests/exercises/judge.hpp"

using namespace skytape::exercises;

Gradients attention_backward(const Matrix& q, const Matrix& k, const Matrix& v, const Matrix& p,
                             double scale, const Matrix& dout) {
  Gradients g;
  g.dv = matmul(transpose(p), dout);             // (3)
  const Matrix dp = matmul(dout, transpose(v));  // (3)
  Matrix ds(p.rows, p.columns);                  // (2)
  for (int i = 0; i < p.rows; ++i) {
    double sum = 0;
    for (int j = 0; j < p.columns; ++j) sum += p(i, j) * dp(i, j);
    for (int j = 0; j < p.columns; ++j) ds(i, j) = p(i, j) * (dp(i, j) - sum);
  }
  g.dq = scale * matmul(ds, k);             // (1)
  g.dk = scale * matmul(transpose(ds), q);  // (1)
  return g;
}
