// The steps of the iterative inverse and their gradient at precision bf16, in one launch each: a
// block owns a matrix from the first step to the last (plane_steps.hpp).
#include <cstdint>

#include "attention/inverse/inverse_planes.hpp"
#include "attention/inverse/plane_steps.hpp"
#include "attention/inverse/square_sizes.hpp"
#include "tensor/launch/cuda.hpp"

namespace skytape::attention {
namespace {

using planes::Layout;
using planes::Result;
using planes::Square;
using planes::Work;

/// The arrays of a launch; all [G, L, L] but for images and aside.
struct Steps {
  const float *m, *start;  // forward
  float* result;           // Z
  planes::Number* images;  // [G, 2 + 4 steps, kImage]
  int size, steps;         // L

  // Backward.
  const float* dz;
  float *dm, *dstart;
  float* aside;  // [G, 2, kSize, kSize]

  __device__ std::int64_t own() const { return std::int64_t{blockIdx.x} * size * size; }
  template <class L> __device__ Work<L> work() const {
    return {images + blockIdx.x * (2 + 4 * std::int64_t{steps}) * planes::kImage<L>, steps};
  }
};

/// f32 entries as they are.
template <class L> __device__ void load(const float* from, int size, Square<L>& to) {
  planes::load<L>(from, size, size, to, [](int, float x) { return x; });
}

template <class L> __global__ void __launch_bounds__(L::kThreads) forward_kernel(Steps s) {
  const Work<L> work = s.work<L>();
  load<L>(s.m + s.own(), s.size, work.shared(0));
  load<L>(s.start + s.own(), s.size, work.shared(2));
  work.forward().store(s.result + s.own(), s.size, s.size);
}

template <class L> __global__ void __launch_bounds__(L::kThreads) backward_kernel(Steps s) {
  const Work<L> work = s.work<L>();
  load<L>(s.dz + s.own(), s.size, work.shared(0));
  planes::begin_load<L>(work.p(s.steps - 1), work.shared(1));
  float* const aside = s.aside + std::int64_t{blockIdx.x} * 2 * work.kEntries;
  (void)work.backward(aside);
  Result<L> gradient;
  gradient.take_back(aside + work.kEntries);
  gradient.store(s.dm + s.own(), s.size, s.size);
  gradient.take_back(aside);
  gradient.store(s.dstart + s.own(), s.size, s.size);
}

template <class L> constexpr std::size_t kSharedBytes = 3 * sizeof(Square<L>);

/// A block for each of `count` matrices.
template <class L>
void launch(const char* name, void (*kernel)(Steps), const Steps& s, std::int64_t count) {
  cuda::launch({name, static_cast<unsigned>(count), L::kThreads, kSharedBytes<L>}, kernel, s);
}

Steps steps_of(const Tensor& m, const InverseTrace& trace) {
  Steps s{};
  s.images = reinterpret_cast<planes::Number*>(trace.planes.data<float>());
  s.size = static_cast<int>(m.size(1));
  s.steps = static_cast<int>((trace.planes.size(1) - 2) / 4);
  return s;
}

}  // namespace

bool inverse_planes_fit(std::int64_t size) {
  bool fit = false;
  square::dispatch_size(size,
                        [&]<int kSize>() { fit = cuda::has_shared(kSharedBytes<Layout<kSize>>); });
  return fit;
}

void inverse_steps_by_planes(const Tensor& m, InverseTrace& trace) {
  Steps s = steps_of(m, trace);
  s.m = m.data<float>();
  s.start = trace.iterates.front().data<float>();
  s.result = trace.iterates.back().data<float>();
  square::dispatch_size(s.size, [&]<int kSize>() {
    using L = Layout<kSize>;
    launch<L>("iterative inverse bf16x3", forward_kernel<L>, s, m.size(0));
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
    launch<L>("iterative inverse backward bf16x3", backward_kernel<L>, s, m.size(0));
  });
}

}  // namespace skytape::attention
