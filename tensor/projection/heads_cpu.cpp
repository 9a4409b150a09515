// CPU half of project_heads, as its definition reads: a product for each projection.
#include "tensor/gemm/gemm.hpp"
#include "tensor/movement/layout.hpp"
#include "tensor/projection/heads_plan.hpp"

namespace skytape::tensor {

void project_heads_on(Cpu, const HeadsPlan& plan, const Tensor& x, std::span<const Tensor> weights,
                      std::span<const Tensor> biases, Tensor& y) {
  const Tensor rows = x.reshape({plan.rows(), plan.width});
  for (std::size_t p = 0; p < weights.size(); ++p) {
    const Tensor flat = linear(rows, weights[p], biases[p]);  // [B N, H D]
    Tensor part = y[static_cast<std::int64_t>(p)];            // [B, H, N, D]
    part.copy_from(swap_middle(flat.reshape({plan.batch, plan.n, plan.heads, plan.d})));
  }
}

}  // namespace skytape::tensor
