// Tiled attention on tensor cores: tf32 and bf16 lose no more than rounded operands must; dropout's
// decisions that a GPU keeps are those that it draws.
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "attention/tiled/tiled.hpp"
#include "tensor/core/device.hpp"
#include "tensor/core/on_device.hpp"
#include "tensor/gemm/precision.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tests/support/close.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/doctest.hpp"
#include "tests/support/rounding.hpp"
#ifdef SKYTAPE_CUDA_SIMULATED
#include "tests/cuda_simulator/simulator.hpp"
#endif

using namespace skytape;
using namespace skytape::attention;
using test::Rounding;
using test::to_bits;

namespace {

using Numbers = std::vector<double>;
Rounding operands_of(Precision precision) { return to_bits(precision == Precision::tf32 ? 11 : 8); }

/// The cuda device computes at a precision for as long as this lives.
struct AtPrecision {
  explicit AtPrecision(Precision precision) { set_precision(Device::cuda, precision); }
  ~AtPrecision() { set_precision(Device::cuda, Precision::fp32); }
  AtPrecision(const AtPrecision&) = delete;
  AtPrecision& operator=(const AtPrecision&) = delete;
};

constexpr std::int64_t B = 2, H = 2, N = 70, M = 150;

struct Problem {
  std::int64_t D;
  TiledOptions options;
  Tensor q, k, v, mask, dout;  // f32 on the CPU

