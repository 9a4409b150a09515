// Random keys of the exponential race, and draws by the inverse of a cumulative sum.
#include <limits>

#include "attention/sampling/sampling_plan.hpp"
#include "tensor/launch/launch.hpp"
#include "tensor/random/philox.hpp"

namespace skytape::attention {
namespace {

/// Uniform number i of row r, in (0, 1].
HD inline float uniform_of(const NumberPlan& plan, std::int64_t row, std::int64_t i) {
  const std::int64_t own = plan.alike == 0 ? row : row % plan.alike;
  const std::int64_t e = (plan.first_row + own) * plan.row_length + i;
  const philox::Words words =
      philox::draw(plan.key, static_cast<std::uint64_t>(e / 4), philox::step_of(plan.step));
  return philox::uniform(words.w[e % 4]);
}

template <class T> struct RaceKey {
  NumberPlan plan;
  const T* weights;  // [rows, n]
  T* keys;           // [rows, n]
  std::int64_t n;

  HD void operator()(std::int64_t e) const {
    constexpr T kLeast = std::numeric_limits<T>::min();  // E = -log 1 = 0 must stay comparable
    const T exponential = math::max(-math::log(T(uniform_of(plan, e / n, e % n))), kLeast);
    keys[e] = weights[e] == T(0) ? -std::numeric_limits<T>::infinity()
                                 : math::log(weights[e]) - math::log(exponential);
  }
};

/// One row: sums in order by one thread (the sum decides what is drawn), then one search per draw.
template <class T> struct InvertCumulative {
  NumberPlan plan;
  const T* weights;     // [rows, n]
  T* cumulative;        // [rows, n]
  std::int32_t* index;  // [rows, k]
  std::int64_t n, k;

  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const T* const w = weights + row * n;
    T* const c = cumulative + row * n;
    team.each(1, [&](std::int64_t) {
      double sum = 0;
      for (std::int64_t i = 0; i < n; ++i) {
        sum += w[i];
        c[i] = static_cast<T>(sum);
      }
    });
    team.each(k, [&](std::int64_t j) {
      const T target = T(uniform_of(plan, row, j)) * c[n - 1];  // in (0, total]
      std::int64_t low = 0, high = n - 1;                       // first i with c[i] >= target
      while (low < high) {
        const std::int64_t middle = (low + high) / 2;
        if (c[middle] < target) {
          low = middle + 1;
        } else {
          high = middle;
        }
      }
      index[row * k + j] = static_cast<std::int32_t>(c[n - 1] > T(0) ? low : 0);
    });
  }
};

}  // namespace

void race_keys_on(Backend, const NumberPlan& plan, const Tensor& weights, Tensor& keys) {
  dispatch_float(weights.dtype(), [&]<class T>() {
    map(weights.numel(), RaceKey<T>{plan, weights.data<T>(), keys.data<T>(), weights.cols()});
  });
}

void invert_cumulative_on(Backend, const NumberPlan& plan, const Tensor& weights,
                          Tensor& cumulative, Tensor& index) {
  dispatch_float(weights.dtype(), [&]<class T>() {
    rows(weights.rows(), weights.cols(),
         InvertCumulative<T>{plan, weights.data<T>(), cumulative.data<T>(),
                             index.data<std::int32_t>(), weights.cols(), index.cols()});
  });
}

}  // namespace skytape::attention
