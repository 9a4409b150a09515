// Means of consecutive rows and depthwise convolution along the sequence.
#include "attention/sequence/sequence.hpp"
#include "tensor/launch/narrow_rows.hpp"

namespace skytape::attention {
namespace {

/// Segment j of L holds positions [begin, end) of the nominal ones.
struct Segment {
  std::int64_t begin, end;
  HD Segment(std::int64_t j, std::int64_t segments, std::int64_t nominal)
      : begin(j * nominal / segments), end((j + 1) * nominal / segments) {}
};

template <class T> struct SegmentMean {
  const T *x, *mask;  // [B, H, N, D], [B, N]
  T *scaled, *means;  // [B, H, N, D], [B, H, L, D]
  T scale;
  std::int64_t heads, length, width, segments, nominal;

  template <class Team> HD void operator()(std::int64_t i, const Team& team) const {
    const std::int64_t head = i / segments;
    const Segment segment(i % segments, segments, nominal);
    const std::int64_t end = math::min(segment.end, length);
    const T share = T(1) / static_cast<T>(segment.end - segment.begin);
    const T* const real = mask + head / heads * length;
    const T* const from = x + head * length * width;
    T *const to = scaled + head * length * width, *const mean = means + i * width;
    team.each(width, [=, *this](std::int64_t c) {
      T sum = 0;
      for (std::int64_t row = segment.begin; row < end; ++row) {
        const T value = from[row * width + c] * (scale * real[row]);
        to[row * width + c] = value;
        sum += value;
      }
      mean[c] = share * sum;
    });
  }
};

/// A task has some rows of a head, so that it seldom asks which segment they are in.
template <class T> struct SegmentMeanBackward {
  static constexpr std::int64_t kRows = 8;

  const T *dmeans, *mask;  // [B, H, L, D], [B, N]
  T* dx;                   // [B, H, N, D]
  T scale;
  std::int64_t heads, length, width, segments, nominal, tasks;  // tasks of a head

  template <class Team> HD void operator()(std::int64_t task, const Team& team) const {
    const std::int64_t head = task / tasks, first = task % tasks * kRows;
    const T* const real = mask + head / heads * length;
    std::int64_t j = ((first + 1) * segments - 1) / nominal;
    Segment segment(j, segments, nominal);
    for (std::int64_t row = first; row < math::min(first + kRows, length); ++row) {
      while (row >= segment.end) segment = Segment(++j, segments, nominal);
      const T share = T(1) / static_cast<T>(segment.end - segment.begin);
      const T factor = scale * real[row];
      const auto gradient = [=](T of_row, T of_mean) {
        return factor * (of_row + share * of_mean);
      };
      T* const to = dx + (head * length + row) * width;
      assign(team, width, to, gradient, static_cast<const T*>(to),
             dmeans + (head * segments + j) * width);
    }
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

void segment_means_on(Backend, const Tensor& x, const Tensor& mask, double scale,
                      std::int64_t nominal, SegmentMeans& result) {
  const Tensor &scaled = result.rows, &means = result.means;
  dispatch_float(x.dtype(), [&]<class T>() {
    rows(means.rows(), means.cols(),
         SegmentMean<T>{x.data<T>(), mask.data<T>(), scaled.data<T>(), means.data<T>(), T(scale),
                        x.size(1), x.size(2), x.cols(), means.size(2), nominal});
  });
}

void segment_means_backward_on(Backend, const Tensor& dmeans, const Tensor& mask, double scale,
                               std::int64_t nominal, Tensor& dx) {
  dispatch_float(dx.dtype(), [&]<class T>() {
    using Backward = SegmentMeanBackward<T>;
    const std::int64_t tasks = ceil_div(dx.size(2), Backward::kRows);
    narrow_rows(dx.size(0) * dx.size(1) * tasks, dx.cols(),
                Backward{dmeans.data<T>(), mask.data<T>(), dx.data<T>(), T(scale), dx.size(1),
                         dx.size(2), dx.cols(), dmeans.size(2), nominal, tasks});
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
