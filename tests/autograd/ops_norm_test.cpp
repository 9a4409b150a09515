// Layer norm with the operations beside or behind it as one op, against the same composed of an op
// for each step.

#include "autograd/ops.hpp"
#include "tensor/norm/layer_norm.hpp"
#include "tensor/norm/norm_pool.hpp"
#include "tests/support/both_ways.hpp"
#ifdef SKYTAPE_CUDA_SIMULATED
#include "tests/cuda_simulator/simulator.hpp"
#endif

using namespace skytape;
using namespace skytape::test;

namespace {

using tensor::TokenWeights;
using Kind = TokenWeights::Kind;

struct Sizes {
  std::int64_t B, N, E;
};

// Rows of every width that a kernel is compiled for, with lanes that are not full, and wider ones;
// more than one chunk of 32 rows backward and of 256 tokens forward.
const Sizes kSizes[] = {{1, 1, 1},   {3, 5, 64},   {2, 300, 64}, {2, 257, 30},
                        {2, 70, 7},  {3, 21, 98},  {1, 40, 256}, {1, 3, 300},
                        {2, 9, 700}, {1, 40, 768}, {1, 5, 1024}, {1, 3, 1025}};

std::vector<Tensor> inputs(const Sizes& s) {
  const auto entries = [](const Shape& shape, std::uint64_t seed, double low, double high) {
    return random_tensor(shape, DType::f64, Device::cpu, seed, low, high);
  };
  return {entries({s.B, s.N, s.E}, 1, -2, 2), entries({s.E}, 2, 0.5, 1.5),
          entries({s.E}, 3, -1, 1)};
}

/// Returns a mask [B, N]: the first sequence is whole, each other one half as long as the one
/// before, the last of several is padding alone.
Tensor mask_of(const Sizes& s) {
  std::vector<double> mask;
  for (std::int64_t b = 0; b < s.B; ++b) {
    const std::int64_t real = b > 0 && b + 1 == s.B ? 0 : s.N >> b;
    for (std::int64_t n = 0; n < s.N; ++n) mask.push_back(n < real ? 1 : 0);
  }
  return Tensor::from(mask, {s.B, s.N}, DType::f64, Device::cpu);
}

/// As nn::Pool has it.
Var composed_pool(const std::vector<Var>& v, const Tensor& mask, const TokenWeights& rule) {
  const Var y = mask_rows(layer_norm(v[0], v[1], v[2]), mask);
  if (rule.kind == Kind::nominal) return affine(sum(y, 1), 1 / rule.divisor);
  if (rule.kind == Kind::first) {
    return reshape(narrow(y, 1, 0, 1), {y.size(0), y.size(2)});
  }
  const Var count = sum(v[0].tape().constant(mask), 1, true);  // [B, 1]
  return sum(y, 1) / affine(relu(affine(count, 1, -1)), 1, 1);
}

Var beside(const std::vector<Var>& v, Way way, int readers) {
  const NormBeside n = way == Way::fused
                           ? layer_norm_beside(v[0], v[1], v[2], readers)
                           : NormBeside{v[0], std::vector<Var>(2, layer_norm(v[0], v[1], v[2]))};
  const Var one = n.x * n.x + affine(n.y[0], 3);
  return readers == 1 ? one : one + n.y[1] * n.y[1];
}

}  // namespace

TEST_CASE(
    "tokens pooled with the norm before are those of norm, mask and pool, at every precision") {
  for (const Sizes& s : kSizes) {
    for (const TokenWeights& rule :
         {TokenWeights{Kind::nominal, 37}, TokenWeights{Kind::mean}, TokenWeights{Kind::first}}) {
      CAPTURE(s.N);
      CAPTURE(s.E);
      CAPTURE(static_cast<int>(rule.kind));
      check_both_ways(inputs(s), 50, [&](const std::vector<Var>& v, Way way) {
        const Tensor mask = mask_of(s).to(v[0].value().dtype()).to(v[0].value().device());
        return way == Way::fused ? norm_pool(v[0], v[1], v[2], mask, rule)
                                 : composed_pool(v, mask, rule);
      });
    }
  }
}

