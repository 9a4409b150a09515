// 3. Broadcasting undone
// teaches: the gradient of a value that was copied is the sum over its copies
// minutes: 15
//
// [N, E] is the shape of a matrix with N rows and E columns. y = x + b, with x of [N, E] and b of
// [1, E]: b is added to each row of x, as if it had been copied N times. This is called
// broadcasting. Forward is easy; backward has a question. With B the copied b, of [N, E], dB = dy.
// But db must have b's shape, [1, E]:
//
//   b_e stands in every row, so it moves every y_ne:  db_e = sum over n of dB_ne
//
// (It is exercise 2 once more: what was used N times receives N gradients, added up.) In the same
// way [N, 1] is copied along each row, and [1, 1] everywhere; an axis that was not copied is not
// summed.
//
//   from [1, E]        to [N, E]                     from [N, 1]     to [N, E]
//
//   ( b0 b1 b2 )   ->  ( b0 b1 b2 )                  ( b0 )      ->  ( b0 b0 b0 )
//                      ( b0 b1 b2 )                  ( b1 )          ( b1 b1 b1 )
//
// Write the way back, once for all operations: `dy` is y's gradient, [N, E]; return b's, [rows,
// columns]. A Matrix m has m.rows, m.columns and the entries m(i, j), from m(0, 0) on;
// Matrix m(2, 3) makes one of two rows and three columns, filled with zero.
//
// The real one: sum_to_shape in tensor/kernels/reduce.cpp, called for + - * / in
// autograd/ops_elementwise.cpp.
#include "tests/exercises/judge.hpp"

#include <stdexcept>

using namespace skytape::exercises;

// ---- your part ----------------------------------------------------------------------------------

/// The gradient of what had `rows` x `columns` and was broadcast to the shape of dy. A shape that
/// cannot be broadcast to dy's (neither dy's size nor 1) is an error: throw
/// std::invalid_argument("…").
Matrix sum_to_shape(const Matrix& dy, int rows, int columns) { write_here(); }

// ---- the judge ----------------------------------------------------------------------------------

/// dy, zero in one row or one column (-1: in none).
Matrix without(Matrix dy, int row, int column) {
  for (int i = 0; i < dy.rows; ++i) {
    for (int k = 0; k < dy.columns; ++k) {
      if (i == row || k == column) dy(i, k) = 0;
    }
  }
  return dy;
}

/// The answer for a shape that is legal, so an error about shapes is told as one too many.
Matrix legal(const Matrix& dy, int rows, int columns) {
  try {
    return sum_to_shape(dy, rows, columns);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(
        error.what() + std::string(". But this shape is legal: rows may be 1 or dy.rows, columns "
                                   "may be 1 or dy.columns. Look for && and ||, or rows and "
                                   "columns, mixed up"));
  }
}

int main() {
  return judge([](Judge& j) {
    const Matrix dy({{1, 2, 3}, {10, 30, 70}});
    const char* const unread =
        "One row or column was not read: loops run from 0 while < dy.rows, "
        "and while < dy.columns.";
    j.asks("nothing was copied: dy itself")
        .same("db", legal(dy, 2, 3), dy,
              "An axis that has dy's size was not copied, so it is not summed.",
              {{without(dy, 0, -1), unread},
               {without(dy, 1, -1), unread},
               {without(dy, -1, 0), unread},
               {without(dy, -1, 2), unread}});
    j.asks("from [1, 3]: a sum over rows")
        .same(
            "db", legal(dy, 1, 3), Matrix({{11, 32, 73}}),
            "b_e was used in each row: add up column e of dy.",
            {{Matrix({{1, 2, 3}}), "This is the first row alone; every row used b."},
             {Matrix({{10, 30, 70}}),
              "This is the last row alone: add (+=), do not overwrite (=), and begin with row 0."},
             {Matrix({{5.5, 16, 36.5}}), "This is the mean. Copies add up: it is the sum."}});
    j.asks("from [2, 1]: a sum along each row")
        .same("db", legal(dy, 2, 1), Matrix({{6}, {110}}),
              "b_n was used all along row n: add it up.",
              {{Matrix({{1}, {10}}), "This is the first column alone; every column used b."},
               {Matrix({{3}, {70}}),
                "This is the last column alone: add (+=), do not overwrite (=), and begin with "
                "column 0."},
               {Matrix({{5}, {100}}), "The first column was not read: loops begin at 0."},
               {Matrix({{2}, {110.0 / 3}}), "This is the mean. Copies add up: it is the sum."}});
    j.asks("from [1, 1]: the sum of all")
        .same("db", legal(dy, 1, 1), Matrix({{116}}), "Both axes were copied, so both are summed.");
    j.asks("an axis of size one on both sides")
        .same("db", legal(Matrix({{1, 2}}), 1, 2), Matrix({{1, 2}}),
              "From [1, 2] to [1, 2] nothing was copied.");
    const auto refused = [&](int rows, int columns) {
      const std::string shape = Matrix(rows, columns).shape();
      std::string instead = shape + " was not refused";
      bool right = false;
      try {
        (void)sum_to_shape(Matrix(4, 6, 1), rows, columns);
      } catch (const std::invalid_argument&) {
        right = true;
      } catch (const std::out_of_range& error) {
        instead = shape + " was not refused, and your code then ran out of range, " + error.what();
      } catch (const std::exception& error) {
        instead = "The error (" + std::string(error.what()) + ") is not a std::invalid_argument";
      } catch (...) {
        instead = "What was thrown is not a std::invalid_argument";
      }
      j.asks("dy of [4, 6]: " + shape + " is refused")
          .holds(right, instead + ". " + shape +
                            " was never broadcast to [4, 6]: throw std::invalid_argument where "
                            "rows is neither 1 nor dy.rows, and the same for columns.");
    };
    refused(2, 6);
    refused(4, 3);
    refused(3, 6);
    refused(5, 6);
    refused(4, 7);
    refused(5, 1);
    const auto sized = [&](int rows, int columns) {
      j.asks("as differences say, for x of [3, 4] times b of " + Matrix(rows, columns).shape())
          .gradients(
              [](const Matrices& in) {
                Matrix y = in[0];
                const Matrix& b = in[1];
                for (int i = 0; i < y.rows; ++i) {
                  for (int k = 0; k < y.columns; ++k) y(i, k) *= b(i % b.rows, k % b.columns);
                }
                return y;
              },
              [](const Matrices& in, const Matrix& d) {
                const Matrix &x = in[0], &b = in[1];
                Matrix dx = d, copied = d;
                for (int i = 0; i < d.rows; ++i) {
                  for (int k = 0; k < d.columns; ++k) {
                    dx(i, k) *= b(i % b.rows, k % b.columns);
                    copied(i, k) *= x(i, k);
                  }
                }
                return Matrices{dx, sum_to_shape(copied, b.rows, b.columns)};
              },
              {random_matrix(3, 4), random_matrix(rows, columns, 2)}, {"dx", "db"},
              "db is the sum over the copies of b.");
    };
    sized(1, 4);
    sized(3, 1);
  });
}

// hint: Every number of dy goes to one number of db. dy(i, k) goes to row 0 where rows is 1, to row
// hint: i otherwise; and the same for columns. Begin with zeros and add.
