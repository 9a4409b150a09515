// A layer's exact attention as one operation, against the projections, tiles and merging of heads
// one by one, at bf16 on CUDA.
#include "attention/tiled/tiled_layer.hpp"

#include <utility>
#include <vector>

#include "attention/tiled/tiled.hpp"
#include "autograd/ops.hpp"
#include "autograd/ops_heads.hpp"
#include "tensor/core/on_device.hpp"
#include "tensor/gemm/operand.hpp"
#include "tests/support/both_ways.hpp"
#ifdef SKYTAPE_CUDA_SIMULATED
#include "tests/cuda_simulator/simulator.hpp"
#endif

using namespace skytape;
using namespace skytape::attention;
using namespace skytape::test;

namespace {

struct Sizes {
  std::int64_t B, N, E, H, D;
  double rate;  // of all dropout
};

// Heads of a compiled width and of one between; whole chunks of 128 tokens and a rest; E and H D
// that differ.
const Sizes kSizes[] = {{8, 128, 256, 4, 64, 0.3}, {12, 86, 272, 6, 44, 0}};

/// x, three weights with their biases, the output's, f64 on the CPU.
std::vector<Tensor> inputs_of(const Sizes& s) {
  const auto entries = [](const Shape& shape, std::uint64_t seed, double most) {
    return random_tensor(shape, DType::f64, Device::cpu, seed, -most, most);
  };
  std::vector<Tensor> all = {entries({s.B, s.N, s.E}, 1, 2)};
  for (std::uint64_t p = 0; p < 3; ++p) {
    all.push_back(entries({s.H * s.D, s.E}, 10 + p, 0.15));
    all.push_back(entries({s.H * s.D}, 20 + p, 1));
  }
  all.push_back(entries({s.E, s.H * s.D}, 2, 0.1));
  all.push_back(entries({s.E}, 3, 1));
  return all;
}

constexpr std::size_t kKeyBias = 1 + 4;  // among the output and the gradients of these

/// [B, N]: holes, a long rest of padding, and an example without a real token, the last.
Tensor mask_of(const Sizes& s, DType dtype, Device device) {
  std::vector<double> real(static_cast<std::size_t>(s.B * s.N), 1);
  for (std::int64_t e = 0; e < s.B * s.N; ++e) {
    const std::int64_t b = e / s.N, n = e % s.N;
    if (e % 7 == 3 || b == s.B - 1 || (b == 0 && n > s.N / 3)) {
      real[static_cast<std::size_t>(e)] = 0;
    }
  }
  return Tensor::from(real, {s.B, s.N}, dtype, device);
}

TiledOptions options_of(const Sizes& s) {
  TiledOptions options;
  options.scale = 1 / std::sqrt(static_cast<double>(s.D));
  options.dropout.rate = s.rate;
  options.dropout.random = Random{7, {}};
  options.dropout.first_example = 3;
  options.dropout.nominal_length = s.N + 40;
  return options;
}

Dropout dropout_of(const Sizes& s) { return {s.rate, {11, {}}, 5, s.N + 3}; }

Var fused_layer(const Sizes& s, const std::vector<Var>& v, Var residual, const Tensor& mask) {
  return tiled_layer(residual, v[0], {{v[1], v[3], v[5]}, {v[2], v[4], v[6]}, v[7], v[8]}, s.H,
                     mask, options_of(s), dropout_of(s));
}
Var layer(const Sizes& s, const std::vector<Var>& v, Way way) {
  const TiledOptions options = options_of(s);
  const Tensor& x = v[0].value();
  const Tensor mask = mask_of(s, x.dtype(), x.device());
  if (way == Way::fused) return fused_layer(s, v, v[0], mask);
  const std::vector<Projection> projections = {{v[1], v[2]}, {v[3], v[4]}, {v[5], v[6]}};
  const std::vector<Var> heads = project_heads(v[0], projections, s.H);  // q, k, v
  const Tensor q = heads[0].value(), k = heads[1].value(), values = heads[2].value();
  const TiledForward saved = tiled_forward(q, k, values, mask, options);
  const Var out = record("attention", {heads[0], heads[1], heads[2]}, saved.out,
                         [=](const Tensor& dout, Grads& g) {
                           const auto d = tiled_backward(q, k, values, mask, options, saved, dout);
                           g.add(0, d.dq);
                           g.add(1, d.dk);
                           g.add(2, d.dv);
                         });
  return merge_heads(v[0], out, v[7], v[8], dropout_of(s));
}

}  // namespace

