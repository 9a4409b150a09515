// Kernel products on the CPU: C is made in tiles of rows that stay in a core's cache, used by every
// product that needs it, and forgotten.
#include "attention/feature_maps/gaussian_kernel_tiles.hpp"

namespace skytape::attention {
namespace {

using namespace kernel_tiles;

template <class T> void run_times(const KernelInputs& in, const Tensor& y, Tensor& out) {
  times<T>(in, y, out,
           [](const Head<T>& head, std::int64_t, std::int64_t row, std::int64_t count, T* c) {
             head.tile(row, count, c);
           });
}

template <class T> void run_transposed(const KernelInputs& in, const Tensor& u, Tensor& out) {
  const std::int64_t landmarks = in.w.size(1), p = u.size(2);
  const Partials<T> sums(in, landmarks * p);  // of C^T u
  each_tile<T>(in, [&](const Head<T>& head, std::int64_t g, std::int64_t chunk, std::int64_t row,
                       std::int64_t count, T* c) {
    head.tile(row, count, c);
    tensor::gemm_cpu<T>(T(1), tensor::transposed<T>({c, count, landmarks}),
                        {u.data<T>() + (g * head.n + row) * p, count, p}, T(1),
                        {sums.at(g, chunk), landmarks, p});
  });
  sums.add_up(out);
}

/// E = dC C in place of dC, with the sums that the Gaussian's norms call for: dx starts as
/// -row_sum(E) x, and column_sum(E) is added to column_sums. c, e: [count, L].
template <class T> void weigh(const Head<T>& head, std::int64_t row, std::int64_t count, const T* c,
                              T* e, T* dx, T* column_sums) {
  for (std::int64_t i = 0; i < count; ++i) {
    const T* const weight = c + i * head.landmarks;
    T* const to = e + i * head.landmarks;
    T total = 0;
#pragma omp simd reduction(+ : total)
    for (std::int64_t j = 0; j < head.landmarks; ++j) {
      const T value = to[j] * weight[j];
      to[j] = value;
      column_sums[j] += value;
      total += value;
    }
    const T* const x = head.x + (row + i) * head.width;
#pragma omp simd
    for (std::int64_t k = 0; k < head.width; ++k) dx[i * head.width + k] = -total * x[k];
  }
}

/// One chunk's share of the gradients.
template <class T> struct FormChunk {
  const KernelInputs& in;
  const Tensor &u, &y;  // [G, N, P], [G, L, P]
  const FormGradients& d;

  /// c, e: [kTile, L]; dw: [L, D], dy: [L, P], column_sums: [L] are added to.
  void run(std::int64_t g, std::int64_t begin, std::int64_t end, T* c, T* e, T* dw, T* dy,
           T* column_sums) const {
    const Head<T> head(in, g);
    const std::int64_t p = u.size(2), width = head.width, landmarks = head.landmarks;
    const T* const factor = y.data<T>() + g * landmarks * p;
    for (std::int64_t row = begin; row < end; row += kTile) {
      const std::int64_t count = std::min(kTile, end - row), at = g * head.n + row;
      const T* const upstream = u.data<T>() + at * p;
      T* const dx = d.dx.data<T>() + at * width;
      head.tile(row, count, c);
      if (d.du.defined()) {
        tensor::gemm_cpu<T>(T(1), {c, count, landmarks}, {factor, landmarks, p}, T(0),
                            {d.du.data<T>() + at * p, count, p});
      }
      if (d.dy.defined()) {
        tensor::gemm_cpu<T>(T(1), tensor::transposed<T>({c, count, landmarks}),
                            {upstream, count, p}, T(1), {dy, landmarks, p});
      }
      tensor::gemm_cpu<T>(T(1), {upstream, count, p}, tensor::transposed<T>({factor, landmarks, p}),
                          T(0), {e, count, landmarks});
      weigh(head, row, count, c, e, dx, column_sums);
      tensor::gemm_cpu<T>(T(1), {e, count, landmarks}, {head.w, landmarks, width},
                          in.gaussian ? T(1) : T(0), {dx, count, width});
      if (d.dw.defined()) {
        tensor::gemm_cpu<T>(T(1), tensor::transposed<T>({e, count, landmarks}),
                            {head.x + row * width, count, width}, T(1), {dw, landmarks, width});
      }
    }
    if (!in.gaussian || !d.dw.defined()) return;
    for (std::int64_t j = 0; j < landmarks; ++j) {
#pragma omp simd
      for (std::int64_t k = 0; k < width; ++k) {
        dw[j * width + k] -= column_sums[j] * head.w[j * width + k];
      }
    }
  }
};

template <class T>
void run_form(const KernelInputs& in, const Tensor& u, const Tensor& y, FormGradients& d) {
  const std::int64_t landmarks = in.w.size(1), width = in.x.size(2), p = u.size(2);
  const Partials<T> dw(in, d.dw.defined() ? landmarks * width : 0), sums(in, landmarks);
  const Partials<T> dy(in, d.dy.defined() ? landmarks * p : 0);
  const FormChunk<T> form{in, u, y, d};
  const auto make = [&] { return Tensor::empty({2, kTile, landmarks}, kDTypeOf<T>, Device::cpu); };
  each_chunk(in, make,
             [&](const Tensor& scratch, std::int64_t g, std::int64_t chunk, std::int64_t begin,
                 std::int64_t end) {
               T* const c = scratch.data<T>();
               form.run(g, begin, end, c, c + kTile * landmarks, dw.at(g, chunk), dy.at(g, chunk),
                        sums.at(g, chunk));
             });
  if (d.dw.defined()) dw.add_up(d.dw);
  if (d.dy.defined()) dy.add_up(d.dy);
}

}  // namespace

void kernel_times_on(Cpu, const KernelInputs& in, const Tensor& y, Tensor& out) {
  dispatch_float(out.dtype(), [&]<class T>() { run_times<T>(in, y, out); });
}
void kernel_transposed_times_on(Cpu, const KernelInputs& in, const Tensor& u, Tensor& out) {
  dispatch_float(out.dtype(), [&]<class T>() { run_transposed<T>(in, u, out); });
}
void kernel_form_backward_on(Cpu, const KernelInputs& in, const Tensor& u, const Tensor& y,
                             FormGradients& d) {
  dispatch_float(u.dtype(), [&]<class T>() { run_form<T>(in, u, y, d); });
}

}  // namespace skytape::attention
