// The steps of the iterative inverse and their gradient at precision bf16, in one launch each: a block
// owns a matrix from the first step to the last. The mathematics, and the same as a chain of library
// products, is in iterative_inverse_steps.hpp.
//
// Three matrices, split (plane_product.hpp), lie in a block's shared memory: 209 KB for 128 rows, which
// sm_90 has. A product reads two of them. Forward keeps images of M and of each step's V, X, R and P in
// device memory; backward copies them to whichever matrix is free while a product runs, so that no
// product waits for memory and nothing is computed again.
#include <algorithm>
#include <cstdint>
#include <utility>

#include "attention/inverse/inverse_planes.hpp"
#include "attention/inverse/plane_product.hpp"
#include "attention/inverse/square_sizes.hpp"
#include "tensor/launch/cuda.hpp"

namespace skytape::attention {
namespace {

using planes::begin_load;
using planes::keep;
using planes::kImage;
using planes::Layout;
using planes::Matrix;
using planes::meet;
using planes::Number;
using planes::Result;

constexpr Op kNone = Op::none, kTransposed = Op::transpose;

/// Of a launch; all [G, L, L] but for images and aside.
struct Steps {
  const float *m, *start;  // forward
  float* result;           // Z
  Number* images;          // [G, 1 + 4 steps, kImage]: M; V, X, R and P of each step
  int size, steps;         // L

