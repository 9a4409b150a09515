// The steps of the iterative inverse and their gradient in one launch each, as exact as fp32 (at
// bf16 where inverse_planes.cu has no room): a block, or on sm_90 a
// pair of blocks where the device runs all pairs at the same time, owns a matrix from the first
// step to the last. iterative_inverse.cpp derives the steps, iterative_inverse_steps.hpp has the
// same as chains of library products.
//
// Two matrices fit into a block's shared memory from sm_80 on (`first` and `second`, 140 of 163 KB
// for 128 rows). A product's result is in registers, so it may replace its operands. Whatever else
// is needed is read again from device memory, where a block's few matrices stay in the L2 cache:
//   forward    M and V, twice a step; keeps the iterates alone;
//   backward   M, V and the gradients; X, R and P are computed again, X and R are put aside.
// A number that only its own thread needs again goes through device memory without a barrier. The
// two blocks of a pair each hold both matrices and form half of a product (square_product.hpp).
#include <cstdint>

#include "attention/inverse/inverse_planes.hpp"
#include "attention/inverse/iterative_inverse_plan.hpp"
#include "attention/inverse/square_product.hpp"
#include "attention/inverse/square_sizes.hpp"
#include "tensor/launch/cuda.hpp"

namespace skytape::attention {
namespace {

using square::Into;
using square::Layout;

constexpr Op kNone = Op::none, kTransposed = Op::transpose;

/// The arrays of a launch; all [G, L, L] but for `later`.
struct Steps {
  const float *m, *start;
  float* later;  // [steps, G, L, L]: the iterates after the start
  std::int64_t count;
  int size, steps;  // L

  // Backward.
  const float* dz;
  float *dm, *dstart;  // dstart: gradient of the step's result, then of its V
  float* aside;        // [G, 2, L, L]: X; R, then -dP R^T

