#include "tensor/gemm/operand.hpp"

#include "tensor/gemm/precision.hpp"

namespace skytape::tensor {

void round_to_bf16_on(Cpu, const Tensor& x, Tensor& y);
void round_to_bf16_on(Cuda, const Tensor& x, Tensor& y);

Tensor as_multiplied(const Tensor& x) {
  if (x.dtype() != DType::f32 || precision(x.device()) != Precision::bf16) return x;
  Tensor y = empty_like(x);
  on_device(x.device(), [&](auto tag) { round_to_bf16_on(tag, x, y); });
  return y;
}

}  // namespace skytape::tensor
