// Uniform and normal numbers: one counter gives four of them.
#include "tensor/random.hpp"

#include "tensor/launch.hpp"
#include "tensor/philox.hpp"

namespace skytape::tensor {
namespace {

/// Numbers [4 counter, 4 counter + 4) of the sequence, those that fall into out: [n].
template <class T, class Transform> struct Draw {
  std::uint64_t key;
  const std::int32_t* step;
  std::int64_t first;  // number of out[0]
  T* out;              // [n]
  std::int64_t n;

  HD void operator()(std::int64_t i) const {
    const std::int64_t counter = first / 4 + i;
    const philox::Words words =
        philox::draw(key, static_cast<std::uint64_t>(counter), philox::step_of(step));
    float numbers[4];
    Transform()(words, numbers);
    const std::int64_t begin = counter * 4 - first;
    for (int k = 0; k < 4; ++k) {
      if (begin + k >= 0 && begin + k < n) out[begin + k] = static_cast<T>(numbers[k]);
    }
  }
};

struct ToUniform {
  HD void operator()(const philox::Words& words, float* numbers) const {
    for (int k = 0; k < 4; ++k) numbers[k] = philox::uniform(words.w[k]);
  }
};

/// Box-Muller on the word pairs (0, 1) and (2, 3), in cuRAND's order: sine first.
struct ToNormal {
  HD void operator()(const philox::Words& words, float* numbers) const {
    constexpr float kTwoPi = 6.2831855f;
    for (int k = 0; k < 4; k += 2) {
      const float angle =
          static_cast<float>(words.w[k + 1]) * (0x1p-32f * kTwoPi) + 0x1p-33f * kTwoPi;
      const float radius = math::sqrt(-2.0f * math::log(philox::uniform(words.w[k])));
      numbers[k] = radius * math::sin(angle);
      numbers[k + 1] = radius * math::cos(angle);
    }
  }
};

template <class Transform> void draw_into(const Random& random, std::int64_t first, Tensor& out) {
  const std::int64_t n = out.numel();
  if (n == 0) return;
  const std::int64_t counters = (first + n - 1) / 4 - first / 4 + 1;
  const std::int32_t* step = random.step.defined() ? random.step.data<std::int32_t>() : nullptr;
  dispatch_float(out.dtype(), [&]<class T>() {
    map(counters, Draw<T, Transform>{random.key, step, first, out.data<T>(), n});
  });
}

}  // namespace

void uniform_on(Backend, const Random& random, std::int64_t first, Tensor& out) {
  draw_into<ToUniform>(random, first, out);
}
void normal_on(Backend, const Random& random, std::int64_t first, Tensor& out) {
  draw_into<ToNormal>(random, first, out);
}

}  // namespace skytape::tensor