  __device__ std::int64_t elements() const { return std::int64_t{size} * size; }
};

/// A block's work on its matrix; `Product` multiplies, `L` is the matrix's square::Layout.
template <class L, class Product> struct Work {
  const Steps& s;
  float *first, *second;  // [L::kSize, L::kSize], shared
  std::int64_t own;       // first element of the block's matrix

  __device__ explicit Work(const Steps& steps)
      : s(steps),
        first(reinterpret_cast<float*>(cuda::dynamic_shared())),
        second(first + L::kEntries),
        own(blockIdx.x / L::kBlocks * steps.elements()) {}

  __device__ const float* iterate(int t) const {
    return t == 0 ? s.start + own : s.later + (t - 1) * s.count * s.elements() + own;
  }
  __device__ void load(const float* from, float* to) const { square::load<L>(from, s.size, to); }
  template <Op kOpA, Op kOpB>
  __device__ void multiply(const float* a, const float* b, const Into& into) const {
    square::multiply<kOpA, kOpB, Product, L>(a, b, s.size, into);
  }

  __device__ void forward_step(int t) const;
  __device__ void recompute(int t) const;
  __device__ void backward_step(int t) const;
};

/// V is in `second`, before and after.
template <class L, class Product> __device__ void Work<L, Product>::forward_step(int t) const {
  float* const next = s.later + t * s.count * s.elements() + own;
  load(s.m + own, first);
  // X = M V   R = 15 I - 7 X + X X   P = 13 I - X R   next = V P / 4
  multiply<kNone, kNone>(first, second, {.shared = first});
  multiply<kNone, kNone>(first, first,
                         {.shift = 15, .shared = second, .added = first, .factor = -7});
  multiply<kNone, kNone>(first, second, {.scale = -1, .shift = 13, .shared = first});
  load(iterate(t), second);
  multiply<kNone, kNone>(second, first, {.scale = 0.25f, .shared = second, .memory = next});
}

/// X and R aside, P in `second`.
template <class L, class Product> __device__ void Work<L, Product>::recompute(int t) const {
  float *const x = s.aside + 2 * own, *const r = x + s.elements();
  load(s.m + own, first);
  load(iterate(t), second);
  multiply<kNone, kNone>(first, second, {.shared = first, .memory = x});
  multiply<kNone, kNone>(
      first, first, {.shift = 15, .shared = second, .memory = r, .added = first, .factor = -7});
  multiply<kNone, kNone>(first, second, {.scale = -1, .shift = 13, .shared = second});
}

/// inverse_step_backward's equations, in an order that two matrices in shared memory allow. What
/// this step leaves in device memory is loaded by the next one behind the barriers of recompute().
template <class L, class Product> __device__ void Work<L, Product>::backward_step(int t) const {
  const bool last = t == s.steps - 1;
  const float* const x = s.aside + 2 * own;
  float* const rest = s.aside + 2 * own + s.elements();  // R, then dX as far as it has come
  float *const dv = s.dstart + own, *const dm = s.dm + own;
  recompute(t);
  load(last ? s.dz + own : dv, first);
  // dV = dnext P^T / 4   dP = V^T dnext / 4
  multiply<kNone, kTransposed>(first, second, {.scale = 0.25f, .memory = dv});
  load(iterate(t), second);
  multiply<kTransposed, kNone>(second, first, {.scale = 0.25f, .shared = second});
  // dX = -dP R^T   dR = -X^T dP   dX += -7 dR + dR X^T + X^T dR
  load(rest, first);
  multiply<kNone, kTransposed>(second, first, {.scale = -1, .memory = rest});
  load(x, first);
  multiply<kTransposed, kNone>(first, second, {.scale = -1, .shared = second});
  multiply<kNone, kTransposed>(second, first,
                               {.memory = rest, .sum = rest, .added = second, .factor = -7});
  multiply<kTransposed, kNone>(first, second, {.shared = first, .sum = rest});
  // dM += dX V^T   dV += M^T dX
  load(iterate(t), second);
  multiply<kNone, kTransposed>(first, second, {.memory = dm, .sum = last ? nullptr : dm});
  load(s.m + own, second);
  multiply<kTransposed, kNone>(second, first, {.memory = dv, .sum = dv});
}

template <class L, class Product> __global__ void __launch_bounds__(L::kThreads)
    forward_kernel(Steps s) {
  const Work<L, Product> work(s);
  work.load(s.start + work.own, work.second);
#pragma unroll 1
  for (int t = 0; t < s.steps; ++t) work.forward_step(t);
  if constexpr (L::kBlocks > 1) square::sync<L>();  // the other block stores here until then
}

template <class L, class Product> __global__ void __launch_bounds__(L::kThreads)
    backward_kernel(Steps s) {
  const Work<L, Product> work(s);
#pragma unroll 1
  for (int t = s.steps - 1; t >= 0; --t) work.backward_step(t);
}

template <class L> constexpr std::size_t kSharedBytes = 2 * L::kEntries * sizeof(float);

/// Returns whether a pair of blocks a matrix fits on the device for all matrices at the same time.
template <class L, class Product> bool in_pairs(const Steps& s, int most_blocks) {
  if (most_blocks < L::kBlocks || !cuda::has_shared(kSharedBytes<L>)) return false;
  const auto* const kernel = reinterpret_cast<const void*>(backward_kernel<L, Product>);
  return s.count <= cuda::most_pairs(kernel, L::kThreads, kSharedBytes<L>);
}

/// Calls f.operator()<Layout, Product>(): tensor cores wherever the device's products may use them,
/// pairs of blocks wherever all of them run at the same time.
template <class F> void dispatch(const Steps& s, int most_blocks, const F& f) {
  const auto with = [&]<class Product>() {
    square::dispatch_size(s.size, [&]<int kSize>() {
      if constexpr (kSize >= 64) {  // half of 32 rows is less than two rows of warps take
        using Pair = Layout<kSize, 2>;
        if (in_pairs<Pair, Product>(s, most_blocks)) return f.template operator()<Pair, Product>();
      }
      f.template operator()<Layout<kSize, 1>, Product>();
    });
  };
  if (precision(Device::cuda) == Precision::fp32) {
    with.template operator()<square::PlainProduct>();
  } else {
    with.template operator()<square::SplitProduct>();
  }
}

/// One block a matrix, or two.
template <class L> void launch(const char* name, void (*kernel)(Steps), const Steps& s) {
  cuda::launch({.name = name,
                .grid = static_cast<unsigned>(s.count * L::kBlocks),
                .block = L::kThreads,
                .shared_bytes = kSharedBytes<L>,
                .cluster = L::kBlocks},
               kernel, s);
}

Steps steps_of(const Tensor& m, const InverseTrace& trace) {
  Steps s{};
  s.m = m.data<float>();
  s.start = trace.iterates.front().data<float>();
  s.later = trace.together.data<float>();
  s.count = m.size(0);
  s.size = static_cast<int>(m.size(1));
  s.steps = static_cast<int>(trace.together.size(0));
  return s;
}

}  // namespace

InverseKept inverse_kept_on(Cuda, const Tensor& m) {
  const std::int64_t size = m.size(1);
  if (m.dtype() != DType::f32 || size > square::kLargest) return InverseKept::factors;
  if (precision(Device::cuda) == Precision::bf16 && inverse_planes_fit(size)) {
    return InverseKept::planes;
  }
  bool fits = false;
  square::dispatch_size(
      size, [&]<int kSize>() { fits = cuda::has_shared(kSharedBytes<Layout<kSize, 1>>); });
  return fits ? InverseKept::iterates : InverseKept::factors;
}

int inverse_blocks_on(Cuda, std::int64_t count, std::int64_t size, int most_blocks) {
  if (precision(Device::cuda) == Precision::bf16 && inverse_planes_fit(size)) return 1;
  Steps s{};
  s.count = count;
  s.size = static_cast<int>(size);
  int blocks = 0;
  dispatch(s, most_blocks, [&]<class L, class Product>() { blocks = L::kBlocks; });
  return blocks;
}

void inverse_steps_on(Cuda, const Tensor& m, InverseTrace& trace, int most_blocks) {
  if (!trace.factors.empty()) return inverse_steps_batched(m, trace);
  if (trace.planes.defined()) return inverse_steps_by_planes(m, trace);
  const Steps s = steps_of(m, trace);
  dispatch(s, most_blocks, [&]<class L, class Product>() {
    constexpr const char* kName =
        Product::kOnTensorCores ? "iterative inverse 3xTF32" : "iterative inverse";
    launch<L>(kName, forward_kernel<L, Product>, s);
  });
}

void inverse_steps_backward_on(Cuda, const Tensor& m, const InverseTrace& trace, const Tensor& dz,
                               Tensor& dm, Tensor& dstart, int most_blocks) {
  if (!trace.factors.empty()) return inverse_steps_backward_batched(m, trace, dz, dm, dstart);
  if (trace.planes.defined()) return inverse_steps_backward_by_planes(m, trace, dz, dm, dstart);
  const Tensor aside =
      Tensor::empty({m.size(0), 2, m.size(1), m.size(1)}, DType::f32, Device::cuda);
  Steps s = steps_of(m, trace);
  s.dz = dz.data<float>();
  s.dm = dm.data<float>();
  s.dstart = dstart.data<float>();
  s.aside = aside.data<float>();
  dispatch(s, most_blocks, [&]<class L, class Product>() {
    constexpr const char* kName = Product::kOnTensorCores ? "iterative inverse backward 3xTF32"
                                                          : "iterative inverse backward";
    launch<L>(kName, backward_kernel<L, Product>, s);
  });
}

}  // namespace skytape::attention
