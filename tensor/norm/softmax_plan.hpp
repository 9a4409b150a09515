// The two builds of the kernels behind softmax.cpp; shapes as in softmax.hpp.
#pragma once

#include "tensor/core/tensor.hpp"

namespace skytape::tensor {

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
