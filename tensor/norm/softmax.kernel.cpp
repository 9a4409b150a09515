// Row kernels around exp(x - max).
#include "tensor/norm/softmax.hpp"

#include "tensor/launch/launch.hpp"

namespace skytape::tensor {
namespace {

/// Returns the shift of a row before exp: its maximum, or 0 where that is infinite. A row of -inf
/// then sums to 0 instead of NaN, and NaN and +inf stay visible.
template <class T, class Team> HD T row_shift(const T* x, std::int64_t n, const Team& team) {
  const T best = team.max(n, [=](std::int64_t i) { return x[i]; });
  return best - best == T(0) ? best : T(0);
}

template <class T> struct SoftmaxRow {
  const T* x;  // [rows, n]
  T* y;        // [rows, n]
  std::int64_t n;
  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const T* const from = x + row * n;
    T* const to = y + row * n;
    const T shift = row_shift(from, n, team);
    team.each(n, [=](std::int64_t i) { to[i] = math::exp(from[i] - shift); });
    const T total = team.sum(n, [=](std::int64_t i) { return to[i]; });
    const T scale = total == T(0) ? T(0) : T(1) / total;
    team.each(n, [=](std::int64_t i) { to[i] *= scale; });
  }
};

template <class T> struct SoftmaxBackwardRow {
  const T* y;   // [rows, n]
  const T* dy;  // [rows, n]
  T* dx;        // [rows, n]
  std::int64_t n;
  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const T* const p = y + row * n;
    const T* const g = dy + row * n;
    T* const to = dx + row * n;
    const T dot = team.sum(n, [=](std::int64_t i) { return p[i] * g[i]; });
    team.each(n, [=](std::int64_t i) { to[i] = p[i] * (g[i] - dot); });
  }
};

template <class T> struct LogsumexpRow {
  const T* x;  // [rows, n]
  T* y;        // [rows]
  std::int64_t n;
  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const T* const from = x + row * n;
    const T shift = row_shift(from, n, team);
    const T total = team.sum(n, [=](std::int64_t i) { return math::exp(from[i] - shift); });
    if (team.leader()) y[row] = shift + math::log(total);
  }
};

template <class T> struct LogsumexpBackwardRow {
  const T* x;   // [rows, n]
  const T* y;   // [rows]
  const T* dy;  // [rows]
  T* dx;        // [rows, n]
  std::int64_t n;
  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const T* const from = x + row * n;
    T* const to = dx + row * n;
    const T g = dy[row];
    // A row of -inf has no entry that moves its result: exp(-inf - 0) = 0 instead of NaN.
    const T shift = y[row] == -std::numeric_limits<T>::infinity() ? T(0) : y[row];
    team.each(n, [=](std::int64_t i) { to[i] = g * math::exp(from[i] - shift); });
  }
};

template <class T> struct CrossEntropyRow {
  const T* logits;             // [B, C]
  const std::int32_t* labels;  // [B]
  T* losses;                   // [B]
  T* dlogits;                  // [B, C]
  std::int64_t c;              // C
  template <class Team> HD void operator()(std::int64_t b, const Team& team) const {
    const T* const from = logits + b * c;
    T* const to = dlogits + b * c;
    const std::int64_t label = labels[b];
    const bool valid = label >= 0 && label < c;
    const T invalid = std::numeric_limits<T>::quiet_NaN();
    const T shift = row_shift(from, c, team);
    const T total = team.sum(c, [=](std::int64_t i) { return math::exp(from[i] - shift); });
    const T scale = valid ? T(1) / total : invalid;
    team.each(c, [=](std::int64_t i) {
      to[i] = math::exp(from[i] - shift) * scale - (i == label ? T(1) : T(0));
    });
    if (team.leader()) losses[b] = valid ? math::log(total) - (from[label] - shift) : invalid;
  }
};

template <class T> struct CorrectRow {
  const T* logits;             // [B, C]
  const std::int32_t* labels;  // [B]
  T* y;                        // [B]
  std::int64_t c;              // C
  template <class Team> HD void operator()(std::int64_t b, const Team& team) const {
    const T* const from = logits + b * c;
    const std::int64_t label = labels[b];
    const bool valid = label >= 0 && label < c;
    const T at_label = from[valid ? label : 0];
    // Entries that argmax prefers to the label: larger ones, equal ones before it, and NaN.
    const T preferred = team.sum(c, [=](std::int64_t i) {
      const bool behind = from[i] < at_label || (from[i] == at_label && i >= label);
      return behind ? T(0) : T(1);
    });
    if (team.leader()) y[b] = valid && preferred == T(0) ? T(1) : T(0);
  }
};

}  // namespace

void softmax_on(Backend, const Tensor& x, Tensor& y) {
  dispatch_float(x.dtype(), [&]<class T>() {
    rows(x.rows(), x.cols(), SoftmaxRow<T>{x.data<T>(), y.data<T>(), x.cols()});
  });
}

void softmax_backward_on(Backend, const Tensor& y, const Tensor& dy, Tensor& dx) {
  dispatch_float(y.dtype(), [&]<class T>() {
    rows(y.rows(), y.cols(),
         SoftmaxBackwardRow<T>{y.data<T>(), dy.data<T>(), dx.data<T>(), y.cols()});
  });
}

void logsumexp_on(Backend, const Tensor& x, Tensor& y) {
  dispatch_float(x.dtype(), [&]<class T>() {
    rows(x.rows(), x.cols(), LogsumexpRow<T>{x.data<T>(), y.data<T>(), x.cols()});
  });
}

void logsumexp_backward_on(Backend, const Tensor& x, const Tensor& y, const Tensor& dy,
                           Tensor& dx) {
  dispatch_float(x.dtype(), [&]<class T>() {
    rows(x.rows(), x.cols(),
         LogsumexpBackwardRow<T>{x.data<T>(), y.data<T>(), dy.data<T>(), dx.data<T>(), x.cols()});
  });
}

void cross_entropy_on(Backend, const Tensor& logits, const Tensor& labels, Tensor& losses,
                      Tensor& dlogits) {
  dispatch_float(logits.dtype(), [&]<class T>() {
    rows(logits.rows(), logits.cols(),
         CrossEntropyRow<T>{logits.data<T>(), labels.data<std::int32_t>(), losses.data<T>(),
                            dlogits.data<T>(), logits.cols()});
  });
}

void correct_on(Backend, const Tensor& logits, const Tensor& labels, Tensor& y) {
  dispatch_float(logits.dtype(), [&]<class T>() {
    rows(logits.rows(), logits.cols(),
         CorrectRow<T>{logits.data<T>(), labels.data<std::int32_t>(), y.data<T>(), logits.cols()});
  });
}

}  // namespace skytape::tensor
