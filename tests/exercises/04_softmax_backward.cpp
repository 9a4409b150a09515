// 4. Softmax backward
// teaches: a derivative in which every output depends on every input of its row
// minutes: 12
//
// Softmax turns the numbers of a row into weights that are positive and sum to one:
//
//   y_j = e^(x_j) / sum_k e^(x_k)
//
// Each y_j depends on all x_i of its row. By the quotient rule (try it: two lines), with d_ij = 1
// where i = j and 0 elsewhere,
//
//   the derivative of y_j with respect to x_i is y_j (d_ij - y_i)
//
// The chain rule sums over all paths from x_i to the loss, one through each y_j. With dy_j for
// dLoss/dy_j and dx_i for dLoss/dx_i, as in exercise 1:
//
//   dx_i = sum_j dy_j y_j (d_ij - y_i)
//
// Take this sum apart into what depends on i and what does not, and there is a form that needs no
// table of M x M derivatives: one number for each row, then one product for each entry. Note that
// it reads y and dy only; x need not be kept in memory.
//
// Rows are independent: each has its own softmax. A Matrix m has m.rows, m.columns and m(i, j);
// Matrix m(2, 3) makes one of two rows and three columns, filled with zeros.
//
// The real one: softmax in autograd/ops_reduce.cpp, its kernel in tensor/norm/softmax.kernel.cpp.
#include "tests/exercises/judge.hpp"

using namespace skytape::exercises;

// ---- your part ----------------------------------------------------------------------------------

/// y: [N, M], rows that softmax made; dy: [N, M], dLoss/dy. Returns dx: [N, M].
Matrix softmax_backward(const Matrix& y, const Matrix& dy) { write_here(); }

// ---- the judge ----------------------------------------------------------------------------------

const char* const kUsual[] = {
    "This is y dy, the part of i = j without - y_i: the sum over j is missing.",
    "The row's sum is that of dy; it must be that of y dy.",
    "The factor y_i in front is missing.",
    "The row's sum must be multiplied by y_i, too.",
    "This is y (1 - y) dy, the table's diagonal: x_i moves the other y_j of its row as well.",
    "The sum runs over all rows; each row has a softmax, and a sum, of its own.",
    "Here you sum down a column; the sum runs along the row, over j.",
    "y_i stands in front of the bracket already: in it the row's sum has no factor.",
    "This is the term of the last j alone: add up (+=) over j, do not overwrite (=).",
    "d_ij is one only where i = j; here it is one everywhere.",
    "The row's sum lacks its first entry: j begins at 0.",
    "The row's sum is its last entry alone: add up (+=), do not overwrite (=).",
    "The sum goes on from row to row: each row's sum begins with 0.",
};

/// The answer with a usual mistake, in the order of kUsual.
Matrix with_mistake(const Matrix& y, const Matrix& dy, int which) {
  Matrix dx(y.rows, y.columns), down(1, y.columns);
  double all = 0, so_far = 0;
  for (int i = 0; i < y.rows; ++i) {
    for (int j = 0; j < y.columns; ++j) {
      all += y(i, j) * dy(i, j);
      down(0, j) += y(i, j) * dy(i, j);
    }
  }
  for (int i = 0; i < y.rows; ++i) {
    double sum = 0, of_dy = 0;
    for (int j = 0; j < y.columns; ++j) sum += y(i, j) * dy(i, j), of_dy += dy(i, j);
    so_far += sum;
    const double first = y(i, 0) * dy(i, 0), last = y(i, y.columns - 1) * dy(i, y.columns - 1);
    for (int j = 0; j < y.columns; ++j) {
      const double d = dy(i, j), w = y(i, j);
      const double answers[] = {w * d,
                                w * (d - of_dy),
                                d - sum,
                                w * d - sum,
                                w * (1 - w) * d,
                                w * (d - all),
                                w * (d - down(0, j)),
                                w * (d - w * sum),
                                last * ((j == y.columns - 1) - w),
                                sum * (1 - w),
                                w * (d - (sum - first)),
                                w * (d - last),
                                w * (d - so_far)};
      dx(i, j) = answers[which];
    }
  }
  return dx;
}

int main() {
  return judge([](Judge& j) {
    const Matrix x = 2 * random_matrix(1, 4), y = softmax(x);
    j.asks("the shape of x")
        .same("dx", Matrix(softmax_backward(y, y).rows, softmax_backward(y, y).columns),
              Matrix(1, 4), "Every number of x has a slope, so dx has x's shape.");
    // With one row, or dy = 1, several mistakes give the same numbers. So which mistake it is, is
    // asked of three rows and any dy.
    const Matrix rows = softmax(2 * random_matrix(3, 5)), any = random_matrix(3, 5, 3);
    std::vector<Mistake> usual;
    for (int which = 0; const char* const sentence : kUsual) {
      usual.push_back({with_mistake(rows, any, which++), sentence});
    }
    const std::string known = Judge::mistake(softmax_backward(rows, any), usual);
    const auto same = [&](const Matrix& got, const Matrix& expected, const char* why) {
      j.same("dx", got, expected, why,
             known.empty() ? std::vector<Mistake>{} : std::vector<Mistake>{{got, known}});
    };
    j.asks("dy = 1 everywhere: the loss is the row's sum, which is always 1, so nothing moves it");
    same(softmax_backward(y, Matrix(1, 4, 1.0)), Matrix(1, 4),
         "A row of y sums to one whatever x is. With dy = 1 the slopes must be zero.");
    Matrix table(1, 4);
    for (int i = 0; i < 4; ++i) table(0, i) = y(0, 0) * ((i == 0) - y(0, i));
    j.asks("dy = (1, 0, 0, 0): the first row of the table of derivatives");
    same(softmax_backward(y, Matrix({{1, 0, 0, 0}})), table, "dx_i = y_0 (d_i0 - y_i).");
    j.asks("as differences say, for three rows of five")
        .gradients([](const Matrices& in) { return softmax(in[0]); },
                   [](const Matrices& in, const Matrix& dy) {
                     return Matrices{softmax_backward(softmax(in[0]), dy)};
                   },
                   {2 * random_matrix(3, 5)}, {"dx"},
                   known.empty() ? "dx_i = sum_j dy_j y_j (d_ij - y_i), row by row." : known);
  });
}

// hint: sum_j dy_j y_j d_ij has a single term that is not zero: dy_i y_i. sum_j dy_j y_j y_i is y_i
// hint: times a number that does not depend on i: compute it once for a row.