  // Backward.
  const float* dz;
  float *dm, *dstart;
  float* aside;  // [G, 2, kSize, kSize]: dV, dM, in the threads' order
};

/// A block's matrices.
template <class L> struct Work {
  const Steps& s;
  std::int64_t own;  // first entry of the block's matrix
  Number* images;

  __device__ explicit Work(const Steps& steps)
      : s(steps),
        own(std::int64_t{blockIdx.x} * s.size * s.size),
        images(s.images + blockIdx.x * (1 + 4 * std::int64_t{s.steps}) * kImage<L>) {}

  __device__ static Matrix<L>& shared(int i) {
    return reinterpret_cast<Matrix<L>*>(cuda::dynamic_shared())[i];
  }
  __device__ Number* image(int t, int i) const { return images + (1 + 4 * t + i) * kImage<L>; }
  __device__ Number* v(int t) const { return image(t, 0); }
  __device__ Number* x(int t) const { return image(t, 1); }
  __device__ Number* r(int t) const { return image(t, 2); }
  __device__ Number* p(int t) const { return image(t, 3); }
};

/// X = M V   R = 15 I - 7 X + X X   P = 13 I - X R   V <- V P / 4
template <class L> __global__ void __launch_bounds__(L::kThreads) forward_kernel(Steps s) {
  const Work<L> work(s);
  Matrix<L>&first = work.shared(0), &second = work.shared(1), &v = work.shared(2);
  planes::load<L>(s.m + work.own, s.size, first);
  planes::load<L>(s.start + work.own, s.size, v);
#pragma unroll 1
  for (int t = 0; t < s.steps; ++t) {
    meet();
    if (t == 0) keep(first, work.images);
    keep(v, work.v(t));
    Result<L> x;
    x.template add<kNone, kNone>(first, v);
    x.store(second);
    x.affine(-7, 15);
    meet();
    keep(second, work.x(t));
    x.template add<kNone, kNone>(second, second);  // R
    x.store(first);
    meet();
    keep(first, work.r(t));
    Result<L> p;
    p.template add<kNone, kNone>(second, first);
    p.affine(-1, 13);
    __syncthreads();
    p.store(second);
    meet();
    keep(second, work.p(t));
    if (t == s.steps - 1) break;
    begin_load(work.images, first);
    Result<L> next;
    next.template add<kNone, kNone>(v, second);
    next.affine(0.25f);
    __syncthreads();
    next.store(v);
  }
  Result<L> z;
  z.template add<kNone, kNone>(v, second);
  z.affine(0.25f);
  z.store(s.result + work.own, s.size);
}

/// inverse_step_backward's equations, with N = X^T dP = -dR.
template <class L> __global__ void __launch_bounds__(L::kThreads) backward_kernel(Steps s) {
  const Work<L> work(s);
  constexpr std::int64_t kEntries = L::kSize * L::kSize;
  float* const dv_aside = s.aside + 2 * blockIdx.x * kEntries;
  float* const dm_aside = dv_aside + kEntries;
  // dnext is in a, P is or is being copied to b. The three change places from step to step.
  int a = 0, b = 1, c = 2;
  planes::load<L>(s.dz + work.own, s.size, work.shared(a));
  begin_load(work.p(s.steps - 1), work.shared(b));
#pragma unroll 1
  for (int t = s.steps - 1; t >= 0; --t) {
    Matrix<L>&first = work.shared(a), &second = work.shared(b), &third = work.shared(c);
    meet();
    begin_load(work.v(t), third);
    {  // dV = dnext P^T / 4
      Result<L> dv;
      dv.template add<kNone, kTransposed>(first, second);
      dv.affine(0.25f);
      dv.put_aside(dv_aside);
    }
    meet();
    begin_load(work.r(t), second);
    {  // dP = V^T dnext / 4
      Result<L> dp;
      dp.template add<kTransposed, kNone>(third, first);
      dp.affine(0.25f);
      __syncthreads();
      dp.store(first);
    }
    // -dX = dP R^T - 7 N + N X^T + X^T N
    Result<L> dx;
    meet();
    begin_load(work.x(t), third);
    dx.template add<kNone, kTransposed>(first, second);
    meet();
    {
      Result<L> n;
      n.template add<kTransposed, kNone>(third, first);
      n.store(second);
      dx.add_scaled(n, -7);
    }
    meet();
    begin_load(work.v(t), first);
    dx.template add<kNone, kTransposed>(second, third);
    dx.template add<kTransposed, kNone>(third, second);
    dx.affine(-1);
    __syncthreads();
    dx.store(second);
    {  // dM += dX V^T
      Result<L> dm;
      if (t < s.steps - 1) dm.take_back(dm_aside);
      meet();
      begin_load(work.images, third);
      dm.template add<kNone, kTransposed>(second, first);
      dm.put_aside(dm_aside);
    }
    Result<L> dv;  // += M^T dX
    dv.take_back(dv_aside);
    meet();
    if (t > 0) begin_load(work.p(t - 1), first);
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
  Result<L> gradient;
  gradient.take_back(dm_aside);
  gradient.store(s.dm + work.own, s.size);
  gradient.take_back(dv_aside);
  gradient.store(s.dstart + work.own, s.size);
}

template <class L> constexpr std::size_t kSharedBytes = 3 * sizeof(Matrix<L>);

/// A block for each of `count` matrices.
template <class L> void launch(const char* name, void (*kernel)(Steps), const Steps& s,
                               std::int64_t count, std::int64_t products) {
  const std::int64_t size = s.size;
  cuda::allow_shared(name, kernel, kSharedBytes<L>);
  cuda::computes(products * s.steps * count * size * size * size);
  cuda::launch(name, kernel, static_cast<unsigned>(count), L::kThreads, kSharedBytes<L>, s);
}

Steps steps_of(const Tensor& m, const InverseTrace& trace) {
  Steps s{};
  s.images = reinterpret_cast<Number*>(trace.planes.data<float>());
  s.size = static_cast<int>(m.size(1));
  s.steps = static_cast<int>((trace.planes.size(1) - 1) / 4);
  return s;
}

}  // namespace

bool inverse_planes_fit(std::int64_t size) {
  bool fit = false;
  square::dispatch_size(size,
                        [&]<int kSize>() { fit = cuda::has_shared(kSharedBytes<Layout<kSize>>); });
  return fit;
}

// The kernels' names tell a GpuCount's reader which rate applies (train/bench/roofline.cpp).

void inverse_steps_by_planes(const Tensor& m, InverseTrace& trace) {
  Steps s = steps_of(m, trace);
  s.m = m.data<float>();
  s.start = trace.iterates.front().data<float>();
  s.result = trace.iterates.back().data<float>();
  square::dispatch_size(s.size, [&]<int kSize>() {
    using L = Layout<kSize>;
    launch<L>("iterative inverse bf16x3", forward_kernel<L>, s, m.size(0), 4);
  });
}

void inverse_steps_backward_by_planes(const Tensor& m, const InverseTrace& trace, const Tensor& dz,
                                      Tensor& dm, Tensor& dstart) {
  Steps s = steps_of(m, trace);
  const std::int64_t rows = trace.planes.size(2);
  const Tensor aside = Tensor::empty({m.size(0), 2, rows, rows}, DType::f32, Device::cuda);
  s.dz = dz.data<float>();
  s.dm = dm.data<float>();
  s.dstart = dstart.data<float>();
  s.aside = aside.data<float>();
  square::dispatch_size(s.size, [&]<int kSize>() {
    using L = Layout<kSize>;
    launch<L>("iterative inverse backward bf16x3", backward_kernel<L>, s, m.size(0), 8);
  });
}

}  // namespace skytape::attention
