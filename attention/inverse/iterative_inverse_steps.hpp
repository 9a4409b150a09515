// One step of the iterative inverse and its derivative, written once for both ways to run it: on
// one matrix at a time in a core's cache (CPU), or on the whole batch with library products (GPU:
// matrices that iterative_inverse.cu does not take).
//
// `Algebra` offers gemm(op_a, a, op_b, b, c, alpha, beta): c = alpha op(a) op(b) + beta c, and
// shifted(x, scale, shift, y): y = scale x + shift I, on its own `Matrix` handles.
#pragma once

#include "attention/inverse/iterative_inverse.hpp"
#include "tensor/core/device.hpp"
#include "tensor/core/tensor.hpp"
#include "tensor/gemm/gemm.hpp"

namespace skytape::attention {

/// X = M V, R = 15 I - X (7 I - X), P = 13 I - X R and next = V P / 4; all [L, L].
template <class Algebra> void inverse_step(const Algebra& on, const typename Algebra::Matrix& m,
                                           const typename Algebra::Matrix& v,
                                           InverseFactors<typename Algebra::Matrix>& f,
                                           typename Algebra::Matrix& next) {
  on.gemm(Op::none, m, Op::none, v, f.x, 1, 0);
  on.shifted(f.x, -7, 15, f.r);
  on.gemm(Op::none, f.x, Op::none, f.x, f.r, 1, 1);
  on.shifted(f.x, 0, 13, f.p);
  on.gemm(Op::none, f.x, Op::none, f.r, f.p, -1, 1);
  on.gemm(Op::none, v, Op::none, f.p, next, 0.25, 0);
}

/// Gradients on the way back through a step; all [L, L].
template <class Matrix> struct InverseGradients { Matrix dp, dx, dr; };

/// From dnext: dv = gradient of V through this step, dm += gradient of M.
///   next = V P / 4    dP = V^T dnext / 4       dV = dnext P^T / 4
///   P = 13 I - X R    dR = -X^T dP             dX = -dP R^T
///   R = 15 I - 7 X + X X                       dX += -7 dR + dR X^T + X^T dR
///   X = M V           dM += dX V^T             dV += M^T dX
template <class Algebra>
void inverse_step_backward(const Algebra& on, const typename Algebra::Matrix& m,
                           const typename Algebra::Matrix& v,
                           const InverseFactors<typename Algebra::Matrix>& f,
                           InverseGradients<typename Algebra::Matrix>& g,
                           const typename Algebra::Matrix& dnext, typename Algebra::Matrix& dv,
                           typename Algebra::Matrix& dm) {
  on.gemm(Op::transpose, v, Op::none, dnext, g.dp, 0.25, 0);
  on.gemm(Op::none, dnext, Op::transpose, f.p, dv, 0.25, 0);
  on.gemm(Op::transpose, f.x, Op::none, g.dp, g.dr, -1, 0);
  on.shifted(g.dr, -7, 0, g.dx);
  on.gemm(Op::none, g.dp, Op::transpose, f.r, g.dx, -1, 1);
  on.gemm(Op::none, g.dr, Op::transpose, f.x, g.dx, 1, 1);
  on.gemm(Op::transpose, f.x, Op::none, g.dr, g.dx, 1, 1);
  on.gemm(Op::none, g.dx, Op::transpose, v, dm, 1, 1);
  on.gemm(Op::transpose, m, Op::none, g.dx, dv, 1, 1);
}

/// What a device keeps of the steps for their gradient.
enum class InverseKept {
  factors,   // all: the steps are chains of products
  iterates,  // V alone: one launch, which computes X, R and P again on the way back
  planes  // M and all factors, as the kernel stores them: one launch, 1e-4 of the exact steps away
};

/// What the steps below keep of matrices m: [G, L, L]. On CUDA, f32 matrices with L <= 128 are worked
/// on by one or two blocks each, in one launch forward and one backward; at precision bf16 by planes
/// (inverse_planes.cu). Larger ones have no room in a block's shared memory, and f64 is for gradient
/// checks: these keep all, and are chains of library products.
[[nodiscard]] InverseKept inverse_kept_on(Cpu, const Tensor& m);
[[nodiscard]] InverseKept inverse_kept_on(Cuda, const Tensor& m);

/// A trace with its first iterate and memory for the rest; start: [G, L, L].
[[nodiscard]] InverseTrace empty_trace(const Tensor& start, std::int64_t steps,
                                       InverseKept kept = InverseKept::factors);

/// The most blocks that work on a matrix together on CUDA, 1 or 2: two where the device has clusters
/// and runs all pairs at once. For as long as it lives, this says fewer, so that both can be compared.
class InverseBlocks {
 public:
  explicit InverseBlocks(int most);
  ~InverseBlocks();
  InverseBlocks(const InverseBlocks&) = delete;
  InverseBlocks& operator=(const InverseBlocks&) = delete;

