// Row softmax, log-sum-exp and softmax cross entropy.
#pragma once

#include <utility>

#include "tensor/core/tensor.hpp"

namespace skytape::tensor {

/// y = exp(x - max) / sum over the last axis. A row of -inf only gives zeros.
[[nodiscard]] Tensor softmax(const Tensor& x);
/// dx = y (dy - sum(y dy)).
[[nodiscard]] Tensor softmax_backward(const Tensor& y, const Tensor& dy);

/// log sum exp over the last axis: [..., n] -> [...]. A row of -inf only gives -inf.
[[nodiscard]] Tensor logsumexp(const Tensor& x);
/// dx = dy exp(x - y).
[[nodiscard]] Tensor logsumexp_backward(const Tensor& x, const Tensor& y, const Tensor& dy);

/// Loss of each example, -log softmax(logits)[label], and dlogits = softmax(logits) -
/// onehot(label). logits: [B, C], labels: i32[B] -> losses [B], gradients [B, C].
[[nodiscard]] std::pair<Tensor, Tensor> cross_entropy(const Tensor& logits, const Tensor& labels);

/// 1 where the largest logit is at the label (the first on ties), else 0: [B], dtype of logits.
[[nodiscard]] Tensor correct(const Tensor& logits, const Tensor& labels);

}  // namespace skytape::tensor
