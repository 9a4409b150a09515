// Heads side by side, projected and added to the residual as one op, against the same composed of
// an op for each step; and the kernels that both this and projections by head have on CUDA at bf16.
#include <vector>

#include "autograd/ops.hpp"
#include "autograd/ops_heads.hpp"
#include "tensor/gemm/precision.hpp"
#include "tensor/projection/heads.hpp"
#include "tensor/projection/merge_heads.hpp"
#include "tests/support/both_ways.hpp"
#ifdef SKYTAPE_CUDA_SIMULATED
#include "tests/cuda_simulator/simulator.hpp"
#endif

using namespace skytape;
using namespace skytape::test;

namespace {

struct Sizes {
  std::int64_t B, N, E, H, D;
};

// The kernels have 128 tokens at a time, add up 512, and are compiled for E = H D = 64. Simulated,
// they have two blocks, of which one adds up twice in the longest case. The last is by the
// definition, with operands that CUDA keeps in bf16.
const Sizes kSizes[] = {{1, 1, 64, 2, 32},   {3, 45, 64, 2, 32},  {2, 550, 64, 4, 16},
                        {1, 129, 32, 3, 12}, {3, 50, 16, 1, 64},  {2, 37, 64, 1, 4},
                        {2, 9, 20, 2, 5},    {2, 516, 256, 4, 64}};

Tensor entries(const Shape& shape, std::uint64_t seed, double most) {
  return random_tensor(shape, DType::f64, Device::cpu, seed, -most, most);
}

std::vector<Tensor> merge_inputs(const Sizes& s) {
  return {entries({s.B, s.N, s.E}, 1, 2), entries({s.B, s.H, s.N, s.D}, 2, 2),
          entries({s.E, s.H * s.D}, 3, 0.3), entries({s.E}, 4, 1)};
}

Var merged(const Sizes& s, const std::vector<Var>& v, Way way, double rate) {
  const Dropout dropping{rate, {11, {}}, 5, s.N + 3};  // of rows in the middle of longer sequences
  if (way == Way::fused) return merge_heads(v[0], v[1], v[2], v[3], dropping);
  const Var rows = reshape(swap_middle(v[1]), {s.B, s.N, s.H * s.D});
  return v[0] + dropout(composed_linear(way, rows, v[2], v[3]), dropping);
}

std::vector<Tensor> projection_inputs(const Sizes& s, std::int64_t parts) {
  std::vector<Tensor> all = {entries({s.B, s.N, s.E}, 1, 2)};
  for (std::int64_t p = 0; p < parts; ++p) {
    const auto seed = static_cast<std::uint64_t>(10 + 2 * p);
    all.push_back(entries({s.H * s.D, s.E}, seed, 0.3));
    all.push_back(entries({s.H * s.D}, seed + 1, 1));
  }
  return all;
}

Var projected(const Sizes& s, const std::vector<Var>& v, Way way) {
  std::vector<Projection> projections;
  for (std::size_t i = 1; i < v.size(); i += 2) projections.push_back({v[i], v[i + 1]});
  std::vector<Var> heads;
  if (way == Way::fused) {
    heads = project_heads(v[0], projections, s.H);
  } else {
    for (const auto& [weight, bias] : projections) {
      heads.push_back(
          swap_middle(reshape(composed_linear(way, v[0], weight, bias), {s.B, s.N, s.H, s.D})));
    }
  }
  return concat(heads, -1);
}

}  // namespace

TEST_CASE("fused merging of heads equals merging by an op for each step, at every precision") {
  for (const Sizes& s : kSizes) {
    for (const double rate : {0.0, 0.3}) {
      CAPTURE(s.N);
      CAPTURE(s.E);
      CAPTURE(s.D);
      CAPTURE(rate);
      check_both_ways(merge_inputs(s), 50,
                      [&](const std::vector<Var>& v, Way way) { return merged(s, v, way, rate); });
    }
  }
}

TEST_CASE(
    "projections' gradients are those composed of linear in all sizes, one to three of them") {
  for (const Sizes& s : kSizes) {
    for (const std::int64_t parts : {1, 2, 3}) {
      CAPTURE(s.N);
      CAPTURE(s.E);
      CAPTURE(s.D);
      CAPTURE(parts);
      check_both_ways(projection_inputs(s, parts), 50,
                      [&](const std::vector<Var>& v, Way way) { return projected(s, v, way); });
    }
  }
}

TEST_CASE("a model projects and merges heads in one op each, also beside a convolution") {
  nn::ModelConfig config;
  config.vocabulary = 5;
  config.classes = 3;
  config.nominal_length = 8;
  for_each_device([&](Device device) {
    for (const std::int64_t taps : {0, 3}) {
      config.conv_width = taps;
      CHECK(records("project_heads", device, config));
      CHECK(records("merge_heads", device, config));
      CHECK_FALSE(records("swap_middle", device, config));
    }
  });
}

#ifdef SKYTAPE_CUDA_SIMULATED
TEST_CASE("on CUDA the projections of a layer are one kernel forward and two backward") {
  using cuda_simulator::LaunchesOnly;
  constexpr std::int64_t kTokens = 65536, kWidth = 64;
  const PrecisionScope scope(Device::cuda, Precision::bf16);
  const LaunchesOnly only;
  const auto somewhere = [](const Shape& shape) {
    return Tensor::empty(shape, DType::f32, Device::cuda);
  };
  const Tensor x = somewhere({32, kTokens / 32, kWidth}), dy = somewhere(x.shape());
  const Tensor a = somewhere({32, 2, kTokens / 32, kWidth / 2});
  const Tensor weight = somewhere({kWidth, kWidth}), bias = somewhere({kWidth});
  (void)tensor::merge_heads(x, a, weight, bias, {});
  CHECK(LaunchesOnly::all().size() == 1);
  (void)tensor::merge_heads_backward(a, weight, {}, dy);
  CHECK(LaunchesOnly::all().size() == 3);  // the second adds the chunks' sums

  const std::vector<Tensor> weights = {weight, somewhere(weight.shape()),
                                       somewhere(weight.shape())};
  const std::vector<Tensor> parts = {a, somewhere(a.shape()), somewhere(a.shape())};
  (void)tensor::project_heads_backward(x, weights, parts);
  CHECK(LaunchesOnly::all().size() == 5);
}
#endif
