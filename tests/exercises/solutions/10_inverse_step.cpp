// Solution of exercise 10: the lines of the step in reverse, each with its number.
#include "tests/exercises/judge.hpp"

using namespace skytape::exercises;

struct Factors {
  Matrix x, r, p;
};

Factors factors(const Matrix& m, const Matrix& v) {
  Factors f;
  const Matrix i = identity(m.rows);
  f.x = matmul(m, v);                       // (1)
  f.r = 15 * i - matmul(f.x, 7 * i - f.x);  // (2)
  f.p = 13 * i - matmul(f.x, f.r);          // (3)
  return f;
}

Matrix inverse_step(const Matrix& m, const Matrix& v) {
  return 0.25 * matmul(v, factors(m, v).p);  // (4)
}

Gradients inverse_step_backward(const Matrix& m, const Matrix& v, const Matrix& dnext) {
  const auto [x, r, p] = factors(m, v);
  const Matrix dp = 0.25 * matmul(transpose(v), dnext);                    // (4)
  Matrix dv = 0.25 * matmul(dnext, transpose(p));                          // (4)
  const Matrix dr = -1 * matmul(transpose(x), dp);                         // (3)
  Matrix dx = -1 * matmul(dp, transpose(r));                               // (3)
  dx = dx - 7 * dr + matmul(dr, transpose(x)) + matmul(transpose(x), dr);  // (2)
  dv = dv + matmul(transpose(m), dx);                                      // (1)
  return {matmul(dx, transpose(v)), dv};                                   // (1)
}
