// 7. Exact attention, backward
// teaches: gradients of matrix products, read off their shapes; attention as three steps
// minutes: 20
//
// N queries look at M keys. Each query takes a weighted mean of the values, and weighs most what it
// is most alike to:
//
//   S = scale Q K^T         [N, M]   scores                   Q: [N, D]                (1)
//   P = softmax(S)          [N, M]   weights, row by row      K, V: [M, D]             (2)
//   O = P V                 [N, D]   the output                                        (3)
//
// The gradient of a product C = A B is two products:  dA = dC B^T  and  dB = A^T dC. There is
// nothing to remember: of dC, A and B only these fit together to the shapes of A and B. (That they
// are right: dC_ij reaches A_ik with slope B_kj, so dA_ik = sum_j dC_ij B_kj.)
//
// Go through (3), (2), (1) and write dV and dP, then dS, then dQ and dK. Softmax's backward is
// exercise 4; write it once more, it is three lines. Forward kept P.
//
//   matmul(a, b), transpose(a), a + b, a - b, 2.0 * a: they throw where shapes do not fit.
//
// The judge uses N = 4, M = 6, D = 3 and scale = 0.7.
//
// The real one: attention/methods/softmax.cpp, whose tiles never form P as a whole: exercise 11.
#include "tests/exercises/judge.hpp"

using namespace skytape::exercises;

struct Gradients {
  Matrix dq, dk, dv;
};

// ---- your part ----------------------------------------------------------------------------------

/// q: [N, D]; k, v: [M, D]; p: [N, M], saved; dout: [N, D].
Gradients attention_backward(const Matrix& q, const Matrix& k, const Matrix& v, const Matrix& p,
                             double scale, const Matrix& dout) {
  write_here();
}

// ---- the judge ----------------------------------------------------------------------------------

constexpr double kScale = 0.7;

Matrix weights(const Matrices& in) { return softmax(kScale * matmul(in[0], transpose(in[1]))); }
Matrix attention(const Matrices& in) { return matmul(weights(in), in[2]); }

/// With a usual mistake: 0 dS = dP; 1 dS without its row sum; 2 the row sum of dP; 3 and 4 no
/// scale; 5 the scale twice; 6 divided by the scale.
Matrices with_mistake(const Matrices& in, const Matrix& dout, int which) {
  const Matrix p = weights(in), dp = matmul(dout, transpose(in[2]));
  Matrix ds = dp;
  for (int i = 0; i < p.rows; ++i) {
    double sum = 0;
    for (int j = 0; j < p.columns; ++j) sum += (which == 2 ? 1 : p(i, j)) * dp(i, j);
    if (which == 0) continue;
    for (int j = 0; j < p.columns; ++j) ds(i, j) = p(i, j) * (dp(i, j) - (which == 1 ? 0 : sum));
  }
  const double scale = which == 5 ? kScale * kScale : which == 6 ? 1 / kScale : kScale;
  return {(which == 3 ? 1 : scale) * matmul(ds, in[1]),
          (which == 4 ? 1 : scale) * matmul(transpose(ds), in[0]), matmul(transpose(p), dout)};
}

int main() {
  return judge([](Judge& j) {
    const Matrix q = random_matrix(4, 3), k = random_matrix(6, 3, 2), v = random_matrix(6, 3, 5);
    const Matrix dout = random_matrix(4, 3, 9), p = weights({q, k, v});
    j.asks("(3) dV = P^T dO");
    const Gradients g = attention_backward(q, k, v, p, kScale, dout);
    j.same("dv", g.dv, matmul(transpose(p), dout),
           "O = P V is a product, so dV = P^T dO: [M, N] times [N, D].");
    j.asks("(2) a single key: dq is zero");
    // One key: its weight is 1, whatever q and k are.
    const Gradients one = attention_backward(q, Matrix({{1, 2, 3}}), Matrix({{4, 5, 6}}),
                                             Matrix(4, 1, 1.0), kScale, dout);
    const char* const through =
        "With one key the weight is 1 whatever q is, so dq = 0: is softmax's backward (2) there, "
        "with "
        "its row sum?";
    j.same("dq", one.dq, Matrix(4, 3), through);
    const auto mistake = [](int which, const char* sentence) {
      return std::pair<Backward, std::string>(
          [which](const Matrices& in, const Matrix& dy) { return with_mistake(in, dy, which); },
          sentence);
    };
    j.asks("as differences say")
        .gradients(
            attention,
            [](const Matrices& in, const Matrix& dy) {
              const auto [dq, dk, dv] =
                  attention_backward(in[0], in[1], in[2], weights(in), kScale, dy);
              return Matrices{dq, dk, dv};
            },
            {q, k, v}, {"dq", "dk", "dv"},
            "dS = P (dP - row sums of P dP), entry by entry; dQ = scale dS K; dK = scale dS^T Q.",
            {mistake(0, "dS is dP here: softmax's backward (2) is missing."),
             mistake(1, "dS = P (dP - row sum): the row sum is missing."),
             mistake(2, "The row sum is that of P dP, not of dP."),
             mistake(3, "dq lacks the scale: S = scale Q K^T."),
             mistake(4, "dk lacks the scale: S = scale Q K^T."),
             mistake(5, "The scale, 0.7, stands here twice: S = scale Q K^T has it once."),
             mistake(6, "You divide by the scale, 0.7: S = scale Q K^T multiplies by it.")});
  });
}

// hint: dP = dO V^T. Row by row: sum = sum_j P_ij dP_ij, dS_ij = P_ij (dP_ij - sum).
// hint 2: (1) is scale Q K^T: a product of Q and K^T. dQ = scale dS K, and d(K^T) = scale Q^T dS;
// hint 2: transpose that to get dK.
