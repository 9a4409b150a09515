// The fused AdamW update.
#include "tensor/kernels/optimizer.hpp"

#include <type_traits>

#include "tensor/core/tensor.hpp"
#include "tensor/launch/launch.hpp"

namespace skytape::tensor {
namespace {

// Entries of a team. It reads the scalars once, and on a GPU these reads are serial.
constexpr std::int64_t kEntries = std::is_same_v<Backend, Cuda> ? 64 : 256;

template <class T> struct AdamwBlock {
  AdamwStep step;
  T* values;           // flat
  const T* gradients;  // flat
  T* m;                // flat
  T* v;                // flat

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
    const std::int64_t begin = step.begin + block * kEntries;
    const std::int64_t left = step.end - begin;
    T* const value = values + begin;
    const T* const gradient = gradients + begin;
    T* const m1 = m + begin;
    T* const m2 = v + begin;
    team.each(left < kEntries ? left : kEntries, [=](std::int64_t i) {
      T g = gradient[i];
      g = g > clip ? clip : g;  // written so that NaN stays NaN
      g = g < -clip ? -clip : g;
      const T first = beta1 * m1[i] + one_minus_beta1 * g;
      const T second = beta2 * m2[i] + one_minus_beta2 * g * g;
      m1[i] = first;
      m2[i] = second;
      value[i] =
          value[i] * decay - step_size * first / (math::sqrt(second) * inverse_root + epsilon);
    });
  }
};

}  // namespace

void adamw_on(Backend, const AdamwStep& step, Tensor& values, const Tensor& gradients, Tensor& m,
              Tensor& v) {
  dispatch_float(values.dtype(), [&]<class T>() {
    rows(ceil_div(step.end - step.begin, kEntries), kEntries,
         AdamwBlock<T>{step, values.data<T>(), gradients.data<T>(), m.data<T>(), v.data<T>()});
  });
}

}  // namespace skytape::tensor
