#include "attention/landmarks/landmark_middle.hpp"

#include <algorithm>

#include "attention/inverse/square_sizes.hpp"
#include "tensor/core/on_device.hpp"
#include "tensor/gemm/precision.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tensor/movement/layout.hpp"

namespace skytape::attention {
namespace {

/// Blocks of all pairs of sets added up: [B, H, A L, A L] -> [B, H, L, L].
Tensor add_blocks(const Tensor& c, std::int64_t sets) {
  if (sets == 1) return c;
  const std::int64_t size = c.size(2) / sets;
  const Tensor blocks = c.reshape({c.size(0), c.size(1), sets, size, sets, size});
  return tensor::sum(tensor::sum(blocks, 4), 2);
}

/// Its adjoint: [B, H, L, L] -> [B, H, A L, A L].
Tensor repeat_blocks(const Tensor& m, std::int64_t sets) {
  if (sets == 1) return m;
  const std::int64_t b = m.size(0), h = m.size(1), size = m.size(2);
  return tensor::expand(m.reshape({b, h, 1, size, 1, size}), {b, h, sets, size, sets, size})
      .reshape({b, h, sets * size, sets * size});
}

/// Returns whether one kernel does it all. A start that depends on a whole batch and
/// inverse_backward=implicit have none.
bool is_fused(const MiddleConfig& config, const Tensor& w, std::int64_t columns) {
  if constexpr (kHaveCuda) {
    return w.device() == Device::cuda && precision(Device::cuda) == Precision::bf16 &&
           w.dtype() == DType::f32 && config.sets == 1 && config.inverse.start == "per_matrix" &&
           config.inverse.backward == "unrolled" && w.numel() > 0 && columns > 0 &&
           middle_fits(w.size(2), std::max(w.size(3), columns));
  }
  return false;
}

/// Allocates the tensors that the kernels fill, except T.
void keep_memory(MiddleSaved& saved) {
  const auto made = [&](const Shape& shape, DType dtype = DType::f32) {
    return Tensor::empty(shape, dtype, Device::cuda);
  };
  const std::int64_t matrices = saved.w.size(0) * saved.w.size(1), size = saved.w.size(2);
  const std::int64_t rows = square::rows_of(size);
  saved.r = made({matrices, size});
  saved.coefficient = made({matrices});
  saved.argmax = made({matrices}, DType::i32);
  saved.planes = made({matrices, 2 + 4 * saved.config.inverse.steps, rows, rows});
}

}  // namespace

void begin_landmark_middle(const MiddleConfig& config, const Tensor& w, std::int64_t columns,
                           MiddleSaved& saved) {
  ENSURE(w.rank() == 4 && w.size(2) % config.sets == 0, "landmark_middle: expected w [B, H, ",
         config.sets, " L, D], got ", w);
  saved = {};
  saved.config = config;
  saved.columns = columns;
  saved.w = w;
  if (!is_fused(config, w, columns)) return;
  keep_memory(saved);
  on_cuda([&](Cuda) { fused_inverse(saved); });
}

Tensor landmark_middle(const Tensor& p, MiddleSaved& saved) {
  const MiddleConfig& config = saved.config;
  const Tensor& w = saved.w;
  require_same_kind("landmark_middle", {&w, &p});
  ENSURE(p.rank() == 4 && p.size(3) == saved.columns &&
             w.shape().first(3) == p.shape().first(3).with(2, config.sets * p.size(2)),
         "landmark_middle: expected w [B, H, ", config.sets, " L, D] and p [B, H, L, ",
         saved.columns, "], got w ", w, ", p ", p);
  if (saved.planes.defined()) {
    saved.p = p;
    saved.t = empty_like(p);
    on_cuda([&](Cuda) { fused_middle(saved); });
    return saved.t;
  }
  saved.c = kernel_matrix(config.kernel, w, w);                                          // (1)
  const Tensor m = shifted_identity(add_blocks(saved.c, config.sets), 1, config.gamma);  // (1)
  return scaled_inverse_times(m, p, config.inverse, saved.inverse);                      // (2)
}

MiddleGradients landmark_middle_backward(const MiddleSaved& saved, const Tensor& dt) {
  if (saved.planes.defined()) {
    MiddleGradients d{{}, empty_like(saved.p)};
    on_cuda([&](Cuda) { fused_dp(saved, dt, d.dp); });
    return d;
  }
  const ScaledInverseGradients of_t = scaled_inverse_backward(saved.inverse, dt);  // (2)
  const Tensor dc = repeat_blocks(of_t.dm, saved.config.sets);                     // (1)
  return {kernel_matrix_backward(saved.config.kernel, saved.w, saved.c, dc), of_t.dp};
}

void end_landmark_middle_backward(const MiddleSaved& saved, const Tensor& dt, MiddleGradients& d) {
  if (!saved.planes.defined()) return;
  d.dw = empty_like(saved.w);
  on_cuda([&](Cuda) { fused_dw(saved, dt, d.dw); });
}

}  // namespace skytape::attention
