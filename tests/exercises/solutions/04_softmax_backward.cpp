// Solution of exercise 4. dx_i = dy_i y_i - y_i sum_j dy_j y_j = y_i (dy_i - sum_j y_j dy_j).
#include "tests/exercises/judge.hpp"

using namespace skytape::exercises;

Matrix softmax_backward(const Matrix& y, const Matrix& dy) {
  Matrix dx(y.rows, y.columns);
  for (int i = 0; i < y.rows; ++i) {
    double sum = 0;
    for (int j = 0; j < y.columns; ++j) sum += y(i, j) * dy(i, j);
    for (int j = 0; j < y.columns; ++j) dx(i, j) = y(i, j) * (dy(i, j) - sum);
  }
  return dx;
}
