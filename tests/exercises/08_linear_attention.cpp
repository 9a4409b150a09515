// 8. Linear attention in both orders
// teaches: the order of products decides the cost; a backward that keeps it
// minutes: 25
//
// Without softmax, attention is a product of three matrices, with s = 1 / M a constant:
//
//   O = s Q K^T V                 Q: [N, D]    K, V: [M, D]
//
//   from the left    (Q K^T) V    forms [N, M]:  2 N M D multiply-adds
//   from the right   Q (K^T V)    forms [D, D]:  D^2 (N + M)
//
// The same numbers, but at N = M = 2048 and D = 32 the right one costs a 64th. Write both, and the
// backward of the right one,
//
//   T = s K^T V    [D, D]         (1)
//   O = Q T        [N, D]         (2)
//
// which must not form anything of [N, M] either: a backward from the left would cost what forward
// has saved. The judge looks at the largest matrix that you make, and counts the entries that you
// use.
//
// With positive features phi(Q), phi(K) in place of Q, K and a division by the sum of the weights,
// this is linear attention (Katharopoulos et al. 2020).
//
// The real one: page 4 of the tour (tests/tour/04_method.cpp),
// attention/methods/linear_attention.cpp.
#include "tests/exercises/judge.hpp"

using namespace skytape::exercises;

struct Gradients {
  Matrix dq, dk, dv;
};

// ---- your part ----------------------------------------------------------------------------------

Matrix from_the_left(const Matrix& q, const Matrix& k, const Matrix& v, double s) { write_here(); }

Matrix from_the_right(const Matrix& q, const Matrix& k, const Matrix& v, double s) { write_here(); }

/// Returns the gradients of from_the_right. dout: [N, D].
Gradients backward(const Matrix& q, const Matrix& k, const Matrix& v, double s,
                   const Matrix& dout) {
  write_here();
}

// ---- the judge ----------------------------------------------------------------------------------

int main() {
  return judge([](Judge& j) {
    // By hand: Q K^T = (1 2), times V = 1 * 10 + 2 * 20, times s = 0.5.
    const Matrix q1({{1}}), k1({{1}, {2}}), v1({{10}, {20}});
    j.asks("by hand, from the left")
        .same("O", from_the_left(q1, k1, v1, 0.5), Matrix({{25}}),
              "s (1 2) (10 20)^T = 0.5 (10 + 40).", {{Matrix({{50}}), "The factor s is missing."}});
    j.asks("by hand, from the right")
        .same("O", from_the_right(q1, k1, v1, 0.5), Matrix({{25}}), "0.5 (1 x 10 + 2 x 20).",
              {{Matrix({{50}}), "The factor s is missing."}});
    const int n = 40, m = 50, d = 3;
    const double s = 1.0 / m;
    const Matrix q = random_matrix(n, d), k = random_matrix(m, d, 2), v = random_matrix(m, d, 5);
    const Matrix exact = s * matmul(matmul(q, transpose(k)), v);
    const std::vector<Mistake> turned = {
        {s * matmul(q, matmul(transpose(v), k)),
         "This is Q (V^T K): K^T V is transposed, and as [D, D] it fits both ways."}};
    j.asks("random numbers, from the left")
        .same("O", from_the_left(q, k, v, s), exact, "O = s (Q K^T) V.", turned);
    j.asks("random numbers, from the right")
        .same("O", from_the_right(q, k, v, s), exact,
              "Brackets may be moved: (Q K^T) V = Q (K^T V).", turned);
    const int allowed = m * d;
    const auto cheap = [&](const char* what, long enough, const auto& run) {
      j.asks(std::string(what) + " makes nothing of [N, M]");
      count_anew();
      (void)run();
      const Matrix made = largest_made();
      const long used = entries_used();
      j.holds(made.rows * made.columns <= allowed,
              std::string(what) + " makes a matrix of " + made.shape() +
                  " with N = 40, M = 50, D = 3. " +
                  "Nothing needs to be larger than [M, D] = [50, 3]: begin with K^T V, and in "
                  "backward "
                  "with Q^T dO.");
      j.asks(std::string(what) + " costs no N M D multiply-adds")
          .holds(used <= enough,
                 std::string(what) + " uses " + std::to_string(used) +
                     " entries of matrices with N = 40, M = 50, D = 3; " + std::to_string(enough) +
                     " are enough from the right. An entry of Q K^T, or of dO V^T, for each query "
                     "and key costs N M D, whether it is kept or not.");
    };
    cheap("from_the_right", n * m * d, [&] { return from_the_right(q, k, v, s); });
    const Matrix dout = random_matrix(n, d, 9);
    const auto usual = [](int which) {
      return [which](const Matrices& in, const Matrix& dy) {
        const double share = 1.0 / in[1].rows;
        const Matrix t = matmul(transpose(in[1]), in[2]), dt = matmul(transpose(in[0]), dy);
        const Matrix side = which == 2 ? transpose(dt) : dt;
        return Matrices{(which == 0 ? 1 : share) * matmul(dy, transpose(t)),
                        (which == 1 ? 1 : share) * matmul(in[2], transpose(side)),
                        (which == 1 ? 1 : share) * matmul(in[1], side)};
      };
    };
    j.asks("as differences say")
        .gradients(
            [](const Matrices& in) {
              return (1.0 / in[1].rows) * matmul(matmul(in[0], transpose(in[1])), in[2]);
            },
            [](const Matrices& in, const Matrix& dy) {
              const Gradients g = backward(in[0], in[1], in[2], 1.0 / in[1].rows, dy);
              return Matrices{g.dq, g.dk, g.dv};
            },
            {random_matrix(4, 3), random_matrix(5, 3, 2), random_matrix(5, 3, 5)},
            {"dq", "dk", "dv"}, "(2) dQ = dO T^T, dT = Q^T dO; (1) dK = s V dT^T, dV = s K dT.",
            {{usual(0), "dq lacks s, which is part of T."},
             {usual(1), "The gradients of (1) lack s: T = s K^T V."},
             {usual(2), "dT is transposed: it is Q^T dO, then dK = s V dT^T and dV = s K dT."}});
    cheap("backward", 3 * n * m * d, [&] { return backward(q, k, v, s, dout).dk; });
  });
}

// hint: dA = dC B^T and dB = A^T dC for C = A B. In (2) A is Q and B is T. In (1) A is K^T and B is
// hint: V, so d(K^T) = s dT V^T: transpose it to get dK.
