#include "nn/layers/masked_head.hpp"

#include "autograd/initial_values.hpp"
#include "autograd/ops.hpp"
#include "tensor/embedding/embedding.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/norm/softmax.hpp"

namespace skytape::nn {
namespace {

constexpr std::int64_t kIntensities = 256;

Tensor grey_values(const Shape& shape, const Random&) {
  Tensor values = Tensor::empty(shape, DType::f64, Device::cpu);
  for (std::int64_t i = 0; i < kIntensities; ++i) {
    values.data<double>()[i] = static_cast<double>(i) / (kIntensities - 1);
  }
  return values;
}

}  // namespace

MaskedHead::MaskedHead(ParameterStore& store, std::int64_t width, std::int64_t ids, bool pixels,
                       double norm_epsilon)
    : pixels_(pixels),
      dense_(store, "masked_head.dense", width, width),
      norm_(store, "masked_head.norm", width, norm_epsilon) {
  bias_ = &store.add("masked_head.bias", {pixels ? 1 : ids}, constant_init(0));
  if (!pixels) return;
  weight_ = &store.add("masked_head.weight", {1, width}, normal_init(0.02));
  grey_ = &store.add("masked_head.grey", {kIntensities, 1}, grey_values, false);
}

MaskedHead::Answers MaskedHead::operator()(Var x, Parameter& table, const Tensor& at,
                                           const Tensor& ids) const {
  const std::int64_t places = at.numel();
  const Var rows = reshape(gather_rows(x, at), {places, x.size(2)});  // [B P, E]
  const Var h = norm_(gelu(dense_(rows)));                            // [B P, E]
  const Tensor flat = ids.reshape({places});
  if (pixels_) return of_pixels(h, flat);
  return of_ids(h, x.tape().parameter(table), flat);
}

MaskedHead::Answers MaskedHead::of_ids(Var h, Var table, const Tensor& ids) const {
  const Var scores = linear(h, table, h.tape().parameter(*bias_));  // [B P, V]
  return {cross_entropy_rows(scores, ids), tensor::correct(scores.value(), ids)};
}

MaskedHead::Answers MaskedHead::of_pixels(Var h, const Tensor& ids) const {
  Tape& tape = h.tape();
  const Var value = linear(h, tape.parameter(*weight_), tape.parameter(*bias_));  // [B P, 1]
  const Tensor truth = tensor::embedding(grey_->value, ids);                      // [B P, 1]
  const Var off = value - tape.constant(truth);
  const Var distance = reshape(relu(off) + relu(-off), {ids.numel()});  // [B P]
  // 1 where the distance is below half an intensity: relu(half - distance) > 0, by its sign.
  const Tensor inside = tensor::unary(
      tensor::Unary::relu, tensor::affine(distance.value(), -1, 0.5 / (kIntensities - 1)));
  constexpr double kTiny = 1e-30;  // 0 / 0 is no number
  return {distance, tensor::divide(inside, tensor::affine(inside, 1, kTiny))};
}

}  // namespace skytape::nn