  Problem(std::int64_t width, Score score, double rate, double scale) : D(width) {
    options.score = score;
    options.scale = scale;
    options.dropout.rate = rate;
    options.dropout.random = Random{7, {}};
    options.dropout.nominal_length = 300;  // a chunk more than the keys have
    options.dropout.first_example = 3;
    const auto draw = [](const Shape& shape, std::uint64_t seed) {
      return test::random_tensor(shape, DType::f32, Device::cpu, seed);
    };
    q = draw({B, H, N, D}, 1);
    k = draw({B, H, M, D}, 2);
    v = draw({B, H, M, D}, 3);
    dout = draw({B, H, N, D}, 4);
    Numbers real(B * M);  // holes everywhere, the whole first tile of the second example
    for (std::int64_t e = 0; e < B * M; ++e) real[e] = e % 7 == 3 || (e >= M && e < M + 70) ? 0 : 1;
    mask = Tensor::from(real, {B, M}, DType::f32, Device::cpu);
  }
};

struct Results {
  Numbers out, dq, dk, dv;
};

/// The equations of tiled.hpp and tiled.cpp in f64, operands of matrix products rounded first.
Results compose(const Problem& p, const Rounding& rounded) {
  const Numbers q = p.q.to_vector(), k = p.k.to_vector(), v = p.v.to_vector();
  const Numbers mask = p.mask.to_vector(), dout = p.dout.to_vector();
  const DType dtype = p.options.dropout.keep.defined() ? DType::f32 : DType::f64;
  const Numbers keep =
      weight_dropout_factors({B, H, N, M}, p.options.dropout, dtype, Device::cpu).to_vector();
  const bool softmax = p.options.score == Score::softmax;
  const std::int64_t D = p.D;
  const double scale = p.options.scale;
  const auto dot = [D](const double* x, const double* y, const Rounding& f) {
    double sum = 0;
    for (std::int64_t c = 0; c < D; ++c) sum += f(x[c]) * f(y[c]);
    return sum;
  };
  const Rounding exact = [](double x) { return x; };
  Results r{Numbers(q.size()), Numbers(q.size()), Numbers(k.size()), Numbers(k.size())};
  Numbers delta(B * H * N);
  for (std::int64_t row = 0; row < B * H * N; ++row) {
    const std::int64_t bh = row / N, b = bh / H;
    const double* const qi = &q[row * D];
    const double* const gi = &dout[row * D];
    Numbers w(M), u(M);
    double sum = 0;
    for (std::int64_t j = 0; j < M; ++j) {
      const double* const kj = &k[(bh * M + j) * D];
      double score = scale * dot(qi, kj, rounded);
      if (!softmax) score -= 0.5 * scale * (dot(qi, qi, exact) + dot(kj, kj, exact));
      w[j] = mask[b * M + j] * std::exp(score);
      sum += w[j];
      u[j] = keep[row * M + j] * dot(gi, &v[(bh * M + j) * D], rounded);
    }
    for (double& x : w) x /= softmax ? sum : 1;
    for (std::int64_t j = 0; j < M; ++j) {
      const double weight = rounded(w[j] * keep[row * M + j]);
      for (std::int64_t c = 0; c < D; ++c) {
        r.out[row * D + c] += weight * rounded(v[(bh * M + j) * D + c]);
        r.dv[(bh * M + j) * D + c] += weight * rounded(gi[c]);
      }
    }
    delta[row] = dot(gi, &r.out[row * D], exact);
    for (std::int64_t j = 0; j < M; ++j) {
      const double dscore = rounded(w[j] * (u[j] - (softmax ? delta[row] : 0)));
      for (std::int64_t c = 0; c < D; ++c) {
        r.dq[row * D + c] += scale * dscore * rounded(k[(bh * M + j) * D + c]);
        r.dk[(bh * M + j) * D + c] += scale * dscore * rounded(qi[c]);
      }
    }
  }
  if (!softmax) {  // the row and column terms depend on q and k too
    for (std::int64_t e = 0; e < B * H * N * D; ++e) r.dq[e] -= scale * q[e] * delta[e / D];
    for (std::int64_t e = 0; e < B * H * M * D; ++e) {
      const std::int64_t at = e / D * D;
      r.dk[e] -= scale * k[e] * dot(&v[at], &r.dv[at], exact);
    }
  }
  return r;
}

Results on_cuda(const Problem& p, Precision precision) {
  const AtPrecision at(precision);
  const auto move = [](const Tensor& x) { return x.to(Device::cuda); };
  const Tensor q = move(p.q), k = move(p.k), v = move(p.v), mask = move(p.mask);
  TiledOptions options = p.options;
  for (Tensor* const t : {&options.dropout.keep, &options.dropout.random.step}) {
    if (t->defined()) *t = move(*t);
  }
  const TiledForward y = tiled_forward(q, k, v, mask, options);
  const TiledBackward g = tiled_backward(q, k, v, mask, options, y, move(p.dout));
  return {y.out.to_vector(), g.dq.to_vector(), g.dk.to_vector(), g.dv.to_vector()};
}

void check_rule(const char* what, const Numbers& got, const Numbers& plain, const Numbers& exact) {
  CAPTURE(what);
  const double allowed = 3 * test::relative_error(plain, exact) + 1e-5;
  CHECK(test::relative_error(got, exact) <= allowed);
}

/// Tensor cores lose at most three times what rounded operands lose.
void check_results(const Problem& p, Precision precision) {
  const Results exact = compose(p, [](double x) { return x; });
  const Results plain = compose(p, operands_of(precision));
  const Results got = on_cuda(p, precision);
  check_rule("out", got.out, plain.out, exact.out);
  check_rule("dq", got.dq, plain.dq, exact.dq);
  check_rule("dk", got.dk, plain.dk, exact.dk);
  check_rule("dv", got.dv, plain.dv, exact.dv);
}

/// Scores that rise or fall from one range of keys to the next, by up to 200.
Problem late_scores(std::int64_t width, double rate) {
  const auto score_of = [](std::int64_t j) {  // of a query of one; exact in bf16
    const std::int64_t steps[] = {0, 20, 60, 61, 200};
    return static_cast<double>(steps[j / 32] + j % 3);
  };
  Problem p(width, Score::softmax, rate, 1);
  Numbers q(B * H * N * width), k(B * H * M * width);
  for (std::int64_t row = 0; row < B * H * N; ++row) {  // some rows rise, others fall
    q[row * width] = row % 2 == 0 ? 1 : row % 3 == 0 ? -1 : 0.5;
  }
  for (std::int64_t row = 0; row < B * H * M; ++row) k[row * width] = score_of(row % M);
  p.q = Tensor::from(q, {B, H, N, width}, DType::f32, Device::cpu);
  p.k = Tensor::from(k, {B, H, M, width}, DType::f32, Device::cpu);
  return p;
}

}  // namespace

