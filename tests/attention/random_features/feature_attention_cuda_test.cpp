// Performer's passes on the GPU against its steps one by one: how close, and what they move.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "attention/random_features/feature_attention.hpp"
#include "tensor/gemm/gemm.hpp"
#include "tensor/gemm/gemm_bf16.hpp"
#include "tensor/gemm/operand.hpp"
#include "tensor/gemm/precision.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tests/attention/methods_support.hpp"
#include "tests/support/close.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/doctest.hpp"
#ifdef SKYTAPE_CUDA_SIMULATED
#include "tests/cuda_simulator/simulator.hpp"
#endif

namespace skytape::test {
namespace {

const Spec& performer() { return attention::find("performer"); }

struct Case {
  Sizes sizes;
  OptionValues options;
};
// Parts of a tile, several tiles, two chunks of rows; each compiled width and what it leaves empty.
const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {{.batch = 3, .heads = 2, .n = 1, .width = 1}, {{"features", "1"}}},
      {{.batch = 3, .heads = 2, .n = 37, .width = 5}, {{"features", "9"}, {"form", "official"}}},
      {{.batch = 3, .heads = 2, .n = 133, .width = 32}, {{"features", "128"}, {"epsilon", "0.1"}}},
      {{.batch = 2, .heads = 1, .n = 530, .width = 20}, {{"features", "20"}}},
      {{.batch = 2, .heads = 2, .n = 530, .width = 32},
       {{"features", "40"}, {"form", "official"}, {"epsilon", "0.1"}}},
      {{.batch = 3, .heads = 1, .n = 65, .width = 64},
       {{"features", "17"}, {"detach_stabiliser", "1"}}},
      {{.batch = 3, .heads = 2, .n = 70, .width = 33}, {{"features", "90"}, {"epsilon", "0"}}}};
  return all;
}

bool cpu_rounds_to_bf16() { return tensor::why_no_bf16_on_cpu() == nullptr; }

/// The reference on the CPU at bf16, where every product rounds.
Outcome bf16_reference(const OptionValues& options, const Sizes& sizes, const Problem& host,
                       const Call& call) {
  const PrecisionScope scope(Device::cpu, Precision::bf16);
  return run_reference(make_layer(performer(), options, sizes, DType::f32), host, call);
}

/// The reference on the GPU at tf32, whose significand is three bits longer than bf16's.
Outcome tf32_reference(const Layer& layer, const Problem& problem, const Call& call) {
  const PrecisionScope scope(Device::cuda, Precision::tf32);
  return run_reference(layer, problem, call);
}

}  // namespace

TEST_CASE("performer's passes lose at most three times what its reference loses") {
  if (!cuda_or_skip()) return;
  for (const Precision precision : {Precision::tf32, Precision::bf16}) {
    // A CPU without bf16 gives no measure of it: the GPU's tf32 does, eight times.
    const bool by_tf32 = precision == Precision::tf32 || !cpu_rounds_to_bf16();
    for (const auto& [sizes, options] : cases()) {
      // Products of few numbers a GPU's library makes in f32, and there is no tf32 elsewhere.
      if (by_tf32 && sizes.width < 8) continue;
      const Layer exact = make_layer(performer(), options, sizes, DType::f64);
      const Layer rough = make_layer(performer(), options, sizes, DType::f32, Device::cuda);
      const Problem host = convert(make_problem(performer(), sizes, Padding::mixed), DType::f32);
      const Problem there = convert(host, DType::f32, Device::cuda);
      const Problem same = convert(host, DType::f64);  // all three see the same numbers
      Call call = training_call(same.in), call_there = training_call(there.in);
      const Draws none;  // W is a parameter
      call.injected = call_there.injected = &none;
      const Outcome truth = run_reference(exact, same, call);
      const PrecisionScope scope(Device::cuda, precision);
      const Outcome plain = run_reference(rough, there, call_there);
      const Outcome ours = run(rough, there, call_there), again = run(rough, there, call_there);
      // A GPU's library may take tf32 where bf16 is asked for (close.hpp).
      const Outcome at_least = by_tf32 ? tf32_reference(rough, there, call_there)
                                       : bf16_reference(options, sizes, host, call);
      const double times = by_tf32 && precision == Precision::bf16 ? 8 : 1;
      const double scale = smallest_scale(truth);
      const auto on_host = [](const Outcome& o, const std::string& name) {
        return at(o, name).to(Device::cpu).to(DType::f64);
      };
      for (const auto& [name, expected] : truth) {
        INFO(name, " of ", describe(performer(), options), ", N ", sizes.n, ", D ", sizes.width,
             ", precision ", static_cast<int>(precision));
        const double lost = std::max(distance(on_host(plain, name), expected),
                                     times * distance(on_host(at_least, name), expected));
        const double floor = 1e-5 * std::max(norm(expected), name == "out" ? 0 : scale);
        CHECK(distance(on_host(ours, name), expected) <= 3 * lost + floor);
        CHECK(at(ours, name).to_vector() == at(again, name).to_vector());
      }
    }
  }
}

