// The fused AdamW update.
#include "tensor/kernels/optimizer.hpp"

#include <type_traits>

#include "tensor/core/tensor.hpp"
#include "tensor/launch/narrow_rows.hpp"

namespace skytape::tensor {
namespace {

/// Entries of a team. It reads and divides the scalars once, in f64, which a GPU's lanes wait for:
/// there a team of a small model has a four for each lane, that of a large one four of them.
std::int64_t entries_of_team(std::int64_t all) {
  if constexpr (std::is_same_v<Backend, Cuda>) return all < (std::int64_t{1} << 21) ? 128 : 512;
  return 256;
}

template <class T> struct AdamwBlock {
  AdamwStep step;
  std::int64_t entries;  // of a team
  T* values;             // flat
  const T* gradients;    // flat
  T* m;                  // flat
  T* v;                  // flat

  template <class Team> HD void operator()(std::int64_t block, const Team& team) const {
    const double lr = step.hyper[0];
    const T beta1 = static_cast<T>(step.hyper[1]), beta2 = static_cast<T>(step.beta2);
    const T one_minus_beta1 = static_cast<T>(1 - step.hyper[1]);
    const T one_minus_beta2 = static_cast<T>(1 - step.beta2);
    const T step_size = static_cast<T>(lr / step.hyper[2]);
    const T inverse_root = static_cast<T>(1 / step.hyper[3]);  // 1 / √(1 - β₂^t)
    const T decay = static_cast<T>(1 - lr * step.weight_decay);
    const T epsilon = static_cast<T>(step.epsilon);
    const T clip =
        step.clip_value > 0 ? static_cast<T>(step.clip_value) : std::numeric_limits<T>::infinity();
    const std::int64_t begin = step.begin + block * entries;
    const std::int64_t left = step.end - begin;
    const auto f = [=](T& x, const T gradient, T& first, T& second) {
      T g = gradient > clip ? clip : gradient;  // written so that NaN stays NaN
      g = g < -clip ? -clip : g;
      first = beta1 * first + one_minus_beta1 * g;
      second = beta2 * second + one_minus_beta2 * g * g;
      x = x * decay - step_size * first / (math::sqrt(second) * inverse_root + epsilon);
    };
    update(team, math::min(left, entries), f, values + begin, gradients + begin, m + begin,
           v + begin);
  }
};

}  // namespace

void adamw_on(Backend, const AdamwStep& step, Tensor& values, const Tensor& gradients, Tensor& m,
              Tensor& v) {
  dispatch_float(values.dtype(), [&]<class T>() {
    const std::int64_t all = step.end - step.begin, entries = entries_of_team(all);
    rows(ceil_div(all, entries), entries,
         AdamwBlock<T>{step, entries, values.data<T>(), gradients.data<T>(), m.data<T>(),
                       v.data<T>()});
  });
}

}  // namespace skytape::tensor