TEST_CASE("tensor cores lose at most three times what rounded operands lose") {
  if (!test::cuda_or_skip()) return;
  for (const Precision precision : {Precision::tf32, Precision::bf16}) {
    for (const Score score : {Score::softmax, Score::gaussian}) {
      for (const std::int64_t width : {20, 32, 64}) {
        for (const double rate : {0.0, 0.3}) {
          CAPTURE(static_cast<int>(precision));
          CAPTURE(static_cast<int>(score));
          CAPTURE(width);
          CAPTURE(rate);
          Problem p(width, score, rate, 1 / std::sqrt(static_cast<double>(width)));
          p.options.dropout.random.step = Tensor::full({1}, 5, DType::i32, Device::cpu);
          check_results(p, precision);
        }
      }
    }
  }
}

TEST_CASE("tensor cores drop the weights that a caller drops") {
  if (!test::cuda_or_skip()) return;
  for (const Precision precision : {Precision::tf32, Precision::bf16}) {
    Problem p(20, Score::softmax, 0.4, 0.2);
    Numbers keep(B * H * N * M);
    for (std::size_t e = 0; e < keep.size(); ++e) keep[e] = e % 11 < 7 ? 1 : 0;
    p.options.dropout.keep = Tensor::from(keep, {B, H, N, M}, DType::f32, Device::cpu);
    check_results(p, precision);
  }
}

TEST_CASE("tensor cores take a scale of zero and a negative one as any other") {
  if (!test::cuda_or_skip()) return;
  for (const Precision precision : {Precision::tf32, Precision::bf16}) {
    for (const Score score : {Score::softmax, Score::gaussian}) {
      for (const double rate : {0.0, 0.3}) {
        for (const double scale : {0.1, 0.0, -0.1}) {
          CAPTURE(static_cast<int>(precision));
          CAPTURE(static_cast<int>(score));
          CAPTURE(rate);
          CAPTURE(scale);
          const Problem p(20, score, rate, scale);
          check_results(p, precision);
          const auto f64 = [](const Tensor& x) { return x.to(DType::f64); };
          const Tensor q = f64(p.q), k = f64(p.k), v = f64(p.v), mask = f64(p.mask);
          const TiledForward y = tiled_forward(q, k, v, mask, p.options);
          const TiledBackward g = tiled_backward(q, k, v, mask, p.options, y, f64(p.dout));
          const Results exact = compose(p, [](double x) { return x; });
          CHECK(test::relative_error(y.out.to_vector(), exact.out) < 1e-11);
          CHECK(test::relative_error(g.dq.to_vector(), exact.dq) < 1e-11);
          CHECK(test::relative_error(g.dk.to_vector(), exact.dk) < 1e-11);
        }
      }
    }
  }
}

TEST_CASE("on tensor cores a row's largest scores may come late, and be far above the first ones") {
  if (!test::cuda_or_skip()) return;
  for (const Precision precision : {Precision::tf32, Precision::bf16}) {
    for (const std::int64_t width : {32, 64}) {
      for (const double rate : {0.0, 0.3}) {
        CAPTURE(static_cast<int>(precision));
        CAPTURE(width);
        CAPTURE(rate);
        check_results(late_scores(width, rate), precision);
      }
    }
  }
}