#ifdef SKYTAPE_CUDA
TEST_CASE("performer's passes find each row's largest product and the first that gives it") {
  if (!cuda_or_skip()) return;
  const auto passes = [](const Sizes& s, const Tensor& w) {  // w: [R, D]
    const auto entries = [&](std::uint64_t seed) {
      return random_tensor({s.batch, s.heads, s.n, s.width}, DType::f32, Device::cpu, seed, -0.8,
                           0.8)
          .to(Device::cuda);
    };
    attention::FeatureAttention a;
    a.q = entries(1), a.k = entries(2), a.v = entries(3);
    a.mask = Tensor::full({s.batch, s.n}, 1, DType::f32, Device::cuda);
    a.w = w.to(Device::cuda);
    attention::feature_attention(a);
    return a;
  };
  for (const auto& [s, options] : cases()) {
    const std::int64_t features = std::stoll(options.at("features"));
    const Tensor w =
        random_tensor({features, s.width}, DType::f32, Device::cpu, 4, -0.8, 0.8);  // [R, D]
    // tf32 rounds 13 bits of f32 away: of D products of two numbers below 0.8 at most so much is
    // lost.
    for (const auto& [precision, most] :
         {std::pair(Precision::tf32, 1e-5 + 0.64 * static_cast<double>(s.width) / 1024),
          std::pair(Precision::bf16, 1e-5)}) {
      const PrecisionScope scope(Device::cuda, precision);
      const attention::FeatureAttention a = passes(s, w);
      // Products of rounded operands, in double: sums in f32 may differ from these in their last
      // bits, and then another product may be the largest.
      const auto rounded = [](const Tensor& t) {
        return tensor::as_multiplied(t).to(Device::cpu).to(DType::f64);
      };
      const auto check = [&](const Tensor& rows, const attention::FeatureMaxima& maxima) {
        const std::vector<double> all =
            tensor::matmul(rounded(rows).reshape({maxima.value.numel(), s.width}), rounded(a.w),
                           Op::none, Op::transpose)
                .to_vector();
        const std::vector<double> value = maxima.value.to_vector();
        const std::vector<double> feature = maxima.feature.to_vector();
        for (std::size_t row = 0; row < value.size(); ++row) {
          const auto begin = all.begin() + static_cast<std::ptrdiff_t>(row) * features;
          const auto at = static_cast<std::ptrdiff_t>(feature[row]);
          REQUIRE(at >= 0);
          REQUIRE(at < features);
          CHECK(std::abs(value[row] - *std::max_element(begin, begin + features)) <= most);
          CHECK(std::abs(value[row] - begin[at]) <= most);
        }
      };
      check(a.q, a.query_maxima);
      check(a.k, a.keys);
    }
  }
  // Equal products: the first one counts.
  const PrecisionScope scope(Device::cuda, Precision::bf16);
  const auto a = passes({.batch = 2, .heads = 2, .n = 20, .width = 8},
                        Tensor::full({40, 8}, 0.5, DType::f32, Device::cpu));
  CHECK(a.query_maxima.feature.to_vector() == std::vector<double>(80, 0));
  CHECK(a.keys.feature.to_vector() == std::vector<double>(80, 0));
}

