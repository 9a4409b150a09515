// The rounding of as_multiplied().
#include "tensor/gemm/operand.hpp"
#include "tensor/gemm/bf16.hpp"

namespace skytape::tensor {
namespace {

struct Round {
  const float* x;  // [n]
  float* y;        // [n]
  HD void operator()(std::int64_t i) const { y[i] = from_bf16(bf16_bits(x[i])); }
};

}  // namespace

void round_to_bf16_on(Backend, const Tensor& x, Tensor& y) {
  map(x.numel(), Round{x.data<float>(), y.data<float>()});
}

}  // namespace skytape::tensor
