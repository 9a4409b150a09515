// Solution of exercise 9. The scatter is the adjoint of the mean: the same shares, the other way.
#include "tests/exercises/judge.hpp"

using namespace skytape::exercises;

Matrix segment_means(const Matrix& x, int count) {
  Matrix means(count, x.columns);
  for (int j = 0; j < count; ++j) {
    const int begin = j * x.rows / count, end = (j + 1) * x.rows / count;
    for (int i = begin; i < end; ++i) {
      for (int c = 0; c < x.columns; ++c) means(j, c) += x(i, c) / (end - begin);
    }
  }
  return means;
}

void scatter(const Matrix& dmeans, Matrix& dx) {
  for (int j = 0; j < dmeans.rows; ++j) {
    const int begin = j * dx.rows / dmeans.rows, end = (j + 1) * dx.rows / dmeans.rows;
    for (int i = begin; i < end; ++i) {
      for (int c = 0; c < dx.columns; ++c) dx(i, c) += dmeans(j, c) / (end - begin);
    }
  }
}

void block_backward(const Matrix& q, const Matrix& k, const Matrix& da, Matrix& dq, Matrix& dk) {
  const Matrix ql = segment_means(q, da.rows), kl = segment_means(k, da.rows);  // (1)
  const Matrix a = softmax(matmul(ql, transpose(kl)));                          // (2)
  Matrix e(a.rows, a.columns);
  for (int i = 0; i < a.rows; ++i) {
    double sum = 0;
    for (int j = 0; j < a.columns; ++j) sum += a(i, j) * da(i, j);
    for (int j = 0; j < a.columns; ++j) e(i, j) = a(i, j) * (da(i, j) - sum);
  }
  scatter(matmul(e, kl), dq);             // (2), (1)
  scatter(matmul(transpose(e), ql), dk);  // (2), (1)
}
