#include "tensor/classifier/classifier.hpp"

#include "tensor/classifier/classifier_plan.hpp"
#include "tensor/core/on_device.hpp"
#include "tensor/embedding/embedding.hpp"
#include "tensor/gemm/gemm.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tensor/norm/softmax.hpp"

namespace skytape::tensor {
namespace {

ClassifierPlan plan_of(const char* op, const Tensor& x, const ClassifierWeights& w,
                       double smoothing = 0, double examples = 1) {
  require_same_kind(op, {&x, &w.in_weight, &w.in_bias, &w.out_weight, &w.out_bias});
  ENSURE(x.rank() == 2 && x.size(0) > 0, op, ": expected x [B, K] with B > 0, got ", x);
  ENSURE(w.in_bias.rank() == 1 && w.out_bias.rank() == 1, op, ": expected biases [F] and [C], got ",
         w.in_bias, ", ", w.out_bias);
  const ClassifierPlan p{x.size(0),          x.size(1), w.in_bias.size(0),
                         w.out_bias.size(0), smoothing, examples};
  ENSURE(w.in_weight.shape() == Shape({p.f, p.k}) && w.out_weight.shape() == Shape({p.c, p.f}), op,
         ": expected weights [F, K] and [C, F] for x ", x, " and biases ", w.in_bias, ", ",
         w.out_bias, ", got ", w.in_weight, ", ", w.out_weight);
  ENSURE(smoothing >= 0 && smoothing < 1, op, ": expected a label smoothing in [0, 1), got ",
         smoothing);
  return p;
}

// ---- by its definition, on any device -----------------------------------------------------------

// dlogits = w_label (p - t) / B with p = softmax(z): cross_entropy() has p - [c = label].
Classified by_definition(const ClassifierPlan& p, const Tensor& x, const ClassifierWeights& w,
                         const Tensor& labels, const Tensor& class_weights) {
  const double share = 1 / static_cast<double>(p.b), s = p.smoothing;
  const Tensor hidden = unary(Unary::relu, linear(x, w.in_weight, w.in_bias));  // [B, F]
  const Tensor logits = linear(hidden, w.out_weight, w.out_bias);               // [B, C]
  const auto [losses, differences] = cross_entropy(logits, labels);             // [B], [B, C]
  const auto weighted = [&](const Tensor& of_examples) {                        // [B] or [B, C]
    if (!class_weights.defined()) return of_examples;
    const Tensor weights = embedding(class_weights.reshape({p.c, 1}), labels);  // [B, 1]
    return multiply(of_examples, of_examples.rank() == 1 ? weights.reshape({p.b}) : weights);
  };
  Classified out{affine(sum_all(weighted(losses)), share),
                 affine(sum_all(correct(logits, labels)), 1 / p.examples), hidden,
                 affine(weighted(differences), share)};
  if (s == 0) return out;
  const double each = 1 / static_cast<double>(p.c);
  const Tensor of_every =  // [B]: the mean over classes of -log p
      subtract(logsumexp(logits), affine(sum(logits, 1), each));
  out.loss = add(affine(out.loss, 1 - s), affine(sum_all(weighted(of_every)), s * share));
  const Tensor towards_every = affine(softmax(logits), 1, -each);  // [B, C]
  out.dlogits = add(affine(out.dlogits, 1 - s), affine(weighted(towards_every), s * share));
  return out;
}

ClassifierGradients backward_by_definition(const Tensor& x, const ClassifierWeights& w,
                                           const Classified& saved, const Tensor& dloss) {
  const Tensor dz = multiply(saved.dlogits, dloss);                                       // [B, C]
  const Tensor dh = unary_backward(Unary::relu, saved.hidden, matmul(dz, w.out_weight));  // [B, F]
  return {matmul(dh, w.in_weight), matmul(dh, x, Op::transpose, Op::none), sum(dh, 0),
          matmul(dz, saved.hidden, Op::transpose, Op::none), sum(dz, 0)};
}

bool is_fused(const Tensor& x, const ClassifierWeights& w) {
  constexpr std::int64_t kMostWeights = 1 << 16, kMost = 1024;  // of any letter
  if (x.device() != Device::cuda) return false;
  const std::int64_t b = x.size(0), k = x.size(1);
  const bool counted = 0 < b && 0 < k && 0 < w.in_weight.numel() && 0 < w.out_weight.numel();
  return counted && b <= kMost && k <= kMost && w.in_bias.numel() <= kMost &&
         w.out_bias.numel() <= kMost && w.in_weight.numel() <= kMostWeights &&
         w.out_weight.numel() <= kMostWeights;
}

}  // namespace

Classified classify(const Tensor& x, const ClassifierWeights& w, const Tensor& labels,
                    double smoothing, double examples, const Tensor& class_weights) {
  const ClassifierPlan p = plan_of("classify", x, w, smoothing, examples);
  ENSURE(labels.defined() && labels.dtype() == DType::i32 && labels.shape() == Shape{p.b} &&
             labels.device() == x.device(),
         "classify: expected labels i32[B] beside x ", x, ", got ", labels);
  if (class_weights.defined()) {
    require_same_kind("classify", {&x, &class_weights});
    ENSURE(class_weights.shape() == Shape{p.c},
           "classify: expected class weights [C] beside biases ", w.out_bias, ", got ",
           class_weights);
  }
  if (!is_fused(x, w)) return by_definition(p, x, w, labels, class_weights);
  const auto fresh = [&](const Shape& shape) { return empty_like(x, shape); };
  Classified out{fresh({}), fresh({}), fresh({p.b, p.f}), fresh({p.b, p.c})};
  if constexpr (kHaveCuda) classify_on(Cuda{}, p, x, w, labels, class_weights, out);
  return out;
}

ClassifierGradients classify_backward(const Tensor& x, const ClassifierWeights& w,
                                      const Classified& saved, const Tensor& dloss) {
  const ClassifierPlan p = plan_of("classify_backward", x, w);
  require_same_kind("classify_backward", {&x, &saved.hidden, &saved.dlogits, &dloss});
  ENSURE(saved.hidden.shape() == Shape({p.b, p.f}) && saved.dlogits.shape() == Shape({p.b, p.c}) &&
             dloss.numel() == 1,
         "classify_backward: expected h [B, F], dlogits [B, C] and one dloss for x ", x, ", got ",
         saved.hidden, ", ", saved.dlogits, ", ", dloss);
  if (!is_fused(x, w)) return backward_by_definition(x, w, saved, dloss);
  const ClassifierGradientPlaces at(p);
  Tensor dx = empty_like(x);  // [B, K]
  Tensor all = empty_like(x, {at.size});
  if constexpr (kHaveCuda) classify_backward_on(Cuda{}, p, x, w, saved, dloss, dx, all);
  const auto part = [&all](std::int64_t begin, const Tensor& like) {
    return all.slice(begin, begin + like.numel()).reshape(like.shape());
  };
  return {dx, part(at.in_weight, w.in_weight), part(at.in_bias, w.in_bias),
          part(at.out_weight, w.out_weight), part(at.out_bias, w.out_bias)};
}

}  // namespace skytape::tensor