#ifdef SKYTAPE_CUDA_SIMULATED
TEST_CASE("on compute capability 9.0 four warps together lose no more for heads of 64") {
  if (!test::cuda_or_skip()) return;
  const cuda_simulator::ComputeCapability sm_90(9);
  for (const double rate : {0.0, 0.3}) {
    CAPTURE(rate);
    for (const Score score : {Score::softmax, Score::gaussian}) {
      for (const std::int64_t width : {40, 64}) {
        CAPTURE(static_cast<int>(score));
        CAPTURE(width);
        const double scale = 1 / std::sqrt(static_cast<double>(width));
        check_results(Problem(width, score, rate, scale), Precision::bf16);
      }
    }
    check_results(late_scores(64, rate), Precision::bf16);
  }
}

TEST_CASE(
    "compute capability 9.0 has other kernels for heads of 64 in bf16 than 8.0, and for these "
    "alone") {
  if (!test::cuda_or_skip()) return;
  const auto blocks = [](std::int64_t width, Precision precision, int capability) {
    const cuda_simulator::ComputeCapability sm(capability);
    const cuda_simulator::LaunchesOnly launches;
    (void)on_cuda(Problem(width, Score::softmax, 0, 0.1), precision);
    std::vector<std::uint64_t> all;
    for (const auto& launch : launches.all()) all.push_back(launch.blocks);
    return all;
  };
  CHECK(blocks(64, Precision::bf16, 9) != blocks(64, Precision::bf16, 8));
  CHECK(blocks(64, Precision::tf32, 9) == blocks(64, Precision::tf32, 8));
  CHECK(blocks(32, Precision::bf16, 9) == blocks(32, Precision::bf16, 8));
}
#endif

TEST_CASE("tensor cores give a token a Gaussian weight of one to itself") {
  if (!test::cuda_or_skip()) return;
  const AtPrecision at(Precision::bf16);
  const Tensor q = tensor::affine(test::random_tensor({1, 1, 5, 32}, DType::f32, Device::cuda), 6);
  const Tensor v = test::random_tensor({1, 1, 5, 32}, DType::f32, Device::cuda, 2);
  const Tensor mask = Tensor::full({1, 5}, 1, DType::f32, Device::cuda);
  TiledOptions options;
  options.score = Score::gaussian;
  options.scale = 1;
  const Tensor out = tiled_forward(q, q, v, mask, options).out;  // the others are far: out = v
  CHECK(test::relative_error(out.to_vector(), v.to_vector()) < 5e-3);
}

TEST_CASE("heads up to 64 wide use tensor cores when asked, wider ones stay in fp32") {
  if (!test::cuda_or_skip()) return;
  for (const std::int64_t width : {64, 65}) {
    const Problem p(width, Score::softmax, 0, 0.1);
    const Results exact = compose(p, [](double x) { return x; });
    const Results fp32 = on_cuda(p, Precision::fp32), bf16 = on_cuda(p, Precision::bf16);
    CHECK(test::relative_error(fp32.out, exact.out) < 1e-5);
    if (width > 64) {
      CHECK(bf16.out == fp32.out);
      CHECK(bf16.dk == fp32.dk);
    } else {
      CHECK(test::relative_error(bf16.out, exact.out) > 1e-4);
    }
  }
}

