// The MLP of a layer as one op, against the same composed of an op for each step.
#include "nn/layers/mlp.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "autograd/ops.hpp"
#include "nn/model.hpp"
#include "tensor/core/gpu_count.hpp"
#include "tensor/gemm/precision.hpp"
#include "tests/support/close.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;
using namespace skytape::test;

namespace {

struct Sizes {
  std::int64_t B, N, E, F;
};

// The kernel has 128 tokens at a time and adds up 512; it is compiled for E = 64 and F = 128.
const Sizes kSizes[] = {{1, 1, 64, 128},  {3, 45, 64, 128}, {2, 300, 64, 128},
                        {1, 129, 32, 64}, {3, 50, 16, 128}, {2, 37, 64, 16}};

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

enum class Way { at_once, composed };

Var block(std::span<const Var> v, Way way, double factor, const Dropout& hidden,
          const Dropout& output) {
  if (way == Way::at_once) {
    return nn::mlp_at_once({v[0], v[1], v[2], v[3], v[4], v[5], v[6]}, factor, hidden, output);
  }
  const Var h = layer_norm(affine(v[0], factor), v[1], v[2]);
  const Var u = bias_gelu_dropout(linear(h, v[3], Var()), v[4], hidden);
  return add_dropout(v[0], linear(u, v[5], v[6]), output);
}

/// y and the gradients of all inputs, as f64 on the CPU.
std::vector<Tensor> run(const Sizes& s, Way way, double rate, double factor, DType dtype,
                        Device device) {
  Tape tape;
  tape.check_finite(true);
  std::vector<Var> v;
  for (const Tensor& t : inputs(s)) v.push_back(tape.input(t.to(DType::f32).to(dtype).to(device)));
  const Var y = block(v, way, factor, dropping(s, rate, 11), dropping(s, rate, 12));
  tape.backward(y, random_tensor(y.shape(), DType::f32, Device::cpu, 8).to(dtype).to(device));
  std::vector<Tensor> results = {y.value()};
  for (const Var input : v) results.push_back(tape.grad(input));
  for (Tensor& t : results) t = t.to(Device::cpu).to(DType::f64);
  return results;
}

bool records_mlp(Device device, const nn::ModelConfig& config) {
  nn::Model model(config, DType::f32, device, 1);
  Tape tape;
  nn::ModelInput input;
  input.ids[0] = Tensor::zeros({2, 8}, DType::i32, device);
  input.mask[0] = Tensor::full({2, 8}, 1, DType::f32, device);
  (void)model.logits(tape, input, {});
  const std::vector<std::string> names = tape.names();
  return std::find(names.begin(), names.end(), "mlp") != names.end();
}

}  // namespace

TEST_CASE("an MLP at once is the one composed of an op for each step, at every precision") {
  for (const Sizes& s : kSizes) {
    for (const auto& [rate, factor] : {std::pair(0.0, 1.0), std::pair(0.3, 2.0)}) {
      CAPTURE(s.N);
      CAPTURE(s.E);
      CAPTURE(s.F);
      CAPTURE(rate);
      const std::vector<Tensor> exact =
          run(s, Way::composed, rate, factor, DType::f64, Device::cpu);
      for_each_device([&, rate = rate, factor = factor](Device device) {
        for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16}) {
          if (device == Device::cpu && precision != Precision::fp32) continue;
          const PrecisionScope scope(device, precision);
          const auto plain = run(s, Way::composed, rate, factor, DType::f32, device);
          const auto found = run(s, Way::at_once, rate, factor, DType::f32, device);
          const auto again = run(s, Way::at_once, rate, factor, DType::f32, device);
          REQUIRE(found.size() == exact.size());
          for (std::size_t i = 0; i < exact.size(); ++i) {
            CAPTURE(i);
            CHECK(relative_error(found[i], exact[i]) <=
                  3 * relative_error(plain[i], exact[i]) + 4 * rounding(DType::f32));
            CHECK(found[i].to_vector() == again[i].to_vector());
          }
        }
        const auto f64 = run(s, Way::at_once, rate, factor, DType::f64, device);
        for (std::size_t i = 0; i < exact.size(); ++i) {
          CHECK(relative_error(f64[i], exact[i]) <= 50 * rounding(DType::f64));
        }
      });
    }
  }
}

TEST_CASE("a model's MLP is one op on CUDA at bf16 where its sizes allow, and nowhere else") {
  nn::ModelConfig config;
  config.vocabulary = 5;
  config.classes = 3;
  config.nominal_length = 8;
  for_each_device([&](Device device) {
    CHECK_FALSE(records_mlp(device, config));
    if (device == Device::cpu) return;
    const PrecisionScope scope(device, Precision::bf16);
    CHECK(records_mlp(device, config));
    nn::ModelConfig wide = config;
    wide.ff_width = 256;
    CHECK_FALSE(records_mlp(device, wide));
    wide = config;
    wide.norm = nn::Norm::post;
    CHECK_FALSE(records_mlp(device, wide));
  });
}

#ifdef SKYTAPE_CUDA
TEST_CASE("on CUDA an MLP reads x once and writes y once, and keeps nothing in between") {
  constexpr std::int64_t kTokens = 65536, kE = 64, kF = 128;
  const GpuCount count;
  const PrecisionScope scope(Device::cuda, Precision::bf16);
  const auto somewhere = [](const Shape& shape) {
    return Tensor::empty(shape, DType::f32, Device::cuda);
  };
  const Tensor x = somewhere({32, kTokens / 32, kE});
  const tensor::MlpWeights w{somewhere({kE}),     somewhere({kE}), 1,
                             somewhere({kF, kE}), somewhere({kF}), somewhere({kE, kF}),
                             somewhere({kE})};
  const std::int64_t parameters = 2 * kE * kF + kF + 3 * kE;
  (void)tensor::mlp(x, w, {}, {});
  REQUIRE(count.kernels().size() == 1);
  CHECK(count.kernels()[0].work.bytes == 4 * (2 * kTokens * kE + parameters));
  CHECK(count.kernels()[0].work.multiply_adds == 2 * kTokens * kE * kF);
  CHECK(count.kernels()[0].work.product);

  (void)tensor::mlp_backward(x, w, {}, {}, somewhere(x.shape()));
  REQUIRE(count.kernels().size() == 3);  // the second adds the chunks' sums
  const std::int64_t sums = kTokens / 512 * parameters;
  CHECK(count.kernels()[1].work.bytes == 4 * (3 * kTokens * kE + parameters + sums));
  CHECK(count.kernels()[2].work.bytes == 4 * (sums + parameters));
}
#endif
