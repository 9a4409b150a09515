#include "tensor/random/dropout.hpp"

#include <algorithm>
#include <cmath>

#include "tensor/core/on_device.hpp"
#include "tensor/random/dropout_plan.hpp"

namespace skytape::tensor {

std::uint32_t dropout_threshold(const char* op, double rate) {
  ENSURE(rate >= 0 && rate < 1, op, ": the dropout rate must be in [0, 1), got ", rate);
  return static_cast<std::uint32_t>(std::min(std::lround(rate * 65536), 65535L));
}

double dropout_scale(std::uint32_t threshold) { return 65536.0 / (65536.0 - threshold); }

/// Turns the numbering of dropout.hpp into contiguous ranges.
DropoutPlan dropout_plan(const char* op, const Shape& shape, Device device,
                         const Dropout& options) {
  ENSURE(shape.rank() == 3, op, ": expected a shape [B, N, E], got ", shape);
  const std::int64_t length = shape[1];
  const std::int64_t nominal = options.nominal_length == 0 ? length : options.nominal_length;
  ENSURE(options.first_example >= 0, op, ": first_example must not be negative, got ",
         options.first_example);
  DropoutPlan p;
  p.threshold = dropout_threshold(op, options.rate);
  p.scale = dropout_scale(p.threshold);
  p.key = options.random.key;
  p.step = step_data(op, options.random, device);
  ENSURE(p.threshold == 0 || nominal >= length, op, ": nominal_length ", nominal,
         " is shorter than the sequences of ", shape);
  p.first = options.first_example * nominal * shape[2];
  p.ranges = shape[0];
  p.range_size = length * shape[2];
  p.range_stride = nominal * shape[2];
  if (nominal == length) {  // nothing is trimmed: one long range
    p.range_size *= p.ranges;
    p.range_stride = p.range_size;
    p.ranges = 1;
  }
  return p;
}

Tensor dropout(const Tensor& x, const Dropout& options) {
  require_same_kind("dropout", {&x});
  const DropoutPlan p = dropout_plan("dropout", x.shape(), x.device(), options);
  if (p.threshold == 0) return x;
  Tensor y = empty_like(x);  // [B, N, E]
  on_device(x.device(), [&](auto tag) { dropout_on(tag, p, x, y); });
  return y;
}

Tensor add_dropout(const Tensor& residual, const Tensor& x, const Tensor& bias,
                   const Dropout& options) {
  require_same_kind("add_dropout", {&residual, &x});
  ENSURE(residual.shape() == x.shape(), "add_dropout: shapes differ: residual ", residual, ", x ",
         x);
  const DropoutPlan p = dropout_plan("add_dropout", x.shape(), x.device(), options);
  if (bias.defined()) {
    require_same_kind("add_dropout", {&x, &bias});
    ENSURE(bias.shape() == Shape{x.size(2)}, "add_dropout: expected a bias [E] for x ", x, ", got ",
           bias);
  }
  Tensor y = empty_like(x);  // [B, N, E]
  on_device(x.device(), [&](auto tag) { add_dropout_on(tag, p, residual, x, bias, y); });
  return y;
}

namespace {

/// x and a bias of its kind, which is f32 beside bf16.
void require_bias(const char* op, const Tensor& x, const Tensor& bias) {
  if (x.dtype() != DType::bf16) return require_same_kind(op, {&x, &bias});
  ENSURE(bias.defined() && bias.dtype() == DType::f32 && bias.device() == x.device(), op,
         ": expected a bias of f32 beside ", x, ", got ", bias);
}

}  // namespace

Tensor bias_gelu_dropout(const Tensor& x, const Tensor& bias, const Dropout& options) {
  require_bias("bias_gelu_dropout", x, bias);
  const DropoutPlan p = dropout_plan("bias_gelu_dropout", x.shape(), x.device(), options);
  ENSURE(bias.shape() == Shape{x.size(2)}, "bias_gelu_dropout: expected a bias [F] for x ", x,
         ", got ", bias);
  Tensor y = empty_like(x);  // [B, N, F]
  on_device(x.device(), [&](auto tag) { bias_gelu_dropout_on(tag, p, x, bias, y); });
  return y;
}

Tensor bias_gelu_dropout_backward(const Tensor& x, const Tensor& bias, const Dropout& options,
                                  const Tensor& dy) {
  require_bias("bias_gelu_dropout_backward", x, bias);
  require_same_kind("bias_gelu_dropout_backward", {&x, &dy});
  const DropoutPlan p = dropout_plan("bias_gelu_dropout_backward", x.shape(), x.device(), options);
  ENSURE(bias.shape() == Shape{x.size(2)} && dy.shape() == x.shape(),
         "bias_gelu_dropout_backward: expected a bias [F] and dy of the shape of x ", x,
         ", got bias ", bias, ", dy ", dy);
  Tensor dx = empty_like(x);  // [B, N, F]
  on_device(x.device(), [&](auto tag) { bias_gelu_dropout_backward_on(tag, p, x, bias, dy, dx); });
  return dx;
}

Tensor dropout_factors(const Shape& shape, const Dropout& options, DType dtype, Device device) {
  ENSURE(dtype != DType::i32, "dropout_factors: expected dtype f32 or f64, got i32");
  const DropoutPlan p = dropout_plan("dropout_factors", shape, device, options);
  Tensor factors = Tensor::empty(shape, dtype, device);  // [B, N, E]
  on_device(device, [&](auto tag) { dropout_factors_on(tag, p, factors); });
  return factors;
}

}  // namespace skytape::tensor