TEST_CASE("on tensor cores a row without keys is zero, and v may be missing") {
  if (!test::cuda_or_skip()) return;
  for (const Precision precision : {Precision::tf32, Precision::bf16}) {
    Problem p(32, Score::softmax, 0.2, 0.2);
    Numbers real(B * M, 1);
    for (std::int64_t j = 0; j < M; ++j) real[j] = 0;  // the first example is padding
    p.mask = Tensor::from(real, {B, M}, DType::f32, Device::cpu);
    const Results got = on_cuda(p, precision);
    for (const Numbers* x : {&got.out, &got.dq}) {
      for (std::int64_t e = 0; e < H * N * p.D; ++e) REQUIRE((*x)[e] == 0);
    }
    for (const Numbers* x : {&got.dk, &got.dv}) {
      for (std::int64_t e = 0; e < H * M * p.D; ++e) REQUIRE((*x)[e] == 0);
    }
    const AtPrecision at(precision);
    const Tensor q = p.q.to(Device::cuda), k = p.k.to(Device::cuda), mask = p.mask.to(Device::cuda);
    const Numbers with = tiled_forward(q, k, p.v.to(Device::cuda), mask, p.options).lse.to_vector();
    const TiledForward without = tiled_forward(q, k, {}, mask, p.options);
    CHECK(without.lse.to_vector() == with);
    CHECK(with[0] == -std::numeric_limits<double>::infinity());
    const Tensor dlse = test::random_tensor({B, H, N}, DType::f32, Device::cuda, 5);
    const TiledBackward g = tiled_backward(q, k, {}, mask, p.options, without, {}, dlse);
    // The log-sum-exp has a gradient of its own.
    const auto f64 = [](const Tensor& x) { return x.to(DType::f64); };
    const TiledForward sums = tiled_forward(f64(p.q), f64(p.k), {}, f64(p.mask), p.options);
    const TiledBackward exact = tiled_backward(f64(p.q), f64(p.k), {}, f64(p.mask), p.options, sums,
                                               {}, f64(dlse.to(Device::cpu)));
    const double allowed = precision == Precision::tf32 ? 0x1p-9 : 0x1p-6;
    CHECK(test::relative_error(g.dq.to(Device::cpu), exact.dq) <= allowed);
    CHECK(test::relative_error(g.dk.to(Device::cpu), exact.dk) <= allowed);
  }
}

TEST_CASE("masked queries are those that the mask was multiplied into") {
  if (!test::cuda_or_skip()) return;
  const auto draw = [](std::uint64_t seed) {
    return test::random_tensor({B, H, M, 32}, DType::f32, Device::cuda, seed);
  };
  const Tensor q = draw(1), k = draw(2), v = draw(3), dout = draw(4);
  Problem p(32, Score::gaussian, 0.3, 0.2);
  const Tensor mask = p.mask.to(Device::cuda);
  for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16}) {
    const AtPrecision at(precision);
    const auto results = [&](const Tensor& queries) {
      const TiledForward y = tiled_forward(queries, k, v, mask, p.options);
      const TiledBackward g = tiled_backward(queries, k, v, mask, p.options, y, dout);
      return std::vector<Tensor>{y.out, g.dk, g.dv, g.dq};
    };
    p.options.mask_queries = false;
    std::vector<Tensor> expected = results(tensor::mask_rows(q, mask));
    expected[3] = tensor::mask_rows(expected[3], mask);
    p.options.mask_queries = true;
    const std::vector<Tensor> got = results(q);
    for (std::size_t i = 0; i < got.size(); ++i) {
      CAPTURE(i);
      CHECK(got[i].to_vector() == expected[i].to_vector());
    }
  }
}

TEST_CASE("backward reads the decisions that forward kept, and they are those that are drawn") {
  if (!test::cuda_or_skip()) return;
  for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16}) {
    for (const Score score : {Score::softmax, Score::gaussian}) {
      for (const std::int64_t width : {20, 64, 100}) {
        CAPTURE(static_cast<int>(precision));
        CAPTURE(static_cast<int>(score));
        CAPTURE(width);
        const AtPrecision at(precision);
        const Problem p(width, score, 0.3, 1 / std::sqrt(static_cast<double>(width)));
        const auto move = [](const Tensor& x) { return x.to(Device::cuda); };
        const Tensor q = move(p.q), k = move(p.k), v = move(p.v), mask = move(p.mask);
        const TiledForward saved = tiled_forward(q, k, v, mask, p.options);
        REQUIRE(saved.kept.shape() == Shape({B, H, 2, 128, 4}));
        const auto gradients = [&](const Tensor& kept) {
          const TiledBackward g =
              tiled_backward(q, k, v, mask, p.options, {saved.out, saved.lse, kept}, move(p.dout));
          return std::vector<Numbers>{g.dq.to_vector(), g.dk.to_vector(), g.dv.to_vector()};
        };
        const std::vector<Numbers> kept = gradients(saved.kept), drawn = gradients({});
        CHECK(kept == drawn);
        const Tensor none = Tensor::zeros(saved.kept.shape(), DType::i32, Device::cuda);
        const std::vector<Numbers> without = gradients(none);
        for (const double x : without[2]) REQUIRE(x == 0);  // dv: every weight is dropped
      }
    }
  }
}

