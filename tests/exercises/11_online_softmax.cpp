// 11. Online softmax over tiles
// teaches: how attention is computed without its N x N weights; running sums that are rescaled
// minutes: 30
//
// Exercise 7 kept P, N x M numbers. Here is how not to. One query walks over the keys in tiles and
// keeps three things only, whatever M is:
//
//   m            the largest score so far; -infinity before the first
//   sum          of e^(score - m) over the keys so far
//   out_d        sum of e^(score - m) value_d over the keys so far
//
// When a tile comes with a larger maximum m', the old sums are in the wrong unit: e^(score - m)
// must become e^(score - m'). The two differ by one factor, the same for all keys, e^(m - m'):
//
//   m'   = max(m, largest score of the tile)
//   sum  = e^(m - m') sum  + sum over the tile of e^(score - m')
//   out  = e^(m - m') out  + sum over the tile of e^(score - m') value
//
// At the end the output is out / sum. A key that is padding has the score -infinity; e^-infinity is
// 0, so it weighs nothing. But -infinity - -infinity is not a number: mind a tile with padding only
// while m is still -infinity. If there is no key at all but padding, the output is 0.
//
// std::exp(-INFINITY) is 0, and INFINITY comes with the header below.
//
// The real one: attention/tiled/online_softmax.hpp; page 7 of the tour (tests/tour/07_kernel.cu),
// "one pass".
#include "tests/exercises/judge.hpp"

#include <algorithm>

using namespace skytape::exercises;

struct Running {
  double m = -INFINITY;
  double sum = 0;
  Matrix out;  // [1, D]
};

// ---- your part ----------------------------------------------------------------------------------

/// Takes in a tile: scores [1, T] of T keys, and their values [T, D].
void add_tile(Running& r, const Matrix& scores, const Matrix& values) { write_here(); }

/// The output after all tiles, [1, D].
Matrix finish(const Running& r) { write_here(); }

// ---- the judge ----------------------------------------------------------------------------------

/// In tiles of `tile` keys.
Matrix in_tiles(const Matrix& scores, const Matrix& values, int tile) {
  Running r;
  r.out = Matrix(1, values.columns);
  for (int begin = 0; begin < values.rows; begin += tile) {
    const int count = std::min(tile, values.rows - begin);
    Matrix s(1, count), v(count, values.columns);
    for (int j = 0; j < count; ++j) {
      s(0, j) = scores(0, begin + j);
      for (int d = 0; d < values.columns; ++d) v(j, d) = values(begin + j, d);
    }
    add_tile(r, s, v);
  }
  return finish(r);
}

int main() {
  return judge([](Judge& j) {
    const Matrix scores({{1, -1, 0.5, 2, 3, -2, 2.5}}), values = random_matrix(7, 2);
    const Matrix exact = matmul(softmax(scores), values);
    j.asks("all keys in one tile")
        .same("out", in_tiles(scores, values, 7), exact,
              "out / sum, with the weights e^(score - m).");
    // Falling scores: the maximum never moves after the first tile.
    const Matrix falling({{3, 2.5, 2, 1, 0.5, -1, -2}});
    j.asks("tiles of two, the largest score first")
        .same(
            "out", in_tiles(falling, values, 2), matmul(softmax(falling), values),
            "The maximum never moves here. Does each tile add to sum and out, and is the division "
            "left to "
            "finish()?");
    j.asks("tiles of two, the maximum moves")
        .same("out", in_tiles(scores, values, 2), exact,
              "When the maximum moves, the old sum AND the old out shrink by e^(m - m'): both, "
              "once a "
              "tile, "
              "and before m is overwritten.");
    Matrix high = scores;
    for (int i = 0; i < 7; ++i) high(0, i) += 1000;
    j.asks("all scores near 1000")
        .same("out", in_tiles(high, values, 2), exact,
              "e^1000 is infinity: the maximum must be taken out of each exponential.");
    Matrix low = scores;
    for (int i = 0; i < 7; ++i) low(0, i) -= 1000;
    j.asks("all scores near -1000")
        .same("out", in_tiles(low, values, 2), exact,
              "The maximum begins at -infinity, not at 0: otherwise all weights are e^-1000 = 0.");
    const Matrix far({{1000, 999, 0, -1, 1, 2, 3}});
    j.asks("scores fall from 1000 to 0")
        .same("out", in_tiles(far, values, 2), matmul(softmax(far), values),
              "m' is the larger of the old m and the tile's maximum: with the tile's alone e^(m - "
              "m') "
              "is e^1000.");
    for (const int i : {2, 5}) {
      Matrix mixed = scores;
      mixed(0, i) = -INFINITY;
      j.asks("key " + std::to_string(i) + " is padding, the other key of its tile is not")
          .same("out", in_tiles(mixed, values, 2), matmul(softmax(mixed), values),
                "A tile may have keys and padding. Return early only where m', the maximum over m "
                "and all scores of the tile, is -infinity: one score does not tell.");
    }
    Matrix padded = scores;
    for (const int i : {2, 3, 6}) padded(0, i) = -INFINITY;
    Matrix weights(1, 7);
    double sum = 0;
    for (int i = 0; i < 7; ++i) sum += weights(0, i) = std::exp(padded(0, i));
    j.asks("a tile of padding in the middle")
        .same("out", in_tiles(padded, values, 2), (1 / sum) * matmul(weights, values),
              "A score of -infinity has the weight e^-infinity = 0.");
    for (const int i : {0, 1}) padded(0, i) = -INFINITY;
    sum = std::exp(3) + std::exp(-2);
    weights = Matrix({{0, 0, 0, 0, std::exp(3) / sum, std::exp(-2) / sum, 0}});
    j.asks("the first tiles are padding")
        .same("out", in_tiles(padded, values, 2), matmul(weights, values),
              "While m and m' are both -infinity, m - m' is not a number: return early then.");
    j.asks("nothing but padding")
        .same("out", in_tiles(Matrix(1, 7, -INFINITY), values, 2), Matrix(1, 2),
              "Where no key counted, sum is 0 and 0 / 0 not a number: the output is 0.");
  });
}

// hint: First the new maximum over r.m and all scores of the tile. If it is still -INFINITY,
// hint: return. const double shrink = std::exp(r.m - larger): multiply r.sum and each entry of
// hint: r.out by it, then add the tile, then r.m = larger.