TEST_CASE("performer's passes give zeros, and no gradient, to an example without any real key") {
  if (!cuda_or_skip()) return;
  const PrecisionScope scope(Device::cuda, Precision::bf16);
  const auto entries = [](const Shape& shape, std::uint64_t seed) {
    return random_tensor(shape, DType::f32, Device::cuda, seed);
  };
  attention::FeatureAttention a;
  a.config = {.scale = 0.5, .epsilon = 1e-4};
  const Shape shape{2, 2, 20, 8};
  a.q = entries(shape, 1), a.k = entries(shape, 2), a.v = entries(shape, 3);
  a.mask = Tensor::full({2, 20}, 1, DType::f32, Device::cuda);
  a.mask[1].fill(0);
  a.w = entries({9, 8}, 4);
  attention::feature_attention(a);
  const auto d = attention::feature_attention_backward(a, entries(shape, 5));
  for (const Tensor& x : {a.out, d.dq, d.dk, d.dv}) {
    CHECK(tensor::all_finite(x));
    CHECK(norm(x[0]) > 0);
    CHECK(norm(x[1]) == 0);
  }
}

TEST_CASE("performer's passes give the gradient of heads' shared maximum to the row that has it") {
  if (!cuda_or_skip()) return;
  const PrecisionScope scope(Device::cuda, Precision::bf16);
  const Shape shape{2, 2, 20, 8};
  const auto entries = [&](std::uint64_t seed, double least, double most) {
    return random_tensor(shape, DType::f32, Device::cuda, seed, least, most);
  };
  attention::FeatureAttention a;
  a.config = {.scale = 0.5, .epsilon = 0.1, .official = true, .scope = 2};
  // Padding's products are zero, and all others negative.
  a.q = entries(1, -1, 1), a.k = entries(2, -1, -0.5), a.v = entries(3, -1, 1);
  a.mask = Tensor::full({2, 20}, 1, DType::f32, Device::cuda);
  a.mask[1].slice(17, 18).fill(0);
  a.w = random_tensor({9, 8}, DType::f32, Device::cuda, 4, 0.5, 1);
  attention::feature_attention(a);
  CHECK(a.key_position.to_vector()[1] == 17);
  Tensor dout = entries(5, -1, 1);
  dout[0].fill(0);
  const Tensor dk = attention::feature_attention_backward(a, dout).dk;
  CHECK(norm(dk[0]) == 0);
  CHECK(norm(dk[1]) > 0);
  for (int head = 0; head < 2; ++head) CHECK(norm(dk[1][head].slice(17, 18)) == 0);
}

TEST_CASE(
    "performer's passes are for as many features and as wide heads as they are compiled for") {
  if (!cuda_or_skip()) return;
  const auto fits = [](Precision precision, std::int64_t features, std::int64_t width) {
    const PrecisionScope scope(Device::cuda, precision);
    return attention::feature_attention_fits(
        Tensor::empty({1, 1, 2, width}, DType::f32, Device::cuda),
        Tensor::empty({features, width}, DType::f32, Device::cuda));
  };
  CHECK(fits(Precision::bf16, 128, 64));
  CHECK_FALSE(fits(Precision::bf16, 129, 64));
  CHECK_FALSE(fits(Precision::bf16, 128, 65));
  CHECK_FALSE(fits(Precision::fp32, 128, 64));
}

#ifdef SKYTAPE_CUDA_SIMULATED
TEST_CASE("performer's passes launch ten kernels") {
  const PrecisionScope scope(Device::cuda, Precision::bf16);
  const cuda_simulator::LaunchesOnly only;
  const auto somewhere = [](const Shape& shape) {
    return Tensor::empty(shape, DType::f32, Device::cuda);
  };
  attention::FeatureAttention a;
  a.config = {.scale = 0.5, .epsilon = 1e-4};
  a.q = somewhere({4, 2, 1024, 32});  // [B, H, N, D]
  a.k = empty_like(a.q), a.v = empty_like(a.q);
  a.mask = somewhere({4, 1024});
  a.w = somewhere({128, 32});
  attention::feature_attention(a);
  (void)attention::feature_attention_backward(a, empty_like(a.q));
  CHECK(cuda_simulator::LaunchesOnly::all().size() == 10);
}
#endif
#endif

}  // namespace skytape::test
