// The whole engine on one page: a tape, five operations, attention twice, training, the proof
//
// No header of ours is used here: this is all that a tape and an attention method need. Each part
// names the file where the real one lives. dy is dLoss/dy; N tokens of C kinds, E numbers each.
// It runs alone: g++ -std=c++20 -DDOCTEST_CONFIG_IMPLEMENT_WITH_MAIN tests/tour/00_whole.cpp, then
// SKYTAPE_TOUR=1 ./a.out
#include <doctest/doctest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <vector>

namespace {
// ---- numbers (tensor/core/tensor.hpp, tensor/gemm/gemm.hpp) -------------------------------------
struct Matrix {
  int rows, columns;
  std::vector<double> n = std::vector<double>(static_cast<std::size_t>(rows) * columns);
  double& operator()(int i, int j) { return n[static_cast<std::size_t>(i) * columns + j]; }
  double operator()(int i, int j) const { return n[static_cast<std::size_t>(i) * columns + j]; }
};

void accumulate(Matrix& to, const Matrix& x, double factor = 1) {
  for (std::size_t e = 0; e < to.n.size(); ++e) to.n[e] += factor * x.n[e];
}
Matrix transpose(const Matrix& a) {
  Matrix y{a.columns, a.rows};
  for (int e = 0; e < a.rows * a.columns; ++e) y(e % a.columns, e / a.columns) = a.n[e];
  return y;
}
Matrix product(const Matrix& a, const Matrix& b, double scale = 1) {
  Matrix y{a.rows, b.columns};
  for (int e = 0; e < a.rows * b.columns; ++e) {
    for (int k = 0; k < a.columns; ++k) y.n[e] += scale * a(e / b.columns, k) * b(k, e % b.columns);
  }
  return y;
}
Matrix softmax(Matrix x) {  // row by row (tensor/norm/softmax.kernel.cpp)
  for (int i = 0; i < x.rows; ++i) {
    double largest = x(i, 0), sum = 0;
    for (int j = 0; j < x.columns; ++j) largest = std::fmax(largest, x(i, j));
    for (int j = 0; j < x.columns; ++j) sum += x(i, j) = std::exp(x(i, j) - largest);
    for (int j = 0; j < x.columns; ++j) x(i, j) /= sum;
  }
  return x;
}

// ---- the tape (autograd/tape.hpp, autograd/tape.cpp) --------------------------------------------
// A node is a value, the earlier nodes that it was made of, and how its gradient becomes theirs.
using Matrices = std::vector<Matrix>;
using Backward = std::function<Matrices(const Matrix& dy)>;  // one for each input
struct Node {
  Matrix value, gradient;
  std::vector<int> inputs;
  Backward backward;
};
using Tape = std::vector<Node>;
int record(Tape& tape, const Matrix& value, std::vector<int> inputs = {}, Backward backward = {}) {
  tape.push_back({value, {value.rows, value.columns}, std::move(inputs), std::move(backward)});
  return static_cast<int>(tape.size()) - 1;  // the node's place
}
// From the loss, the last node, to the first: inputs stand before what uses them, so a gradient is
// complete when its node's turn comes. What was used twice receives two gradients: they add up.
void walk_back(Tape& tape) {
  tape.back().gradient(0, 0) = 1;
  for (auto node = tape.rbegin(); node != tape.rend(); ++node) {
    if (!node->backward) continue;  // a leaf
    const Matrices found = node->backward(node->gradient);
    std::size_t k = 0;
    for (const int input : node->inputs) accumulate(tape[input].gradient, found[k++]);
  }
}

// ---- five operations (autograd/ops_*.cpp): a value, and its derivative in a closure -------------
int matmul(Tape& tape, int a, int b) {
  const Matrix x = tape[a].value, w = tape[b].value;
  return record(tape, product(x, w), {a, b}, [=](const Matrix& dy) -> Matrices {
    return {product(dy, transpose(w)), product(transpose(x), dy)};
  });
}
int add(Tape& tape, int a, int b) {
  Matrix y = tape[a].value;
  accumulate(y, tape[b].value);
  return record(tape, y, {a, b}, [](const Matrix& dy) -> Matrices { return {dy, dy}; });
}
int tanh(Tape& tape, int a) {
  Matrix y = tape[a].value;
  for (double& x : y.n) x = std::tanh(x);
  return record(tape, y, {a}, [=](Matrix dy) -> Matrices {
    for (std::size_t e = 0; e < y.n.size(); ++e) dy.n[e] *= 1 - y.n[e] * y.n[e];
    return {dy};
  });
}
int mean_of_rows(Tape& tape, int a) {  // [N, E] -> [1, E]
  const int n = tape[a].value.rows;
  const Matrix share{1, n, std::vector<double>(n, 1.0 / n)};
  return record(tape, product(share, tape[a].value), {a},
                [=](const Matrix& dy) { return Matrices{product(transpose(share), dy)}; });
}
int cross_entropy(Tape& tape, int scores, int label) {  // [1, 2] -> the loss
  Matrix p = softmax(tape[scores].value);
  const Matrix loss{1, 1, {-std::log(p(0, label))}};
  p(0, label) -= 1;
  return record(tape, loss, {scores}, [=](const Matrix& dy) { return Matrices{product(dy, p)}; });
}

// ---- exact attention (attention/methods/softmax.cpp; in tiles: attention/tiled/) ----------------
// P = softmax(Q K^T / sqrt(E)), [N, N]   (1)      O = P V   (2)
int exact_attention(Tape& tape, int q_at, int k_at, int v_at) {
  const Matrix q = tape[q_at].value, k = tape[k_at].value, v = tape[v_at].value;
  const double scale = 1 / std::sqrt(q.columns);
  const Matrix p = softmax(product(q, transpose(k), scale));  // (1)
  const auto backward = [=](const Matrix& dout) -> Matrices {
    Matrix ds = product(dout, transpose(v));  // (2): dP
    for (int i = 0; i < p.rows; ++i) {        // (1): P (dP - sum of P dP)
      double sum = 0;
      for (int j = 0; j < p.columns; ++j) sum += p(i, j) * ds(i, j);
      for (int j = 0; j < p.columns; ++j) ds(i, j) = scale * p(i, j) * (ds(i, j) - sum);
    }
    return {product(ds, k), product(transpose(ds), q), product(transpose(p), dout)};
  };
  return record(tape, product(p, v), {q_at, k_at, v_at}, backward);  // (2)
}

// ---- linear attention (tests/tour/04_method.cpp; attention/methods/linear_attention.cpp) --------
// T = K^T V / N, [E, E] (1)  O = Q T (2): no [N, N] matrix is formed. The library's version applies
// elu + 1 and divides by row sums.
int linear_attention(Tape& tape, int q_at, int k_at, int v_at) {
  const Matrix q = tape[q_at].value, k = tape[k_at].value, v = tape[v_at].value;
  const double scale = 1.0 / k.rows;
  const Matrix t = product(transpose(k), v, scale);  // (1)
  const auto backward = [=](const Matrix& dout) -> Matrices {
    const Matrix dt = product(transpose(q), dout, scale);                             // (2)
    return {product(dout, transpose(t)), product(v, transpose(dt)), product(k, dt)};  // (2), (1)
  };
  return record(tape, product(q, t), {q_at, k_at, v_at}, backward);  // (2)
}

// ---- a model (nn/model.cpp) and a task of two lines (data/tasks/) -------------------------------
constexpr int kN = 8, kKinds = 4, kE = 6;
// Is there a token 3 among the eight? Returns the loss. The tape's first nodes are the parameters:
// 0: one row for each kind, [C, E]; 1 to 3: W_q, W_k, W_v, [E, E]; 4: [E, 2].
double forward(Tape& tape, const Matrices& w, auto attention, std::mt19937& random) {
  Matrix ids{kN, kKinds};  // one row a token, a one at its kind
  int label = 0;
  for (int i = 0, id; i < kN; ++i, label |= id == 3) {
    ids(i, id = random() % 12 == 0 ? 3 : static_cast<int>(random() % 3)) = 1;
  }
  for (const Matrix& parameter : w) record(tape, parameter);
  const int x = matmul(tape, record(tape, ids), 0);  // [N, E]
  const int out = attention(tape, matmul(tape, x, 1), matmul(tape, x, 2), matmul(tape, x, 3));
  const int mean = mean_of_rows(tape, tanh(tape, add(tape, x, out)));  // [1, E]
  return tape[cross_entropy(tape, matmul(tape, mean, 4), label)].value(0, 0);
}

// ---- training (train/step/trainer.cpp, nn/optimizer.cpp) and the proof (autograd/gradcheck.cpp) -
void train_and_check(const char* name, auto attention) {
  std::mt19937 random(5);
  Matrices w{{kKinds, kE}, {kE, kE}, {kE, kE}, {kE, kE}, {kE, 2}};
  for (Matrix& parameter : w) {
    for (double& x : parameter.n) x = std::ldexp(random(), -31) - 1;
  }
  double first = 0, last = 0;  // mean loss of 320 examples
  for (int example = 0; example < 4800; ++example) {
    Tape tape;
    const double loss = forward(tape, w, attention, random);
    (example < 320 ? first : last) += example < 320 || example >= 4480 ? loss / 320 : 0;
    walk_back(tape);  // and downhill
    for (std::size_t i = 0; i < w.size(); ++i) accumulate(w[i], tape[i].gradient, -0.05);
  }
  Tape tape;
  std::mt19937 same = random;  // each evaluation draws the same example
  CHECK(std::isfinite(forward(tape, w, attention, same)));
  walk_back(tape);
  double errors = 0;  // a number is moved by h and by -h, and the slope compared with the tape's
  for (std::size_t i = 0; i < w.size(); ++i) {
    for (std::size_t e = 0; e < w[i].n.size(); ++e) {
      double slope = 0;
      for (const double h : {1e-5, -1e-5}) {
        w[i].n[e] += h;
        Tape other;
        slope += forward(other, w, attention, same = random) / (2 * h);
        w[i].n[e] -= h;
      }
      errors += std::abs(tape[i].gradient.n[e] - slope);
    }
  }
  if (std::getenv("SKYTAPE_TOUR") != nullptr) {  // make tour sets it
    std::printf("%-6s attention: loss %.3f, later %.3f; gradients and differences agree to %.0e\n",
                name, first, last, errors);
  }
  CHECK(errors < 1e-8);
  CHECK(last < 0.3 * first);
}
}  // namespace

TEST_CASE("tour 0: two attentions learn a task, and their gradients are right") {
  train_and_check("exact", exact_attention);
  train_and_check("linear", linear_attention);
}