TEST_CASE(
    "decisions are kept in training alone, where they take no more memory than q, k, v and out") {
  if (!test::cuda_or_skip()) return;
  const auto keeps = [](std::int64_t n, std::int64_t width, const WeightDropout& dropout) {
    const Shape shape{1, 1, n, width};
    const Tensor x = test::random_tensor(shape, DType::f32, Device::cuda);
    const Tensor mask = Tensor::full({1, n}, 1, DType::f32, Device::cuda);
    const TiledOptions options{Score::softmax, 1, dropout};
    const TiledForward saved = tiled_forward(x, x, x, mask, options);
    CHECK(!tiled_forward(x, x, {}, mask, options).kept.defined());
    return saved.kept.defined();
  };
  const WeightDropout drawn{0.25, Random{7, {}}, 0, 0, {}};
  CHECK(keeps(256, 2, drawn));  // N = M = 128 D
  CHECK(!keeps(257, 2, drawn));
  CHECK(!keeps(256, 2, {}));  // without dropout
  const Tensor given = Tensor::full({1, 1, 256, 256}, 1, DType::f32, Device::cuda);
  CHECK(!keeps(256, 2, {0.25, {}, 0, 0, given}));
}

TEST_CASE("queries get the gradients of all ranges of keys, of which a block has one") {
  if (!test::cuda_or_skip()) return;
  struct Row {
    Score score;
    std::int64_t batch, n, m, d;
  };
  // In f64 a tile has 64 keys: a tile a range; two, and one in the last; three in a single range;
  // none.
  for (const Row& r : {Row{Score::softmax, 1, 70, 300, 20}, Row{Score::gaussian, 1, 70, 300, 20},
                       Row{Score::softmax, 1, 5, 2112, 8}, Row{Score::gaussian, 128, 3, 130, 8},
                       Row{Score::softmax, 1, 5, 0, 8}}) {
    CAPTURE(r.m);
    const auto draw = [&](std::int64_t rows, std::uint64_t seed) {
      return test::random_tensor({r.batch, 2, rows, r.d}, DType::f64, Device::cpu, seed);
    };
    const Tensor q = draw(r.n, 1), k = draw(r.m, 2), v = draw(r.m, 3), dout = draw(r.n, 4);
    Numbers real(r.batch * r.m);
    for (std::size_t e = 0; e < real.size(); ++e) real[e] = e % 7 == 3 ? 0 : 1;
    const Tensor mask = Tensor::from(real, {r.batch, r.m}, DType::f64, Device::cpu);
    const TiledOptions options{r.score, 0.3, {0.25, Random{7, {}}, 0, 0, {}}};
    const auto gradients = [&](Device device, DType dtype) {
      const auto move = [&](const Tensor& x) { return x.to(dtype).to(device); };
      const TiledForward y = tiled_forward(move(q), move(k), move(v), move(mask), options);
      const TiledBackward g =
          tiled_backward(move(q), move(k), move(v), move(mask), options, y, move(dout));
      return std::vector<Numbers>{g.dq.to_vector(), g.dk.to_vector(), g.dv.to_vector()};
    };
    const std::vector<Numbers> expected = gradients(Device::cpu, DType::f64);
    const std::vector<Numbers> exact = gradients(Device::cuda, DType::f64);
    const std::vector<Numbers> single = gradients(Device::cuda, DType::f32);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      CAPTURE(i);
      CHECK(test::relative_error(exact[i], expected[i]) < 1e-11);
      CHECK(test::relative_error(single[i], expected[i]) < 1e-4);
    }
  }
}