 private:
  int before_;
};
[[nodiscard]] int most_inverse_blocks();
/// The blocks that each of `count` matrices of up to 128 rows has, at the device's precision.
[[nodiscard]] int inverse_blocks_on(Cuda, std::int64_t count, std::int64_t size);

/// Every step from the first iterate on. m: [G, L, L]; the trace's tensors are filled in place.
void inverse_steps_on(Cpu, const Tensor& m, InverseTrace& trace);
void inverse_steps_on(Cuda, const Tensor& m, InverseTrace& trace);

/// From dz (of the last iterate) the gradients dm and dstart (of the first), both overwritten; all
/// [G, L, L].
void inverse_steps_backward_on(Cpu, const Tensor& m, const InverseTrace& trace, const Tensor& dz,
                               Tensor& dm, Tensor& dstart);
void inverse_steps_backward_on(Cuda, const Tensor& m, const InverseTrace& trace, const Tensor& dz,
                               Tensor& dm, Tensor& dstart);

/// The batched way, on any device: in fp32 whatever the precision. Tests compare the others with it.
void inverse_steps_batched(const Tensor& m, InverseTrace& trace);
void inverse_steps_backward_batched(const Tensor& m, const InverseTrace& trace, const Tensor& dz,
                                    Tensor& dm, Tensor& dstart);

/// y = scale x + shift I; x, y: [G, L, L]. x is not read where scale is 0.
void shifted_identity_on(Cpu, const Tensor& x, double scale, double shift, Tensor& y);
void shifted_identity_on(Cuda, const Tensor& x, double scale, double shift, Tensor& y);

// The start (1). Where c and argmax hold one entry, it is the whole batch's; else [G].

/// c = 1 / largest and start *= c, in place; start: [G, L, L], M^T before.
void scale_start_on(Cpu, const Tensor& largest, Tensor& c, Tensor& start);
void scale_start_on(Cuda, const Tensor& largest, Tensor& c, Tensor& start);

/// dm += c dV_0^T, in place, and the rows' shares of dc: dc[g, i] = sum_j dV_0^T[i, j] M[i, j];
/// dm, dstart_t, m: [G, L, L], dc: [G, L].
void start_backward_on(Cpu, const Tensor& m, const Tensor& dstart_t, const Tensor& c, Tensor& dm,
                       Tensor& dc);
void start_backward_on(Cuda, const Tensor& m, const Tensor& dstart_t, const Tensor& c, Tensor& dm,
                       Tensor& dc);

/// dm[g, :, argmax] -= c^2 dc, dc being a matrix's shares [G, L] added up, or [1] the batch's.
void add_to_columns_on(Cpu, const Tensor& c, const Tensor& argmax, const Tensor& dc, Tensor& dm);
void add_to_columns_on(Cuda, const Tensor& c, const Tensor& argmax, const Tensor& dc, Tensor& dm);

}  // namespace skytape::attention
