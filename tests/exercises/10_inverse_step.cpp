// 10. The inverse's step and its adjoint
// teaches: an iteration as part of a model; a value used three times; transposes on the way back
// minutes: 40
//
// Skyformer and Nystromformer need the inverse of a small matrix M, [L, L], and get it by steps
// that are products only, since a GPU does these fastest. From V, a guess of the inverse, comes a
// better one:
//
//   X  = M V                          I where V is the inverse          (1)
//   R  = 15 I - X (7 I - X)           = 15 I - 7 X + X X                (2)
//   P  = 13 I - X R                                                     (3)
//   V' = V P / 4                                                        (4)
//
// If X = I, then R = 9 I, P = 4 I and V' = V, so an inverse stays. Write the step, then its
// adjoint: from dV' the gradients dM and dV. Take the lines in reverse, with C = A B giving dA = dC
// B^T and dB = A^T dC, and mind that they do not commute: the order counts.
//
//   (4)  dP and a first part of dV
//   (3)  dR and a first part of dX
//   (2)  what dR adds to dX: three terms, as X stands in (2) once alone and twice in X X
//   (1)  dM, and a second part of dV
//
// Six such steps are part of the model, so its gradient is that of the six steps, not that of the
// exact inverse: page 5 of the tour (tests/tour/05_inverse.cpp) shows the difference.
//
// The real one: attention/inverse/iterative_inverse_steps.hpp.
#include "tests/exercises/judge.hpp"

using namespace skytape::exercises;

struct Gradients {
  Matrix dm, dv;
};

// ---- your part ----------------------------------------------------------------------------------

/// m, v: [L, L]. Returns V'.
Matrix inverse_step(const Matrix& m, const Matrix& v) { write_here(); }

/// dnext: dLoss/dV', [L, L].
Gradients inverse_step_backward(const Matrix& m, const Matrix& v, const Matrix& dnext) {
  write_here();
}

// ---- the judge ----------------------------------------------------------------------------------

/// The adjoint with a usual mistake: 0 X X counted once, 1 nothing of (2), 2 dV of (4) alone,
/// 3 dM of X alone without (2)'s -7.
Matrices with_mistake(const Matrices& in, const Matrix& dnext, int which) {
  const Matrix &m = in[0], &v = in[1];
  const Matrix x = matmul(m, v), i = identity(m.rows);
  const Matrix r = 15 * i - matmul(x, 7 * i - x), p = 13 * i - matmul(x, r);
  const Matrix dp = 0.25 * matmul(transpose(v), dnext), dr = -1 * matmul(transpose(x), dp);
  Matrix dx = -1 * matmul(dp, transpose(r));
  if (which != 1) {
    dx = dx + matmul(dr, transpose(x));
    if (which != 0) dx = dx + matmul(transpose(x), dr);
    if (which != 3) dx = dx - 7 * dr;
  }
  const Matrix dv = 0.25 * matmul(dnext, transpose(p));
  return {matmul(dx, transpose(v)), which == 2 ? dv : dv + matmul(transpose(m), dx)};
}

int main() {
  return judge([](Judge& j) {
    // One number: x = 0.5 v; at m = 0.5, v = 1: x = 0.5, r = 11.75, p = 7.125, v' = 1.78125.
    const Matrix half(1, 1, 0.5), one(1, 1, 1.0);
    j.asks("one number: m = 0.5, v = 1")
        .same("V'", inverse_step(half, one), Matrix(1, 1, 1.78125),
              "x = 0.5, r = 15 - 0.5 (7 - 0.5) = 11.75, p = 13 - 0.5 r = 7.125, v' = v p / 4.",
              {{Matrix(1, 1, 7.125), "The division by 4 is missing."}});
    const Matrix m({{2, 1, 0}, {0, 1, 3}, {1, 0, 1}});
    const Matrix inverse = 0.2 * Matrix({{1, -1, 3}, {3, 2, -6}, {-1, 1, 2}});
    j.asks("an inverse stays")
        .same("V'", inverse_step(m, inverse), inverse,
              "With X = I the brackets are 9 I and 4 I. Is it M V, in this order, and V P?");
    j.asks("from M^T / 10, fourteen steps reach it");
    Matrix v = 0.1 * transpose(m);
    for (int t = 0; t < 14; ++t) v = inverse_step(m, v);
    j.same("V", v, inverse,
           "The steps end elsewhere: look at the order of the products. X = M V; X R; V P.");
    const auto usual = [](int which, const char* sentence) {
      return std::pair<Backward, std::string>(
          [which](const Matrices& in, const Matrix& dy) { return with_mistake(in, dy, which); },
          sentence);
    };
    j.asks("as differences say, through one step")
        .gradients(
            [](const Matrices& in) { return inverse_step(in[0], in[1]); },
            [](const Matrices& in, const Matrix& dy) {
              const Gradients g = inverse_step_backward(in[0], in[1], dy);
              return Matrices{g.dm, g.dv};
            },
            {random_matrix(3, 3), random_matrix(3, 3, 2)}, {"dm", "dv"},
            "(4) dP = V^T dV' / 4, dV = dV' P^T / 4; (3) dR = -X^T dP, dX = -dP R^T; (2) dX -= 7 "
            "dR "
            "and two "
            "terms of X X; (1) dM = dX V^T, dV += M^T dX.",
            {usual(
                 0,
                 "X X is a product of two factors that both are X: dX += dR X^T and dX += X^T dR."),
             usual(1, "dX lacks what (2) adds: R depends on X, too."),
             usual(2, "dV has a second part: V is in X = M V as well, so dV += M^T dX."),
             usual(3, "dX lacks the term of -7 X in (2): dX -= 7 dR.")});
  });
}

// hint: Compute X, R and P again as in the step, then go line by line; -1.0 * a changes a sign.
// hint: (3) is P = 13 I - X R: dX = -dP R^T and dR = -X^T dP. The constant has no gradient.
// hint: (2) is R = 15 I - 7 X + X X: dX = dX - 7 dR + dR X^T + X^T dR.
