// The tiled routine where methods of the registry do not go: N != M, other widths, the gradient of
// the log-sum-exp, threads.
#include "attention/tiled/tiled.hpp"

#include <omp.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "autograd/gradcheck.hpp"
#include "autograd/ops.hpp"
#include "tensor/core/storage.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tests/attention/methods_support.hpp"
#include "tests/support/doctest.hpp"

namespace skytape::test {
namespace {

using attention::Score;
using attention::tiled_backward;
using attention::tiled_forward;
using attention::TiledBackward;
using attention::TiledForward;
using attention::TiledOptions;

struct TiledProblem {
  Tensor q, k, v;  // [B, H, N, D], [B, H, M, D] twice
  Tensor mask;     // [B, M]
  Tensor dout;     // [B, H, N, D]
  Tensor dlse;     // [B, H, N]
};

Tensor numbers(const Shape& shape, std::uint64_t which) {
  return tensor::normal(shape, Random{which, {}}, DType::f64, Device::cpu);
}

TiledProblem make(std::int64_t batch, std::int64_t n, std::int64_t m, std::int64_t d) {
  TiledProblem p{numbers({batch, 2, n, d}, 1), numbers({batch, 2, m, d}, 2),
                 numbers({batch, 2, m, d}, 3), {},
                 numbers({batch, 2, n, d}, 4), numbers({batch, 2, n}, 5)};
  std::vector<double> mask;
  for (std::int64_t e = 0; e < batch * m; ++e) mask.push_back(e % 5 == 2 ? 0 : 1);
  p.mask = Tensor::from(mask, {batch, m}, DType::f64, Device::cpu);
  return p;
}

TiledOptions with(Score score, double scale, double rate = 0) {
  TiledOptions options{score, scale, {}};
  options.dropout.rate = rate;
  options.dropout.random.key = 11;
  return options;
}

/// exp(score) of every pair times dropout, normalised for softmax: [B, H, N, M].
Var weights(Var q, Var k, const TiledProblem& p, const TiledOptions& options) {
  const Shape row{p.mask.size(0), 1, 1, p.mask.size(1)};
  Var score = affine(matmul(q, k, Op::none, Op::transpose), options.scale);
  if (options.score == Score::gaussian) {
    score = score + affine(sum(square(q), 3, true), -0.5 * options.scale) +
            transpose(affine(sum(square(k), 3, true), -0.5 * options.scale));
  }
  score = score + q.tape().constant(tensor::unary(tensor::Unary::log, p.mask).reshape(row));
  const Var w = options.score == Score::softmax ? softmax(score) : exp(score);
  return w * q.tape().constant(attention::weight_dropout_factors(w.shape(), options.dropout,
                                                                 DType::f64, Device::cpu));
}

double relative(const Tensor& x, const Tensor& y) { return distance(x, y) / norm(y); }

}  // namespace

TEST_CASE("tiled attention equals the composition for any numbers of queries and keys") {
  struct Row {
    std::int64_t batch, n, m, d;
  };
  for (const Row& r : {Row{1, 1, 1, 1}, Row{2, 130, 257, 3}, Row{3, 5, 700, 16}, Row{1, 300, 2, 40},
                       Row{2, 128, 256, 33}, Row{1, 20, 70, 100}, Row{1, 9, 1100, 5}}) {
    for (const Score score : {Score::softmax, Score::gaussian}) {
      for (const auto& [rate, injected] : {std::pair(0.0, false), {0.25, false}, {0.4, true}}) {
        INFO("N ", r.n, ", M ", r.m, ", D ", r.d, ", rate ", rate);
        const TiledProblem p = make(r.batch, r.n, r.m, r.d);
        TiledOptions options = with(score, 0.3, rate);
        if (injected) {
          std::vector<double> keep;
          for (std::int64_t e = 0; e < r.batch * 2 * r.n * r.m; ++e) keep.push_back(e % 7 < 4);
          options.dropout.keep =
              Tensor::from(keep, {r.batch, 2, r.n, r.m}, DType::f64, Device::cpu);
        }
        Tape tape;
        const Var q = tape.input(p.q), k = tape.input(p.k), v = tape.input(p.v);
        const Var out = matmul(weights(q, k, p, options), v);
        const Tensor expected = out.value();  // the tape lets go of it in backward
        tape.backward(out, p.dout);
        const TiledForward forward = tiled_forward(p.q, p.k, p.v, p.mask, options);
        const TiledBackward g = tiled_backward(p.q, p.k, p.v, p.mask, options, forward, p.dout);
        CHECK(relative(forward.out, expected) < 1e-12);
        CHECK(relative(g.dv, tape.grad(v)) < 1e-12);
        if (r.m == 1 && score == Score::softmax) continue;  // one key: dq and dk are zero
        CHECK(relative(g.dq, tape.grad(q)) < 1e-11);
        CHECK(relative(g.dk, tape.grad(k)) < 1e-11);
      }
    }
  }
}

TEST_CASE("the log-sum-exp is an output with a separate gradient, with and without values") {
  const TiledProblem p = make(2, 37, 300, 6);
  const TiledOptions options = with(Score::softmax, 0.4);
  Tape tape;
  const Var q = tape.input(p.q), k = tape.input(p.k), v = tape.input(p.v);
  const Var bias = tape.constant(
      tensor::unary(tensor::Unary::log, p.mask).reshape({2, 1, 1, 300}));  // [B, 1, 1, M]
  const Var score = affine(matmul(q, k, Op::none, Op::transpose), 0.4) + bias;
  const Var lse = logsumexp(score);
  const Var value = sum_all(matmul(softmax(score), v) * tape.constant(p.dout)) +
                    sum_all(lse * tape.constant(p.dlse));
  const Tensor expected = lse.value();  // the tape lets go of it in backward
  tape.backward(value);
  const TiledForward forward = tiled_forward(p.q, p.k, p.v, p.mask, options);
  CHECK(relative(forward.lse, expected) < 1e-13);
  const TiledBackward both =
      tiled_backward(p.q, p.k, p.v, p.mask, options, forward, p.dout, p.dlse);
  CHECK(relative(both.dq, tape.grad(q)) < 1e-12);
  CHECK(relative(both.dk, tape.grad(k)) < 1e-12);
  CHECK(relative(both.dv, tape.grad(v)) < 1e-12);

  // Gradients are linear in (dout, dlse): the rest must be that of lse alone, values or not.
  const TiledBackward of_out = tiled_backward(p.q, p.k, p.v, p.mask, options, forward, p.dout);
  const TiledForward sums = tiled_forward(p.q, p.k, {}, p.mask, options);
  CHECK(!sums.out.defined());
  CHECK(distance(sums.lse, forward.lse) == 0);
  const TiledBackward of_lse = tiled_backward(p.q, p.k, {}, p.mask, options, sums, {}, p.dlse);
  CHECK(!of_lse.dv.defined());
  CHECK(relative(tensor::add(of_out.dq, of_lse.dq), both.dq) < 1e-12);
  CHECK(relative(tensor::add(of_out.dk, of_lse.dk), both.dk) < 1e-12);
  const TiledBackward with_values =
      tiled_backward(p.q, p.k, p.v, p.mask, options, forward, {}, p.dlse);
  CHECK(norm(with_values.dv) == 0);
  CHECK(distance(with_values.dq, of_lse.dq) == 0);
}

TEST_CASE("a sequence without real keys gives zeros and a log-sum-exp of -inf") {
  for (const Score score : {Score::softmax, Score::gaussian}) {
    TiledProblem p = make(1, 9, 300, 4);
    p.mask.fill(0);
    const TiledOptions options = with(score, 0.5, 0.1);
    const TiledForward forward = tiled_forward(p.q, p.k, p.v, p.mask, options);
    const TiledBackward g = tiled_backward(p.q, p.k, p.v, p.mask, options, forward, p.dout);
    for (const Tensor& t : {forward.out, g.dq, g.dk, g.dv}) CHECK(norm(t) == 0);
    if (score == Score::softmax) {
      constexpr double kLowest = -std::numeric_limits<double>::infinity();
      for (const double x : forward.lse.to_vector()) CHECK(x == kLowest);
    }
  }
}

TEST_CASE("softmax survives scores far outside the range of exp") {
  TiledProblem p = make(1, 40, 300, 4);
  const TiledOptions options = with(Score::softmax, 1e4);  // scores up to 1e5
  const TiledForward forward = tiled_forward(p.q.to(DType::f32), p.k.to(DType::f32),
                                             p.v.to(DType::f32), p.mask.to(DType::f32), options);
  CHECK(tensor::all_finite(forward.out));
  Tape tape(Tape::Mode::eval);
  const Var out =
      matmul(weights(tape.constant(p.q), tape.constant(p.k), p, options), tape.constant(p.v));
  CHECK(relative(forward.out.to(DType::f64), out.value()) < 0.05);  // f32 scores: +-0.01
}

TEST_CASE("tiled results are the same bits for every number of threads") {
  const int threads = omp_get_max_threads();
  for (const Score score : {Score::softmax, Score::gaussian}) {
    TiledProblem p = make(2, 300, 600, 8);
    for (Tensor* t : {&p.q, &p.k, &p.v, &p.mask, &p.dout}) *t = t->to(DType::f32);
    const TiledOptions options = with(score, 0.35, 0.1);
    std::vector<std::vector<double>> first;
    for (const int count : {1, 2, 5}) {
      omp_set_num_threads(count);
      const TiledForward forward = tiled_forward(p.q, p.k, p.v, p.mask, options);
      const TiledBackward g = tiled_backward(p.q, p.k, p.v, p.mask, options, forward, p.dout);
      const std::vector<std::vector<double>> now = {forward.out.to_vector(), g.dq.to_vector(),
                                                    g.dk.to_vector(), g.dv.to_vector()};
      if (first.empty()) first = now;
      for (std::size_t i = 0; i < now.size(); ++i) CHECK(now[i] == first[i]);
    }
    omp_set_num_threads(threads);
  }
}

TEST_CASE("memory of tiled attention grows linearly with the length") {
  const auto peak = [](std::int64_t n) {
    const TiledProblem p = make(1, n, n, 4);
    const TiledOptions options = with(Score::softmax, 0.5);
    reset_peak_bytes(Device::cpu);
    const TiledForward forward = tiled_forward(p.q, p.k, p.v, p.mask, options);
    (void)tiled_backward(p.q, p.k, p.v, p.mask, options, forward, p.dout);
    return memory_stats(Device::cpu).peak_bytes;
  };
  CHECK(static_cast<double>(peak(4096)) < 2.2 * static_cast<double>(peak(2048)));
}

TEST_CASE("tiled attention names what does not fit") {
  const TiledProblem p = make(1, 6, 7, 4);
  const TiledOptions options = with(Score::softmax, 1);
  CHECK_THROWS_WITH_AS((void)tiled_forward(p.q, p.k, p.q, p.mask, options),
                       doctest::Contains("tiled_forward: expected v of the shape of k"), Error);
  CHECK_THROWS_WITH_AS((void)tiled_forward(p.q, p.k, p.v, p.q, options),
                       doctest::Contains("expected mask [B, M]"), Error);
  CHECK_THROWS_WITH_AS((void)tiled_forward(p.q, p.k, {}, p.mask, with(Score::gaussian, 1)),
                       doctest::Contains("only softmax may do without v"), Error);
  TiledOptions masked = options;
  masked.mask_queries = true;
  CHECK_THROWS_WITH_AS((void)tiled_forward(p.q, p.k, p.v, p.mask, masked),
                       doctest::Contains("a mask of queries needs as many of them as keys"), Error);
  TiledOptions shorter = with(Score::softmax, 1, 0.1);
  shorter.dropout.nominal_length = 5;
  CHECK_THROWS_WITH_AS((void)tiled_forward(p.q, p.k, p.v, p.mask, shorter),
                       doctest::Contains("nominal_length 5 is shorter"), Error);
  TiledOptions kept = with(Score::softmax, 1, 0.1);
  kept.dropout.keep = numbers({1, 2, 6, 6}, 1);
  CHECK_THROWS_WITH_AS((void)tiled_forward(p.q, p.k, p.v, p.mask, kept),
                       doctest::Contains("expected keep [B, H, N, M]"), Error);
  CHECK_THROWS_WITH_AS((void)tiled_forward(p.q, p.k, p.v.to(DType::f32), p.mask, options),
                       doctest::Contains("tiled_forward: "), Error);
}

}  // namespace skytape::test