TEST_CASE("a norm beside a residual connection is the norm alone, with one reader and with two") {
  for (const Sizes& s : kSizes) {
    for (const int readers : {1, 2}) {
      CAPTURE(s.N);
      CAPTURE(s.E);
      CAPTURE(readers);
      check_both_ways(inputs(s), 50,
                      [&](const std::vector<Var>& v, Way way) { return beside(v, way, readers); });
    }
  }
}

TEST_CASE("readers of a norm, or of what stands beside it, may be missing") {
  for_each_device([](Device device) {
    const auto dx = [&](bool reads_x, bool first, bool second) {
      Tape tape;
      std::vector<Var> v;
      for (const Tensor& t : inputs({2, 3, 5})) v.push_back(tape.input(t.to(device)));
      const NormBeside n = layer_norm_beside(v[0], v[1], v[2], 2);
      Var y = affine(v[0], 0);
      if (reads_x) y = y + n.x;
      if (first) y = y + n.y[0];
      if (second) y = y + n.y[1];
      tape.backward(y, random_tensor(y.shape(), DType::f64, device, 8));
      return tape.grad(v[0]).to_vector();
    };
    const auto x = dx(true, false, false), one = dx(false, true, false);
    CHECK(one == dx(false, false, true));
    const auto all = dx(true, false, true);
    for (std::size_t i = 0; i < all.size(); ++i) {
      CHECK(all[i] == doctest::Approx(x[i] + one[i]).epsilon(1e-12));
    }
    CHECK(x != one);
  });
}

TEST_CASE("a model pools with its norm in one op by three of the poolings, and by no other") {
  nn::ModelConfig config;
  config.vocabulary = 5;
  config.classes = 3;
  config.nominal_length = 8;
  for_each_device([&](Device device) {
    for (const nn::Pooling pooling : {nn::Pooling::nominal, nn::Pooling::mean, nn::Pooling::first,
                                      nn::Pooling::max, nn::Pooling::attention}) {
      CAPTURE(static_cast<int>(pooling));
      config.pooling = pooling;
      config.norm = nn::Norm::pre;
      const bool sums = pooling != nn::Pooling::max && pooling != nn::Pooling::attention;
      CHECK(records("norm_pool", device, config) == sums);
      CHECK(records("layer_norm_beside", device, config));
      nn::ModelConfig of_bert = config;
      of_bert.norm_epsilon = 1e-3;  // the op has that of its kernels
      CHECK_FALSE(records("norm_pool", device, of_bert));
      config.norm = nn::Norm::post;
      CHECK_FALSE(records("norm_pool", device, config));
    }
  });
}

#ifdef SKYTAPE_CUDA_SIMULATED
TEST_CASE("on CUDA a pooled norm is two kernels forward and one backward, a norm's backward two") {
  using cuda_simulator::LaunchesOnly;
  constexpr std::int64_t kB = 32, kN = 2048, kE = 64;
  const LaunchesOnly only;
  const auto somewhere = [](const Shape& shape) {
    return Tensor::empty(shape, DType::f32, Device::cuda);
  };
  const Tensor x = somewhere({kB, kN, kE}), e = somewhere({kE}), mask = somewhere({kB, kN});
  const tensor::NormPool f = tensor::norm_pool(x, e, e, mask, {Kind::nominal, kN});
  CHECK(LaunchesOnly::all().size() == 2);  // the second adds chunks of tokens
  (void)tensor::norm_pool_backward(x, e, mask, {Kind::nominal, kN}, f, somewhere({kB, kE}));
  CHECK(LaunchesOnly::all().size() == 3);

  const Tensor of_row = somewhere({kB, kN});
  (void)tensor::layer_norm_backward(x, e, of_row, of_row, x, somewhere(x.shape()),
                                    somewhere(x.shape()));
  CHECK(LaunchesOnly::all().size() == 5);  // with the other gradients added
}
#endif
