// 4. Softmax backward
// teaches: a derivative in which every output depends on every input of its row
// minutes: 20
//
// Softmax turns the numbers of a row into weights that are positive and sum to one:
//
//   y_j = e^(x_j) / sum_k e^(x_k)
//
// Each y_j depends on all x_i of its row. By the quotient rule (try it: two lines), with d_ij = 1
// where i = j and 0 elsewhere,
//
//   the slope of y_j by x_i is y_j (d_ij - y_i)
//
// The chain rule sums over all ways from x_i to the loss, one through each y_j. With dy_j for
// dLoss/dy_j and dx_i for dLoss/dx_i, as in exercise 1:
//
//   dx_i = sum_j dy_j y_j (d_ij - y_i)
//
// Take this sum apart into what depends on i and what does not, and there is a form that needs no
// table of N x N derivatives: one number for each row, then one product for each entry. Note that
// it reads y and dy only; x need not be kept in memory.
//
// Rows are apart: each has a separate softmax. A Matrix m has m.rows, m.columns and m(i, j).
//
// The real one: softmax in autograd/ops_reduce.cpp, its kernel in tensor/norm/softmax.kernel.cpp.
#include "tests/exercises/judge.hpp"

using namespace skytape::exercises;

// ---- your part ----------------------------------------------------------------------------------

/// y: [N, M], rows that softmax made; dy: [N, M], dLoss/dy. Returns dx: [N, M].
Matrix softmax_backward(const Matrix& y, const Matrix& dy) { write_here(); }

// ---- the judge ----------------------------------------------------------------------------------

/// Usual mistakes: a row's number that is not sum_k y_k dy_k, or does not stand where it should.
Matrix with_mistake(const Matrix& y, const Matrix& dy, int which) {
  Matrix dx(y.rows, y.columns);
  double all = 0;
  for (int i = 0; i < y.rows; ++i) {
    for (int j = 0; j < y.columns; ++j) all += y(i, j) * dy(i, j);
  }
  for (int i = 0; i < y.rows; ++i) {
    double sum = 0, of_dy = 0;
    for (int j = 0; j < y.columns; ++j) sum += y(i, j) * dy(i, j), of_dy += dy(i, j);
    for (int j = 0; j < y.columns; ++j) {
      const double d = dy(i, j), w = y(i, j);
      dx(i, j) = which == 0   ? w * d
                 : which == 1 ? w * (d - of_dy)
                 : which == 2 ? d - sum
                 : which == 3 ? w * d - sum
                 : which == 4 ? w * (1 - w) * d
                              : w * (d - all);
    }
  }
  return dx;
}

int main() {
  return judge([](Judge& j) {
    const Matrix x = 2 * random_matrix(1, 4), y = softmax(x);
    j.same("the shape of x", "dx",
           Matrix(softmax_backward(y, y).rows, softmax_backward(y, y).columns), Matrix(1, 4),
           "Every number of x has a slope, so dx has x's shape.");
    const auto usual = [](const Matrix& y, const Matrix& dy) {
      return std::vector<Mistake>{
          {with_mistake(y, dy, 0),
           "This is y dy, the part of i = j without - y_i: the sum over j is missing."},
          {with_mistake(y, dy, 1), "The row's sum is that of dy; it must be that of y dy."},
          {with_mistake(y, dy, 2), "The factor y_i in front is missing."},
          {with_mistake(y, dy, 3), "The row's sum must be multiplied by y_i, too."},
          {with_mistake(y, dy, 4),
           "This is y (1 - y) dy, the table's diagonal: x_i moves the other y_j of its row as "
           "well."},
          {with_mistake(y, dy, 5),
           "The sum runs over all rows; each row has a softmax, and a sum, of its own."}};
    };
    const Matrix ones(1, 4, 1.0);
    j.same("dy = 1 everywhere: the loss is the row's sum, which is always 1, so nothing moves it",
           "dx", softmax_backward(y, ones), Matrix(1, 4),
           "A row of y sums to one whatever x is. With dy = 1 the slopes must be zero.",
           usual(y, ones));
    const Matrix first({{1, 0, 0, 0}});
    Matrix table(1, 4);
    for (int i = 0; i < 4; ++i) table(0, i) = y(0, 0) * ((i == 0) - y(0, i));
    j.same("dy = (1, 0, 0, 0): the first row of the table of derivatives", "dx",
           softmax_backward(y, first), table, "dx_i = y_0 (d_i0 - y_i).", usual(y, first));
    const auto forward = [](const Matrices& in) { return softmax(in[0]); };
    const auto mistake = [](int which) {
      return [which](const Matrices& in, const Matrix& dy) {
        return Matrices{with_mistake(softmax(in[0]), dy, which)};
      };
    };
    j.gradients("as differences say, for three rows of five", forward,
                [](const Matrices& in, const Matrix& dy) {
                  return Matrices{softmax_backward(softmax(in[0]), dy)};
                },
                {2 * random_matrix(3, 5)}, {"dx"},
                "dx_i = sum_j dy_j y_j (d_ij - y_i), row by row.",
                {{mistake(5),
                  "The sum runs over all rows; each row has a softmax, and a sum, of its own."}});
  });
}

// hint: sum_j dy_j y_j d_ij has a single term that is not zero: dy_i y_i. sum_j dy_j y_j y_i is y_i
// hint: times a number that does not depend on i: compute it once for a row.
