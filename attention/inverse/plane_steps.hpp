// The steps of the iterative inverse and their gradient by products of planes (plane_product.hpp),
// for a block that owns a matrix from the first step to the last, CUDA only. iterative_inverse.cpp
// derives them.
//
// Three square matrices lie in a block's shared memory: 209 KB for 128 rows, which sm_90 has. A
// product reads two of them. Forward keeps images of M and of each step's V, X, R and P in device
// memory; backward copies them to whichever matrix is free while a product runs, so that no product
// waits for memory and nothing is computed again.
#pragma once

#include "attention/inverse/plane_product.hpp"

namespace skytape::attention::planes {

/// A block's matrices; `Slot` is what each has room for.
template <class L, class Slot = Square<L>> struct Work {
  static constexpr Op kNone = Op::none, kTransposed = Op::transpose;
  static constexpr int kEntries = L::kSize * L::kSize;

  Number* images;  // [2 + 4 steps, kImage]: M; V, X, R and P of each step; Z
  int steps;

  template <class M = Square<L>> __device__ static M& shared(int i) {
    static_assert(sizeof(M) <= sizeof(Slot));
    return reinterpret_cast<M&>(reinterpret_cast<Slot*>(cuda::dynamic_shared())[i]);
  }
  __device__ Number* image(int i) const {
    return images + static_cast<std::int64_t>(i) * kImage<L>;
  }
  __device__ Number* m() const { return image(0); }
  __device__ Number* v(int t) const { return image(1 + 4 * t); }  // v(steps): Z
  __device__ Number* x(int t) const { return image(2 + 4 * t); }
  __device__ Number* r(int t) const { return image(3 + 4 * t); }
  __device__ Number* p(int t) const { return image(4 + 4 * t); }

  __device__ __forceinline__ Result<L> forward() const;
  __device__ __forceinline__ int backward(float* aside) const;
  __device__ __forceinline__ void x_gradient(int t, Square<L>& first, Square<L>& second,
                                             Square<L>& third) const;
};

/// Z, from M in shared(0) and V_0 in shared(2), which is read last.
///   X = M V   R = 15 I - 7 X + X X   P = 13 I - X R   V <- V P / 4
template <class L, class Slot> __device__ __forceinline__ Result<L> Work<L, Slot>::forward() const {
  Square<L>&first = shared(0), &second = shared(1), &third = shared(2);
#pragma unroll 1
  for (int t = 0;; ++t) {
    sync();
    if (t == 0) keep<L>(first, m());
    Result<L> sums;
    sums.template add<kNone, kNone>(first, third, Keep<L>{third, v(t)});  // X
    sums.store(second);
    sums.affine(-7, 15);
    sync();
    sums.template add<kNone, kNone>(second, second, Keep<L>{second, x(t)});  // R
    sums.store(first);
    sync();
    Result<L> next;
    next.template add<kNone, kNone>(second, first, Keep<L>{first, r(t)});
    next.affine(-1, 13);  // P
    __syncthreads();
    next.store(second);
    sync();
    if (t == steps - 1) break;
    begin_load<L>(m(), first);
    Result<L> iterate;
    iterate.template add<kNone, kNone>(third, second, Keep<L>{second, p(t)});
    iterate.affine(0.25f);
    __syncthreads();
    iterate.store(third);
  }
  Result<L> z;
  z.template add<kNone, kNone>(third, second, Keep<L>{second, p(steps - 1)});
  z.affine(0.25f);
  return z;
}

/// dX to second, from dP in first and R in second: -dX = dP R^T - 7 N + N X^T + X^T N. V is on its
/// way to first then.
template <class L, class Slot>
__device__ __forceinline__ void Work<L, Slot>::x_gradient(int t, Square<L>& first,
                                                          Square<L>& second,
                                                          Square<L>& third) const {
  Result<L> dx;
  dx.template add<kNone, kTransposed>(first, second, Load<L>{x(t), third});
  sync();
  {
    Result<L> n;
    n.template add<kTransposed, kNone>(third, first);
    n.store(second);
    dx.add_scaled(n, -7);
  }
  sync();
  dx.template add<kNone, kTransposed>(second, third, Load<L>{v(t), first});
  dx.template add<kTransposed, kNone>(third, second);
  dx.affine(-1);
  __syncthreads();
  dx.store(second);
}

/// From dZ in shared(0), and P of the last step being copied to shared(1), the gradients of V_0
/// and, as far as it comes from the steps, of M: aside, [2, kSize, kSize] in the threads' order.
/// Returns which matrix holds M then; others are free after a barrier. inverse_step_backward's
/// equations, with N = X^T dP = -dR.
template <class L, class Slot>
__device__ __forceinline__ int Work<L, Slot>::backward(float* aside) const {
  float *const dv_aside = aside, *const dm_aside = aside + kEntries;
  int a = 0, b = 1, c = 2;  // they change places from step to step
#pragma unroll 1
  for (int t = steps - 1; t >= 0; --t) {
    Square<L>&first = shared(a), &second = shared(b), &third = shared(c);
    sync();
    {  // dV = dnext P^T / 4
      Result<L> dv;
      dv.template add<kNone, kTransposed>(first, second, Load<L>{v(t), third});
      dv.affine(0.25f);
      dv.put_aside(dv_aside);
    }
    sync();
    {  // dP = V^T dnext / 4
      Result<L> dp;
      dp.template add<kTransposed, kNone>(third, first, Load<L>{r(t), second});
      dp.affine(0.25f);
      __syncthreads();
      dp.store(first);
    }
    sync();
    x_gradient(t, first, second, third);
    {  // dM += dX V^T
      Result<L> dm;
      if (t < steps - 1) dm.take_back(dm_aside);
      sync();
      dm.template add<kNone, kTransposed>(second, first, Load<L>{m(), third});
      dm.put_aside(dm_aside);
    }
    Result<L> dv;  // += M^T dX
    dv.take_back(dv_aside);
    sync();
    if (t > 0) begin_load<L>(p(t - 1), first);
    dv.template add<kTransposed, kNone>(third, second);
    if (t > 0) {
      __syncthreads();
      dv.store(third);
    } else {
      dv.put_aside(dv_aside);
    }
    const int before = a;
    a = c;
    c = b;
    b = before;
  }
  return a;
}

}  // namespace skytape::attention::planes