// Backward has the output in bf16, too, so that its gradients are others by as much as that rounds.
TEST_CASE("a layer's exact attention as one op has the bits of its steps, and gradients as near") {
  for_each_device([](Device device) {
    const PrecisionScope scope(device, device == Device::cuda ? Precision::bf16 : Precision::fp32);
    for (const Sizes& s : kSizes) {
      const auto inputs = inputs_of(s);
      const Tensor x = inputs[0].to(DType::f32).to(device), w = inputs[1].to(DType::f32).to(device);
      REQUIRE(serves_layer(x, w, s.H, options_of(s)) == (device == Device::cuda));
      if (device == Device::cpu) continue;
      CAPTURE(s.N);
      CAPTURE(s.D);
      const auto results = [&](Way way, DType dtype, Device where) {
        return value_and_gradients(
            inputs, way, dtype, where,
            [&](const std::vector<Var>& v, Way one) { return layer(s, v, one); });
      };
      const auto exact = results(Way::composed, DType::f64, Device::cpu);
      const auto steps = results(Way::composed, DType::f32, device);
      const auto found = results(Way::fused, DType::f32, device);
      REQUIRE(found.size() == exact.size());
      CHECK(found[0].to_vector() == steps[0].to_vector());
      for (std::size_t i = 1; i < exact.size(); ++i) {
        CAPTURE(i);
        // The gradient of the keys' bias is zero: roundings are all there is of it.
        const double times = i == kKeyBias ? 3 : 1.5;
        CHECK(relative_error(found[i], exact[i]) <= times * relative_error(steps[i], exact[i]));
      }
    }
  });
}

TEST_CASE("a layer's tiles write nothing behind the rows of the last example") {
  if (!cuda_or_skip()) return;
  const PrecisionScope scope(Device::cuda, Precision::bf16);
  constexpr std::int64_t B = 2, N = 3, H = 2, D = 4;
  const auto entries = [](const Shape& shape) {
    return random_tensor(shape, DType::f32, Device::cuda, 1);
  };
  const auto rounded = [](const Tensor& x) { return tensor::as_operand(x, DType::bf16); };
  const auto with_one_more = [&](std::int64_t columns) {
    return rounded(Tensor::full({B * N + 1, columns}, 3, DType::f32, Device::cuda));
  };
  const TiledPlan plan = tiled_plan("test", {B, H, N, D}, N, {}, Device::cuda);
  const Tensor mask = Tensor::full({B, N}, 1, DType::f32, Device::cuda), bias = entries({H * D});
  const Tensor out = with_one_more(H * D), drows = with_one_more(3 * H * D);
  SavedTiles saved;
  saved.out = out.slice(0, B * N);
  saved.lse = entries({B, H, N});
  Tensor gradient = drows.slice(0, B * N);
  on_cuda([&](auto tag) {
    tiled_layer_forward_on(tag, plan, entries({B * N, 3 * H * D}), std::vector<Tensor>(3, bias),
                           mask, saved);
    tiled_layer_backward_on(tag, plan, saved, mask, rounded(entries({B * N, H * D})), gradient);
  });
  for (const Tensor& rows : {out, drows}) {
    const std::vector<double> last(static_cast<std::size_t>(rows.size(1)), 3);
    CHECK(rows.slice(B * N, B * N + 1).to_vector() == last);
  }
}

#ifdef SKYTAPE_CUDA_SIMULATED
namespace {

nn::ModelConfig wide_model() {
  nn::ModelConfig config;
  config.vocabulary = 5;
  config.classes = 3;
  config.nominal_length = 512;
  config.width = 256;
  config.heads = 4;
  config.attention = "softmax";
  return config;
}

}  // namespace

TEST_CASE("a wide model with softmax at bf16 on CUDA has one op for a layer's attention") {
  const cuda_simulator::LaunchesOnly only;
  const PrecisionScope scope(Device::cuda, Precision::bf16);
  const auto is_one = [](const nn::ModelConfig& config, std::int64_t examples = 2,
                         const nn::StepContext& step = {}) {
    const bool one = records("attention_layer", Device::cuda, config, {examples, 512}, step);
    CHECK(one != records("merge_heads", Device::cuda, config, {examples, 512}, step));
    return one;
  };
  CHECK(is_one(wide_model()));
  CHECK_FALSE(is_one(wide_model(), 1));  // too few rows for operands in bf16
  nn::StepContext step;
  step.observe = [](int, const Inputs&, const Tensor&) {};
  CHECK_FALSE(is_one(wide_model(), 2, step));
  step = {};
  step.injected.resize(static_cast<std::size_t>(wide_model().layers));
  CHECK_FALSE(is_one(wide_model(), 2, step));
  nn::ModelConfig other = wide_model();
  other.heads = 2;  // 128 wide
  CHECK_FALSE(is_one(other));
  other.width = 336;
  other.heads = 8;  // 42 wide
  CHECK_FALSE(is_one(other));
  other = wide_model();
  other.positions = nn::Positions::rotary;
  CHECK_FALSE(is_one(other));
  other = wide_model();
  other.attention = "kernelized";
  CHECK_FALSE(is_one(other));
  const PrecisionScope fp32(Device::cuda, Precision::fp32);
  CHECK_FALSE(is_one(wide_model()));
}

