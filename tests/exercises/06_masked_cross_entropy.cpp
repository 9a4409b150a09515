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
// dloss is given: the gradient from what follows, as dy in exercise 1; 1 if nothing does. Scores
// may be 1000 or -1000, and e^1000 is infinity. Since softmax does not change when a constant is
// added to a row, take the maximum out first:
//
//   log(sum_c e^(z_c)) = max + log(sum_c e^(z_c - max))
//
// softmax(const Matrix&) of judge.hpp is at hand for the gradient, row by row, and takes care of
// the maximum itself.
//
// The real one: tensor/classifier/, which does head, loss and gradient in one kernel on a GPU.
#include "tests/exercises/judge.hpp"

#include <algorithm>
#include <stdexcept>

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

/// The loss; an index of -1 is told with where it comes from.
double loss_of(const Matrix& z, const Labels& labels, const Matrix& mask) {
  try {
    return cross_entropy(z, labels, mask);
  } catch (const std::out_of_range& error) {
    const std::string text = error.what();
    if (text.find(", -1)") == text.npos) throw;
    throw std::out_of_range(text +
                            ". Column -1 is the label of padding: skip a row whose mask is 0 "
                            "before you read its label");
  }
}

int main() {
  return judge([](Judge& j) {
    const Matrix token(1, 1, 1.0);
    const double sum_of_e = std::exp(2) + std::exp(0.5) + std::exp(-1);
    const double all = std::log(sum_of_e), right = all - 0.5;
    const char* const base_ten = "log10 is not log: std::log is the natural logarithm.";
    j.asks("scores (2, 0.5, -1), label 1")
        .same(
            "loss", loss_of(Matrix({{2, 0.5, -1}}), {1}, token), right,
            "loss = max + log(sum_c e^(z_c - max)) - z_t, with max = 2 and z_t = 0.5.",
            {{right - 2, "The maximum is not added back: max + log(sum of e^(z_c - max)) - z_t."},
             {all, "This is log(sum_c e^(z_c)): - z_t is missing."},
             {all - 2, "This is the loss of the class before the label: labels count from 0."},
             {all + 1, "This is the loss of the class after the label: labels count from 0."},
             {-right, "The sign: the loss is -log softmax(z)_t = log(sum_c e^(z_c)) - z_t."},
             {std::exp(-right), "This is softmax(z)_t: its logarithm, with a minus, is the loss."},
             {2 + std::log10(sum_of_e / std::exp(2)) - 0.5, base_ten},
             {std::log10(sum_of_e) - 0.5, base_ten},
             {right / std::log(10), base_ten}});
    // Says that something overflows only where it did.
    const auto far_out = [](double got, const char* overflow) {
      return std::isfinite(got) ? "It must be max + log(sum_c e^(z_c - max)) - z_t." : overflow;
    };
    j.asks("scores of 1000 and 999");
    const double high = loss_of(Matrix({{1000, 999}}), {1}, token);
    j.same(
        "loss", high, 1.313261687518,
        far_out(high, "e^1000 is infinity: take the row's maximum out of the exponential first."));
    j.asks("scores of -1000 and -999");
    const double low = loss_of(Matrix({{-1000, -999}}), {0}, token);
    j.same(
        "loss", low, 1.313261687518,
        far_out(low, "e^-1000 is 0, and log 0 minus infinity: take the row's maximum out first."));
    j.asks("scores of 1000 and -1000, and the label is the second");
    const double unlikely = loss_of(Matrix({{1000, -1000}}), {1}, token);
    j.same("loss", unlikely, 2000,
           far_out(unlikely, "-log(softmax) is -log 0: use max + log(sum) - z_t."));
    const Matrix z = 2 * random_matrix(4, 3), mask({{1}, {1}, {1}, {0}});
    const Labels labels = {2, 0, 1, -1};
    double sum = 0;
    for (int n = 0; n < 3; ++n) sum -= std::log(softmax(z)(n, labels[n]));
    j.asks("four rows, the last one padding")
        .same(
            "loss", loss_of(z, labels, mask), sum / 3,
            "The loss is the mean over tokens: divide by the sum of the mask.",
            {{sum / 4,
              "You divide by all rows; padding does not count, so divide by the sum of the mask."},
             {sum, "This is the sum; divide by the sum of the mask."}});
    const Matrix gap({{1}, {0}, {1}, {1}});
    const Labels around = {2, -1, 0, 1};
    const char* const anywhere =
        "Padding need not come last: go through all rows, and skip those whose mask is 0.";
    sum = 0;
    for (const int n : {0, 2, 3}) sum -= std::log(softmax(z)(n, around[n]));
    j.asks("four rows, the second one padding")
        .same("loss", loss_of(z, around, gap), sum / 3, anywhere);
    const Matrix none(4, 1);
    const Labels padding(4, -1);
    j.asks("nothing but padding")
        .same("loss", loss_of(z, padding, none), 0,
              "Where no row counts the loss is 0: 0 / 0 is not a number.");
    j.asks("dz, its last row padding");
    const Matrix dz = cross_entropy_backward(z, labels, mask, 1), y = softmax(z);
    Matrix expected(4, 3), all_rows(4, 3), unhot(4, 3), all_hit(4, 3), times(4, 3), shifted(4, 3);
    for (int n = 0; n < 4; ++n) {
      for (int c = 0; c < 3; ++c) {
        const double share = mask(n, 0) / 3;
        const bool hit = c == labels[n];
        expected(n, c) = share * (y(n, c) - hit);
        all_rows(n, c) = (y(n, c) - hit) / 3;
        unhot(n, c) = share * y(n, c);
        all_hit(n, c) = share * (y(n, c) - 1);
        times(n, c) = share * y(n, c) * hit;
        shifted(n, c) = share * (y(n, c) - (c == labels[n] - 1));
      }
    }
    j.same(
        "dz", dz, expected, "dz_nc = mask_n (softmax(z_n)_c - hit_nc) / count.",
        {{unhot,
          "This is softmax alone: at the label 1 is subtracted, from the - z_t of the loss."},
         {0.75 * expected,
          "You divide by all rows; divide by the sum of the mask, as in the loss."},
         {all_rows, "The row of padding has a gradient; its mask is 0, so nothing there matters."},
         {all_hit, "hit is one at the label only; here 1 is subtracted at every class."},
         {times, "hit is subtracted, it is no factor."},
         {shifted, "One is subtracted beside the label: labels count from 0, as columns do."},
         {3 * expected, "The loss is a mean: each token's gradient is divided by the count, too."},
         {-1 * expected, "The sign: a higher score at the label makes the loss smaller."}});
    Matrix without_second(4, 3);
    for (const int n : {0, 2, 3}) {
      for (int c = 0; c < 3; ++c) without_second(n, c) = (y(n, c) - (c == around[n])) / 3;
    }
    j.asks("dz, its second row padding")
        .same("dz", cross_entropy_backward(z, around, gap, 1), without_second, anywhere);
    j.asks("dloss = -2")
        .same("dz", cross_entropy_backward(z, labels, mask, -2), -2 * expected,
              "What comes from the operations that follow multiplies everything: dz = dloss (…).");
    j.asks("scores of 1000 and 999 again")
        .same("dz", cross_entropy_backward(Matrix({{1000, 999}}), {1}, token, 1),
              Matrix({{0.731058578630, -0.731058578630}}),
              "dz = softmax(z) - hit; where it is no number, e^1000 was infinity: take the row's "
              "maximum out of the exponential.");
    j.asks("nothing but padding again")
        .same("dz", cross_entropy_backward(z, padding, none, 1), Matrix(4, 3),
              "Where no row counts the gradient is 0: 0 / 0 is not a number.");
    j.asks("as differences say")
        .gradients(
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
