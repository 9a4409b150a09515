// Solution of exercise 11. Nothing here has a size that depends on the number of keys.
#include "tests/exercises/judge.hpp"

#include <algorithm>

using namespace skytape::exercises;

void add_tile(Running& r, const Matrix& scores, const Matrix& values) {
  double larger = r.m;
  for (int j = 0; j < scores.columns; ++j) larger = std::max(larger, scores(0, j));
  if (larger == -INFINITY) return;
  const double shrink = std::exp(r.m - larger);
  r.sum *= shrink;
  r.out = shrink * r.out;
  for (int j = 0; j < scores.columns; ++j) {
    const double weight = std::exp(scores(0, j) - larger);
    r.sum += weight;
    for (int d = 0; d < values.columns; ++d) r.out(0, d) += weight * values(j, d);
  }
  r.m = larger;
}

Matrix finish(const Running& r) { return r.sum == 0 ? r.out : (1 / r.sum) * r.out; }
