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

// The two builds of the kernels behind these (softmax.kernel.cpp).

void softmax_on(Cpu, const Tensor& x, Tensor& y);
void softmax_on(Cuda, const Tensor& x, Tensor& y);
void softmax_backward_on(Cpu, const Tensor& y, const Tensor& dy, Tensor& dx);
void softmax_backward_on(Cuda, const Tensor& y, const Tensor& dy, Tensor& dx);
void logsumexp_on(Cpu, const Tensor& x, Tensor& y);
void logsumexp_on(Cuda, const Tensor& x, Tensor& y);
void logsumexp_backward_on(Cpu, const Tensor& x, const Tensor& y, const Tensor& dy, Tensor& dx);
void logsumexp_backward_on(Cuda, const Tensor& x, const Tensor& y, const Tensor& dy, Tensor& dx);
void cross_entropy_on(Cpu, const Tensor& logits, const Tensor& labels, Tensor& losses,
                      Tensor& dlogits);
void cross_entropy_on(Cuda, const Tensor& logits, const Tensor& labels, Tensor& losses,
                      Tensor& dlogits);
void correct_on(Cpu, const Tensor& logits, const Tensor& labels, Tensor& y);
void correct_on(Cuda, const Tensor& logits, const Tensor& labels, Tensor& y);

}  // namespace skytape::tensor
