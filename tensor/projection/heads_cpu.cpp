// CPU half of projections by head: a product for each projection, and gradients side by side.
#include <algorithm>

#include "tensor/gemm/gemm.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tensor/projection/heads_plan.hpp"

namespace skytape::tensor {
namespace {

/// Calls f(D numbers of a head in [B, H, N, D], the same D in rows [B N, H D] whose starts are
/// `stride` apart, D) for each head of each row.
template <class T, class Rows, class F>
void each_head(const HeadsPlan& plan, T* by_head, Rows* rows, std::int64_t stride, const F& f) {
#pragma omp parallel for schedule(static) if (plan.part_size() > cpu::kParallelWork)
  for (std::int64_t row = 0; row < plan.rows(); ++row) {
    const std::int64_t b = row / plan.n, n = row % plan.n;
    for (std::int64_t h = 0; h < plan.heads; ++h) {
      f(by_head + ((b * plan.heads + h) * plan.n + n) * plan.d, rows + row * stride + h * plan.d,
        plan.d);
    }
  }
}

}  // namespace

void project_heads_on(Cpu, const HeadsPlan& plan, const Tensor& x, std::span<const Tensor> weights,
                      std::span<const Tensor> biases, Tensor& y) {
  const Tensor tokens = x.reshape({plan.rows(), plan.width});
  dispatch_float(x.dtype(), [&]<class T>() {
    for (std::int64_t p = 0; p < plan.parts; ++p) {
      const Tensor rows = linear(tokens, weights[p], biases[p]);  // [B N, H D]
      each_head(plan, y.data<T>() + p * plan.part_size(), rows.data<T>(), plan.out(),
                [](T* to, const T* from, std::int64_t d) { std::copy_n(from, d, to); });
    }
  });
}

void gather_heads_on(Cpu, const HeadsPlan& plan, std::span<const Tensor> parts, GatheredHeads& g) {
  if (std::any_of(parts.begin(), parts.end(), [](const Tensor& p) { return !p.defined(); })) {
    g.rows.fill(0);
  }
  dispatch_float(g.rows.dtype(), [&]<class T>() {
    for (std::int64_t p = 0; p < plan.parts; ++p) {
      if (!parts[p].defined()) continue;
      each_head(plan, parts[p].data<T>(), g.rows.data<T>() + p * plan.out(), plan.columns(),
                [](const T* from, T* to, std::int64_t d) { std::copy_n(from, d, to); });
    }
  });
  g.sums = sum(g.rows, 0);
}

}  // namespace skytape::tensor
