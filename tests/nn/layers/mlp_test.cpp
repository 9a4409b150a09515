// The MLP of a layer as one op, against the same composed of an op for each step.
#include "nn/layers/mlp.hpp"

#include <utility>
#include <vector>

#include "autograd/ops.hpp"
#include "tensor/gemm/precision.hpp"
#include "tests/support/both_ways.hpp"
#ifdef SKYTAPE_CUDA_SIMULATED
#include "tests/cuda_simulator/simulator.hpp"
#endif

using namespace skytape;
using namespace skytape::test;

namespace {

struct Sizes {
  std::int64_t B, N, E, F;
};

// The kernel has 128 tokens at a time and adds up to 512; it is compiled for E = 64 and F = 128.
// Simulated, forward has two blocks, which walk the tokens, and backward three in the longest case.
// The last is by the definition, with operands that CUDA keeps in bf16.
const Sizes kSizes[] = {{1, 1, 64, 128},  {3, 45, 64, 128}, {2, 550, 64, 128}, {1, 129, 32, 64},
                        {3, 50, 16, 128}, {2, 37, 64, 16},  {2, 516, 256, 264}};

/// Dropout of some rows of longer sequences, in the middle of a batch.
Dropout dropping(const Sizes& s, double rate, std::uint64_t key) {
  return {rate, {key, {}}, 5, s.N + 3};
}

/// x and the parameters, f64 on the CPU. A residual stream has entries of about 1, weights less.
std::vector<Tensor> inputs(const Sizes& s) {
  const auto entries = [](const Shape& shape, std::uint64_t seed, double low, double high) {
    return random_tensor(shape, DType::f64, Device::cpu, seed, low, high);
  };
  return {entries({s.B, s.N, s.E}, 1, -2, 2),
          entries({s.E}, 2, 0.5, 1.5),
          entries({s.E}, 3, -1, 1),
          entries({s.F, s.E}, 4, -0.3, 0.3),
          entries({s.F}, 5, -1, 1),
          entries({s.E, s.F}, 6, -0.3, 0.3),
          entries({s.E}, 7, -1, 1)};
}

/// v: x, the norm's parameters unless it is without a norm, and those of the products.
Var block(std::span<const Var> v, Way way, double factor, const Dropout& hidden,
          const Dropout& output) {
  const bool norms = v.size() == 7;
  const auto w = v.last(4);
  if (way == Way::fused) {
    return nn::mlp({v[0], norms ? v[1] : Var(), norms ? v[2] : Var(), w[0], w[1], w[2], w[3]},
                   factor, hidden, output);
  }
  const Var h = norms ? layer_norm(affine(v[0], factor), v[1], v[2]) : v[0];
  const Var u = dropout(gelu(composed_linear(way, h, w[0], Var()) + w[1]), hidden);
  return v[0] + dropout(composed_linear(way, u, w[2], w[3]), output);
}

}  // namespace

TEST_CASE("a fused MLP equals the one composed of an op for each step, at every precision") {
  for (const Sizes& s : kSizes) {
    for (const auto& [rate, factor] : {std::pair(0.0, 1.0), std::pair(0.3, 2.0)}) {
      CAPTURE(s.N);
      CAPTURE(s.E);
      CAPTURE(s.F);
      CAPTURE(rate);
      check_both_ways(inputs(s), 50, [&, rate = rate, factor = factor](const auto& v, Way way) {
        return block(v, way, factor, dropping(s, rate, 11), dropping(s, rate, 12));
      });
    }
  }
}

TEST_CASE("so does one without a norm, whose input is the residual's") {
  for (const Sizes& s : {kSizes[1], kSizes[std::size(kSizes) - 1]}) {
    CAPTURE(s.E);
    std::vector<Tensor> operands = inputs(s);
    operands.erase(operands.begin() + 1, operands.begin() + 3);
    check_both_ways(operands, 50, [&](const auto& v, Way way) {
      return block(v, way, 1, dropping(s, 0.3, 11), dropping(s, 0.3, 12));
    });
  }
}

TEST_CASE("a model's MLP is one op, where its norm comes first or last") {
  nn::ModelConfig config;
  config.vocabulary = 5;
  config.classes = 3;
  config.nominal_length = 8;
  for_each_device([&](Device device) {
    CHECK(records("mlp", device, config));
    nn::ModelConfig post = config;
    post.norm = nn::Norm::post;
    CHECK(records("mlp", device, post));
  });
}

#ifdef SKYTAPE_CUDA_SIMULATED
TEST_CASE("on CUDA an MLP is one kernel forward and two backward, and keeps 32 bytes a token") {
  using cuda_simulator::LaunchesOnly;
  constexpr std::int64_t kTokens = 65536, kE = 64, kF = 128;
  const PrecisionScope scope(Device::cuda, Precision::bf16);
  const LaunchesOnly only;
  const auto somewhere = [](const Shape& shape) {
    return Tensor::empty(shape, DType::f32, Device::cuda);
  };
  const Tensor x = somewhere({32, kTokens / 32, kE});
  const tensor::MlpWeights w{somewhere({kE}),     somewhere({kE}), 1,
                             somewhere({kF, kE}), somewhere({kF}), somewhere({kE, kF}),
                             somewhere({kE})};
  const tensor::MlpSaved saved = tensor::mlp(x, w, {}, {}).saved;
  CHECK(LaunchesOnly::all().size() == 1);
  CHECK(saved.metadata.bytes() == 32 * kTokens);
  (void)tensor::mlp_backward(x, w, {}, {}, saved, somewhere(x.shape()));
  CHECK(LaunchesOnly::all().size() == 3);  // the second adds the chunks' sums
}

TEST_CASE("on CUDA a wide MLP at bf16 keeps what its products read or give in two bytes a number") {
  const PrecisionScope scope(Device::cuda, Precision::bf16);
  const cuda_simulator::LaunchesOnly only;
  const auto somewhere = [](const Shape& shape) {
    return Tensor::empty(shape, DType::f32, Device::cuda);
  };
  const tensor::MlpWeights w{somewhere({256}),       somewhere({256}),  1,
                             somewhere({1024, 256}), somewhere({1024}), somewhere({256, 1024}),
                             somewhere({256})};
  const tensor::MlpSaved saved = tensor::mlp(somewhere({2, 512, 256}), w, {}, {}).saved;
  CHECK(saved.norm.y.bytes() == 2 * 1024 * 256);
  CHECK(saved.u.bytes() == 2 * 1024 * 1024);
  CHECK(saved.z.bytes() == 2 * 1024 * 1024);
}
#endif
