// An op against the same composed of an op for each of its steps.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "autograd/observers.hpp"
#include "autograd/tape_print.hpp"
#include "nn/model.hpp"
#include "tensor/gemm/precision.hpp"
#include "tests/support/close.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/doctest.hpp"

namespace skytape::test {

/// The two ways to record what is tested: as one op, or composed of an op for each step. Products
/// of the latter are true, or have their operands rounded.
enum class Way { fused, composed, composed_of_tf32, composed_of_bf16 };

/// linear(x, weight, bias) as a step of what is composed. Rounded are the operands of its products,
/// dy among them, and nothing else: the bias and its gradient are no products. A GPU's library
/// won't do as the measure of a kernel that rounds: cuBLAS on an H100 takes f32 operands as tf32 at
/// bf16, too.
[[nodiscard]] Var composed_linear(Way way, Var x, Var weight, Var bias);

/// Value and gradients of f(inputs on a tape, way), as f64 on the CPU. Inputs pass through f32, so
/// that all kinds see the same numbers.
template <class F> std::vector<Tensor> value_and_gradients(const std::vector<Tensor>& inputs,
                                                           Way way, DType dtype, Device device,
                                                           const F& f) {
  const auto ready = [&](const Tensor& t) { return t.to(DType::f32).to(dtype).to(device); };
  Tape tape;
  tape.observe(finite_check());
  std::vector<Var> v;
  for (const Tensor& t : inputs) v.push_back(tape.input(ready(t)));
  const Var y = f(v, way);
  tape.backward(y, ready(random_tensor(y.shape(), DType::f32, Device::cpu, 8)));
  std::vector<Tensor> results = {y.value()};
  for (const Var input : v) results.push_back(tape.grad(input));
  for (Tensor& t : results) t = t.to(Device::cpu).to(DType::f64);
  return results;
}

/// f(inputs on a tape, way) gives the same fused and composed: in f64 to a few roundings, and at
/// each precision with at most three times the composed one's error in f32, operands of products
/// rounded as the precision says. Twice it gives the same bits.
template <class F>
void check_both_ways(const std::vector<Tensor>& inputs, double f64_roundings, const F& f) {
  const auto exact = value_and_gradients(inputs, Way::composed, DType::f64, Device::cpu, f);
  for_each_device([&](Device device) {
    for (const auto& [precision, composed] : {std::pair(Precision::fp32, Way::composed),
                                              std::pair(Precision::tf32, Way::composed_of_tf32),
                                              std::pair(Precision::bf16, Way::composed_of_bf16)}) {
      if (device == Device::cpu && precision != Precision::fp32) continue;
      const auto plain = value_and_gradients(inputs, composed, DType::f32, device, f);
      const PrecisionScope scope(device, precision);
      const auto found = value_and_gradients(inputs, Way::fused, DType::f32, device, f);
      const auto again = value_and_gradients(inputs, Way::fused, DType::f32, device, f);
      REQUIRE(found.size() == exact.size());
      for (std::size_t i = 0; i < exact.size(); ++i) {
        CAPTURE(i);
        CHECK(relative_error(found[i], exact[i]) <=
              3 * relative_error(plain[i], exact[i]) + 4 * rounding(DType::f32));
        CHECK(found[i].to_vector() == again[i].to_vector());
      }
    }
    const auto f64 = value_and_gradients(inputs, Way::fused, DType::f64, device, f);
    for (std::size_t i = 0; i < exact.size(); ++i) {
      CHECK(relative_error(f64[i], exact[i]) <= f64_roundings * rounding(DType::f64));
    }
  });
}

/// Returns whether a model of that configuration records an op of that name for tokens of that
/// shape.
inline bool records(const std::string& op, Device device, const nn::ModelConfig& config,
                    const Shape& tokens = {2, 8}, const nn::StepContext& step = {}) {
  nn::Model model(config, DType::f32, device, 1);
  Tape tape;
  nn::ModelInput input;
  input.ids[0] = Tensor::zeros(tokens, DType::i32, device);
  input.mask[0] = Tensor::full(tokens, 1, DType::f32, device);
  (void)model.logits(tape, input, step);
  const std::vector<std::string> recorded = names(tape);
  return std::find(recorded.begin(), recorded.end(), op) != recorded.end();
}

}  // namespace skytape::test
