// Depthwise convolution over positions, its adjoint, and the gradient of its weights.
#include "nn/layers/convolution_plan.hpp"
#include "tensor/launch/columns.hpp"
#include "tensor/launch/launch.hpp"
#include "tensor/launch/math.hpp"

namespace skytape::nn {
namespace {

template <class T> struct ConvolveRow {
  const T* x;                           // [B, N, E]
  const T* weight;                      // [taps, E]
  T* y;                                 // [B, N, E]
  std::int64_t positions, width, taps;  // N, E, taps
  bool adjoint;

  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const std::int64_t n = row % positions, middle = taps / 2, e_count = width;
    // Source m = n + t - middle of [0, N); the adjoint reads the same rows with the taps reversed.
    const std::int64_t first = math::max(std::int64_t{0}, middle - n);
    const std::int64_t end = math::min(taps, positions - n + middle);
    const T* const from = x + (row - middle) * e_count;
    const T* const start = weight + (adjoint ? taps - 1 : 0) * e_count;
    const std::int64_t step = adjoint ? -e_count : e_count;
    T* const to = y + row * e_count;
    team.each(e_count, [=](std::int64_t e) {
      T sum = 0;
      for (std::int64_t t = first; t < end; ++t) sum += start[t * step + e] * from[t * e_count + e];
      to[e] = sum;
    });
  }
};

/// Summands of dweight[t, e]: dy[b, n, e] x[b, n + t - middle, e].
template <class T> struct WeightEntry {
  const T* x;   // [B, N, E]
  const T* dy;  // [B, N, E]
  std::int64_t positions, width, middle;
  HD T operator()(int, std::int64_t t, std::int64_t i, std::int64_t e) const {
    const std::int64_t to = t - middle, n = i % positions + to;
    return n < 0 || n >= positions ? T(0) : dy[i * width + e] * x[(i + to) * width + e];
  }
  HD T operator()(int k, std::int64_t t, std::int64_t i) const { return (*this)(k, t, i, 0); }
};

}  // namespace

void convolve_on(Backend, const Tensor& x, const Tensor& weight, Taps taps, Tensor& y) {
  dispatch_float(x.dtype(), [&]<class T>() {
    rows(x.rows(), x.cols(),
         ConvolveRow<T>{x.data<T>(), weight.data<T>(), y.data<T>(), x.size(1), x.cols(),
                        weight.size(0), taps == Taps::adjoint});
  });
}

void convolution_weight_on(Backend, const Tensor& x, const Tensor& dy, Tensor& dweight) {
  dispatch_float(x.dtype(), [&]<class T>() {
    columns<1, T>(
        dweight.size(0), x.rows(), x.cols(),
        WeightEntry<T>{x.data<T>(), dy.data<T>(), x.size(1), x.cols(), dweight.size(0) / 2},
        dweight.data<T>());
  });
}

}  // namespace skytape::nn
