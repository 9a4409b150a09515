// Solution of exercise 3. Each dy_ik is added to the one entry that it was copied from.
#include "tests/exercises/judge.hpp"

#include <stdexcept>

using namespace skytape::exercises;

Matrix sum_to_shape(const Matrix& dy, int rows, int columns) {
  if ((rows != 1 && rows != dy.rows) || (columns != 1 && columns != dy.columns)) {
    throw std::invalid_argument("sum_to_shape: this shape was never broadcast to " + dy.shape());
  }
  Matrix db(rows, columns);
  for (int i = 0; i < dy.rows; ++i) {
    for (int k = 0; k < dy.columns; ++k) {
      db(rows == 1 ? 0 : i, columns == 1 ? 0 : k) += dy(i, k);
    }
  }
  return db;
}
