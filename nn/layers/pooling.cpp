#include "nn/layers/pooling.hpp"

#include <cmath>

#include "autograd/initial_values.hpp"
#include "autograd/ops.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"

namespace skytape::nn {
namespace {

Var mean_of_tokens(Var x, const Tensor& mask) {
  const Tensor share =
      tensor::unary(tensor::Unary::reciprocal, tensor::token_counts(mask));  // [B, 1]
  return sum(x, 1) * x.tape().constant(share);
}

/// Returns the term that lowers padded positions, [B, N]: 0 or -1e30. It is not -inf, so that every
/// sum stays finite; a sequence of padding alone has zero rows, whatever their weights.
Tensor below_tokens(const Tensor& mask) {
  constexpr double kFar = 1e30;
  return tensor::affine(mask, kFar, -kFar);
}

Var max_of_tokens(Var x, const Tensor& mask) {
  const std::int64_t batch = x.size(0), n = x.size(1);
  const Var lowered = x + x.tape().constant(below_tokens(mask).reshape({batch, n, 1}));
  const Tensor any = tensor::divide(  // [B, 1]: 1, or 0 where there is no token
      tensor::sum(mask, 1, true), tensor::token_counts(mask));
  return max(lowered, 1) * x.tape().constant(any);
}

Var attention_over_tokens(Var x, const Tensor& mask, Var query) {
  const std::int64_t batch = x.size(0), n = x.size(1), width = x.size(2);
  const Var scores = affine(reshape(matmul(x, query), {batch, 1, n}),
                            1 / std::sqrt(static_cast<double>(width)));  // [B, 1, N]
  const Var below = x.tape().constant(below_tokens(mask).reshape({batch, 1, n}));
  return reshape(matmul(softmax(scores + below), x), {batch, width});
}

}  // namespace

Pool::Pool(ParameterStore& store, Pooling pooling, std::int64_t width, std::int64_t nominal_length)
    : pooling_(pooling), nominal_length_(static_cast<double>(nominal_length)) {
  // Zeros: it starts as the mean.
  if (pooling == Pooling::attention) {
    query_ = &store.add("model.pooling.query", {width, 1}, constant_init(0));
  }
}

Var Pool::operator()(Var x, const Tensor& mask) const {
  switch (pooling_) {
    case Pooling::nominal:
      return affine(sum(x, 1), 1.0 / nominal_length_);
    case Pooling::mean:
      return mean_of_tokens(x, mask);
    case Pooling::first:
    case Pooling::cls:
      return reshape(narrow(x, 1, 0, 1), {x.size(0), x.size(2)});
    case Pooling::max:
      return max_of_tokens(x, mask);
    case Pooling::attention:
      return attention_over_tokens(x, mask, x.tape().parameter(*query_));
  }
  throw Error("pooling: none of nominal, mean, first, cls, max, attention");
}

std::optional<tensor::TokenWeights> Pool::weights() const {
  using Kind = tensor::TokenWeights::Kind;
  switch (pooling_) {
    case Pooling::nominal:
      return tensor::TokenWeights{Kind::nominal, nominal_length_};
    case Pooling::mean:
      return tensor::TokenWeights{Kind::mean};
    case Pooling::first:
    case Pooling::cls:
      return tensor::TokenWeights{Kind::first};
    default:
      return std::nullopt;
  }
}

}  // namespace skytape::nn