TEST_CASE("a layer's attention is one op for softmax that draws what it drops") {
  const cuda_simulator::LaunchesOnly only;
  const PrecisionScope scope(Device::cuda, Precision::bf16);
  const Tensor x = Tensor::empty({2, 512, 256}, DType::f32, Device::cuda);
  const auto serves = [&](const TiledOptions& options) {
    return serves_layer(x, x[0].slice(0, 256), 4, options);
  };
  CHECK(serves({}));
  CHECK_FALSE(serves({.score = Score::gaussian}));
  CHECK_FALSE(serves({.mask_queries = true}));
  TiledOptions given;
  given.dropout.keep = x;
  CHECK_FALSE(serves(given));
}

TEST_CASE("a layer's attention refuses what does not fit, and gradients at another precision") {
  const cuda_simulator::LaunchesOnly only;
  const PrecisionScope scope(Device::cuda, Precision::bf16);
  const Sizes& s = kSizes[0];
  std::vector<Tensor> inputs = inputs_of(s);
  for (Tensor& t : inputs) t = t.to(DType::f32).to(Device::cuda);
  const Tensor mask = mask_of(s, DType::f32, Device::cuda);
  const auto run = [&](const std::vector<Tensor>& given, const Tensor& residual,
                       const Tensor& given_mask) {
    Tape tape;
    std::vector<Var> v;
    for (const Tensor& t : given) v.push_back(tape.input(t));
    const Var y = fused_layer(s, v, tape.input(residual), given_mask);
    const PrecisionScope changed(Device::cuda, Precision::tf32);
    tape.backward(y, y.value());
  };
  CHECK_THROWS_WITH(run(inputs, inputs[0], mask),
                    "the gradient of attention_layer: expected products at bf16 on cuda");
  CHECK_THROWS_WITH(run(inputs, inputs[0].slice(0, 1), mask),
                    doctest::Contains("expected a residual [B, N, E] and a weight [E, H D]"));
  CHECK_THROWS_WITH(run(inputs, inputs[0], mask.slice(0, 1)),
                    doctest::Contains("expected mask [B, N]"));
  CHECK_THROWS_WITH(run(inputs, inputs[0], mask.to(Device::cpu)),
                    doctest::Contains("operands differ in dtype or device"));
  // The bias of keys, then their weight.
  const Tensor bias = std::exchange(inputs[4], inputs[4].to(Device::cpu));
  CHECK_THROWS_WITH(run(inputs, inputs[0], mask),
                    doctest::Contains("operands differ in dtype or device"));
  constexpr const char* kThree = "expected three weights of one shape [H D, E] and biases [H D]";
  inputs[4] = bias.slice(0, 8);
  CHECK_THROWS_WITH(run(inputs, inputs[0], mask), doctest::Contains(kThree));
  inputs[4] = bias;
  inputs[3] = inputs[3].slice(0, 8);
  CHECK_THROWS_WITH(run(inputs, inputs[0], mask), doctest::Contains(kThree));
}

TEST_CASE("what a layer keeps of its attention takes two bytes a number") {
  const cuda_simulator::LaunchesOnly only;
  const PrecisionScope scope(Device::cuda, Precision::bf16);
  constexpr std::int64_t B = 2, N = 512, H = 4, D = 64;
  const auto memory = [](const Shape& shape, DType dtype) {
    return Tensor::empty(shape, dtype, Device::cuda);
  };
  TiledOptions options;
  const TiledPlan plan = tiled_plan("test", {B, H, N, D}, N, options, Device::cuda);
  const Tensor bias = memory({H * D}, DType::f32);
  const std::vector<Tensor> biases = {bias, bias, bias};
  SavedTiles saved;
  saved.out = memory({B * N, H * D}, DType::bf16);
  saved.lse = memory({B, H, N}, DType::f32);
  on_cuda([&](auto tag) {
    tiled_layer_forward_on(tag, plan, memory({B * N, 3 * H * D}, DType::f32), biases,
                           memory({B, N}, DType::f32), saved);
  });
  CHECK(saved.rows.bytes() == 2 * 3 * B * N * H * D);
  CHECK(saved.entries.bytes() == 4 * B * H * N);
}
#endif
