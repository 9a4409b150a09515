// Means of consecutive rows and depthwise convolution along the sequence.
#include "attention/sequence/sequence.hpp"
#include "attention/sequence/sequence_plan.hpp"
#include "tensor/launch/launch.hpp"

namespace skytape::attention {
namespace {

template <class T> struct SegmentMean {
  const T* x;  // [G, N, D]
  T* means;    // [G, L, D]
  std::int64_t rows, width, segments, nominal;

  template <class Team> HD void operator()(std::int64_t i, const Team& team) const {
    const std::int64_t segment = i % segments;
    const std::int64_t begin = segment * nominal / segments,
                       end = (segment + 1) * nominal / segments;
    const std::int64_t stop = end < rows ? end : rows;
    const T scale = T(1) / static_cast<T>(end - begin);
    const T* const from = x + i / segments * rows * width;
    T* const to = means + i * width;
    team.each(width, [&](std::int64_t c) {
      T sum = 0;
      for (std::int64_t row = begin; row < stop; ++row) sum += from[row * width + c];
      to[c] = scale * sum;
    });
  }
};

template <class T> struct AddSegmentMean {
  const T* dmeans;  // [G, L, D]
  T* dx;            // [G, N, D]
  std::int64_t rows, width, segments, nominal;

  template <class Team> HD void operator()(std::int64_t i, const Team& team) const {
    const std::int64_t segment = ((i % rows + 1) * segments - 1) / nominal;
    const std::int64_t begin = segment * nominal / segments,
                       end = (segment + 1) * nominal / segments;
    const T scale = T(1) / static_cast<T>(end - begin);
    const T* const from = dmeans + (i / rows * segments + segment) * width;
    T* const to = dx + i * width;
    team.each(width, [&](std::int64_t c) { to[c] += scale * from[c]; });
  }
};

/// y[i] = sum_t weight[t] x[i + direction (t - W / 2)]: +1 the convolution, -1 its adjoint.
template <class T> struct Convolve {
  const T* x;       // [B, H, N, D]
  const T* weight;  // [H, W]
  T* y;             // [B, H, N, D]
  std::int64_t rows, width, heads, taps, direction;

  template <class Team> HD void operator()(std::int64_t i, const Team& team) const {
    const std::int64_t position = i % rows;
    const T* const from = x + (i - position) * width;
    const T* const w = weight + i / rows % heads * taps;
    T* const to = y + i * width;
    team.each(width, [&](std::int64_t c) { to[c] = T(0); });
    for (std::int64_t t = 0; t < taps; ++t) {
      const std::int64_t source = position + direction * (t - taps / 2);
      if (source < 0 || source >= rows) continue;
      const T factor = w[t];
      team.each(width, [&](std::int64_t c) { to[c] += factor * from[source * width + c]; });
    }
  }
};

/// dweight[h, t] = sum_{b, i, c} dy[b, h, i, c] x[b, h, i + t - W / 2, c]: dot products of shifted
/// runs of memory.
template <class T> struct WeightGradient {
  const T *x, *dy;  // [B, H, N, D]
  T* dweight;       // [H, W]
  std::int64_t batch, rows, width, heads, taps;

  template <class Team> HD void operator()(std::int64_t i, const Team& team) const {
    const std::int64_t shift = i % taps - taps / 2;
    const std::int64_t first = shift < 0 ? -shift : 0;
    const std::int64_t last = shift > 0 ? rows - shift : rows;
    T total = 0;
    for (std::int64_t b = 0; b < batch; ++b) {
      const std::int64_t start = (b * heads + i / taps) * rows;
      const T* const upstream = dy + (start + first) * width;
      const T* const source = x + (start + first + shift) * width;
      const std::int64_t count = last > first ? (last - first) * width : 0;
      total += team.sum(count, [&](std::int64_t e) { return upstream[e] * source[e]; });
    }
    if (team.leader()) dweight[i] = total;
  }
};

}  // namespace

void segment_means_on(Backend, const Tensor& x, std::int64_t nominal, Tensor& means) {
  dispatch_float(x.dtype(), [&]<class T>() {
    rows(means.rows(), means.cols(),
         SegmentMean<T>{x.data<T>(), means.data<T>(), x.size(2), x.cols(), means.size(2), nominal});
  });
}

void add_segment_means_backward_on(Backend, const Tensor& dmeans, std::int64_t nominal,
                                   Tensor& dx) {
  dispatch_float(dx.dtype(), [&]<class T>() {
    rows(dx.rows(), dx.cols(),
         AddSegmentMean<T>{dmeans.data<T>(), dx.data<T>(), dx.size(2), dx.cols(), dmeans.size(2),
                           nominal});
  });
}

void convolve_on(Backend, const Tensor& x, const Tensor& weight, std::int64_t direction,
                 Tensor& y) {
  dispatch_float(x.dtype(), [&]<class T>() {
    rows(x.rows(), x.cols(),
         Convolve<T>{x.data<T>(), weight.data<T>(), y.data<T>(), x.size(2), x.cols(), x.size(1),
                     weight.size(2), direction});
  });
}

void convolution_weight_backward_on(Backend, const Tensor& x, const Tensor& dy, Tensor& dweight) {
  dispatch_float(x.dtype(), [&]<class T>() {
    rows(dweight.numel(), x.numel() / x.size(1),
         WeightGradient<T>{x.data<T>(), dy.data<T>(), dweight.data<T>(), x.size(0), x.size(2),
                           x.cols(), x.size(1), dweight.size(2)});
  });
}

}  // namespace skytape::attention
