// Broken piece 3: exact attention of one head with padding. One line is wrong.
// tool: gradcheck, and the padding test
// minutes: 15
//
// N positions, of which the last two are padding (mask 0). A padded key has weight zero; a padded
// query has no output of interest.
//
//   P_ij = exp(q_i.k_j) / sum over tokens j of exp(q_i.k_j), 0 for padded j      O = P V
//
// gradcheck compares backward with forward. It cannot know what forward should have been. So there
// is a second test for each method of the library: numbers in the padding are replaced, and the
// output of tokens must not change by a bit.
#include "tests/exercises/judge.hpp"

#include <algorithm>
#include <cstdio>

using namespace skytape::exercises;

constexpr int kN = 6, kTokens = 4, kD = 3;

Matrix weights(const Matrix& q, const Matrix& k, const Matrix& mask) {
  const Matrix scores = matmul(q, transpose(k));
  Matrix p(kN, kN);
  for (int i = 0; i < kN; ++i) {
    double sum = 0;
    for (int j = 0; j < kN; ++j) {
      if (mask(i, 0) == 0) continue;
      p(i, j) = std::exp(scores(i, j));
      sum += p(i, j);
    }
    for (int j = 0; j < kN && sum > 0; ++j) p(i, j) /= sum;
  }
  return p;
}

Matrices backward(const Matrices& in, const Matrix& dout, const Matrix& mask) {
  const Matrix p = weights(in[0], in[1], mask);
  const Matrix dp = matmul(dout, transpose(in[2]));
  Matrix ds(kN, kN);
  for (int i = 0; i < kN; ++i) {
    double sum = 0;
    for (int j = 0; j < kN; ++j) sum += p(i, j) * dp(i, j);
    for (int j = 0; j < kN; ++j) ds(i, j) = p(i, j) * (dp(i, j) - sum);
  }
  return {matmul(ds, in[1]), matmul(transpose(ds), in[0]), matmul(transpose(p), dout)};
}

int main() {
  Matrix mask(kN, 1);
  for (int i = 0; i < kTokens; ++i) mask(i, 0) = 1;
  const auto forward = [&](const Matrices& in) {
    return matmul(weights(in[0], in[1], mask), in[2]);
  };
  Matrices in = {random_matrix(kN, kD), random_matrix(kN, kD, 2), random_matrix(kN, kD, 5)};
  bool passed = false;
  const std::string table = gradcheck_table(
      forward, [&](const Matrices& x, const Matrix& dy) { return backward(x, dy, mask); }, in,
      {"q", "k", "v"}, passed);
  std::printf("%s\n", table.c_str());

  const Matrix before = forward(in);
  in[1](kN - 1, 0) = in[2](kN - 1, 0) = 9;  // in the padding
  const Matrix after = forward(in);
  double largest = 0;
  for (int i = 0; i < kTokens; ++i) {
    for (int d = 0; d < kD; ++d) largest = std::max(largest, std::abs(after(i, d) - before(i, d)));
  }
  std::printf(
      "padding test: key and value %d were changed; outputs of tokens changed by up to %.3g\n",
      kN - 1, largest);
  return passed && largest == 0 ? 0 : 1;
}

// hint: Backward agrees with forward, so look at forward only. i counts queries, j counts keys.
