// 6. Cross entropy with a mask
// teaches: a loss and its gradient; numbers that overflow; padding that must not count
// minutes: 25
//
// A model gives each of N tokens C scores z_c, one for each class. Cross entropy asks how surprised
// it is by the right class t:
//
//   loss of a token = -log softmax(z)_t = log(sum_c e^(z_c)) - z_t
//
// Sequences of a batch have several lengths, so the shorter ones end in padding: rows that are not
// tokens. Their mask is 0, that of tokens is 1; the label of padding is -1, which is no class and
// must not be read. The loss is the mean over tokens:
//
//   loss = sum_n mask_n (loss of n) / count      count = sum_n mask_n; 0 where count is 0
//
// Its gradient is the nicest of all (try it: the derivative of log(sum_c e^(z_c)) is softmax). With
// hit_nc = 1 where c is the label of row n, and 0 elsewhere:
//
//   dz_nc = dloss mask_n (softmax(z_n)_c - hit_nc) / count
//
// where dloss is dLoss/dloss: one, if this is the last operation. Scores may be 1000 or -1000:
// e^1000 is infinity. Since softmax does not change when a constant is added to a row, take the
// maximum out first:
//
//   log(sum_c e^(z_c)) = max + log(sum_c e^(z_c - max))
//
// softmax(const Matrix&) of judge.hpp is at hand for the gradient, row by row, and takes care of
// the maximum itself.
//
// The real one: tensor/classifier/, which does head, loss and gradient in one kernel on a GPU.
#include "tests/exercises/judge.hpp"

#include <algorithm>

using namespace skytape::exercises;

using Labels = std::vector<int>;

// ---- your part ----------------------------------------------------------------------------------

/// z: [N, C]; labels: N of them, 0 to C - 1, -1 in padding; mask: [N, 1]. Returns the loss.
double cross_entropy(const Matrix& z, const Labels& labels, const Matrix& mask) { write_here(); }

/// The gradient of z, [N, C].
Matrix cross_entropy_backward(const Matrix& z, const Labels& labels, const Matrix& mask,
                              double dloss) {
  write_here();
}

// ---- the judge ----------------------------------------------------------------------------------

int main() {
  return judge([](Judge& j) {
    const Matrix token(1, 1, 1.0);
    j.same("two equal scores: the loss is log 2", "loss",
           cross_entropy(Matrix({{3, 3}}), {1}, token), std::log(2),
           "Each class has probability 1/2, and -log(1/2) is 0.693147.");
    j.same("scores of 1000 and 999", "loss", cross_entropy(Matrix({{1000, 999}}), {1}, token),
           1.313261687518,
           "e^1000 is infinity: take the row's maximum out of the exponential first.");
    j.same("scores of -1000 and -999", "loss", cross_entropy(Matrix({{-1000, -999}}), {0}, token),
           1.313261687518,
           "e^-1000 is 0, and log 0 minus infinity: take the row's maximum out first.");
    const Matrix z = 2 * random_matrix(4, 3), mask({{1}, {1}, {1}, {0}});
    const Labels labels = {2, 0, 1, -1};
    double sum = 0;
    for (int n = 0; n < 3; ++n) sum -= std::log(softmax(z)(n, labels[n]));
    j.same("four rows, the last one padding", "loss", cross_entropy(z, labels, mask), sum / 3,
           "The loss is the mean over tokens: divide by the sum of the mask.",
           {{sum / 4,
             "You divide by all rows; padding does not count, so divide by the sum of the mask."},
            {sum, "This is the sum; divide by the sum of the mask."}});
    const Matrix none(4, 1);
    const Labels padding(4, -1);
    j.same("nothing but padding", "loss", cross_entropy(z, padding, none), 0,
           "Where no row counts the loss is 0: 0 / 0 is not a number.");
    const Matrix dz = cross_entropy_backward(z, labels, mask, 1);
    Matrix expected = (1.0 / 3) * softmax(z), unhot = expected, by_all = expected,
           all_rows = expected;
    for (int n = 0; n < 4; ++n) {
      for (int c = 0; c < 3; ++c) {
        expected(n, c) = mask(n, 0) * (softmax(z)(n, c) - (c == labels[n])) / 3;
        all_rows(n, c) = (softmax(z)(n, c) - (c == labels[n])) / 3;
        unhot(n, c) *= mask(n, 0);
        by_all(n, c) = 0.75 * expected(n, c);
      }
    }
    j.same(
        "dz, its last row padding", "dz", dz, expected,
        "dz_nc = mask_n (softmax(z_n)_c - hit_nc) / count.",
        {{unhot,
          "This is softmax alone: at the label 1 is subtracted, from the - z_t of the loss."},
         {by_all, "You divide by all rows; divide by the sum of the mask, as in the loss."},
         {all_rows, "The row of padding has a gradient; its mask is 0, so nothing there matters."},
         {3 * expected, "The loss is a mean: each token's gradient is divided by the count, too."},
         {-1 * expected, "The sign: a higher score at the label makes the loss smaller."}});
    j.same("dloss = -2", "dz", cross_entropy_backward(z, labels, mask, -2), -2 * expected,
           "What comes from behind multiplies everything: dz = dloss (…).");
    j.same("scores of 1000 and 999 again", "dz",
           cross_entropy_backward(Matrix({{1000, 999}}), {1}, token, 1),
           Matrix({{0.731058578630, -0.731058578630}}),
           "Take the row's maximum out of the exponential.");
    j.same("nothing but padding again", "dz", cross_entropy_backward(z, padding, none, 1),
           Matrix(4, 3), "Where no row counts the gradient is 0: 0 / 0 is not a number.");
    j.gradients(
        "as differences say",
        [&](const Matrices& in) { return Matrix(1, 1, cross_entropy(in[0], labels, mask)); },
        [&](const Matrices& in, const Matrix& dy) {
          return Matrices{cross_entropy_backward(in[0], labels, mask, dy(0, 0))};
        },
        {z}, {"dz"}, "dz_nc = dloss mask_n (softmax(z_n)_c - hit_nc) / count.");
  });
}

// hint: In both functions: count first, and return early where it is 0. In the loops skip a row
// hint: whose mask is 0 before you read its label. std::max over the row's scores, then sum +=
// hint: std::exp(z(n, c) - maximum).
