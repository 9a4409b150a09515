// Uniform and normal numbers: a counter gives four of them, a team draws 128.
#include "tensor/random/random.hpp"

#include "tensor/core/tensor.hpp"
#include "tensor/launch/launch.hpp"
#include "tensor/random/philox.hpp"

namespace skytape::tensor {
namespace {

constexpr std::int64_t kCounters = 32;            // per team: whole vectors, a warp
constexpr std::int64_t kNumbers = 4 * kCounters;  // of a block

/// Numbers [128 b, 128 (b + 1)) of the sequence for block b = first_block + row.
template <class T, class Transform> struct DrawBlock {
  std::uint64_t key;
  const std::int32_t* step;
  std::int64_t first_block;
  T* out;  // [blocks, 128]

  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const std::uint64_t subsequence = philox::step_of(step);
    const std::int64_t counter = (first_block + row) * kCounters;
    T* const to = out + row * kNumbers;
    team.each(kCounters, [=, this](std::int64_t i) {
      float numbers[4];
      Transform()(philox::draw(key, static_cast<std::uint64_t>(counter + i), subsequence), numbers);
      for (int k = 0; k < 4; ++k) to[4 * i + k] = static_cast<T>(numbers[k]);
    });
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

/// Draws whole blocks, if need be into scratch, so that a number never depends on how many others
/// are drawn with it: vector and scalar logarithms differ in the last bit.
template <class Transform> void draw_into(const Random& random, std::int64_t first, Tensor& out) {
  const std::int64_t end = first + out.numel();
  if (end == first) return;
  const std::int64_t first_block = first / kNumbers;
  const std::int64_t blocks = ceil_div(end, kNumbers) - first_block;
  const bool direct = first % kNumbers == 0 && end % kNumbers == 0;
  const Tensor target = direct ? out : empty_like(out, {blocks * kNumbers});
  const std::int32_t* step = random.step.data_or_null<std::int32_t>();
  dispatch_float(out.dtype(), [&]<class T>() {
    rows(blocks, kNumbers,
         DrawBlock<T, Transform>{random.key, step, first_block, target.data<T>()});
  });
  if (direct) return;
  const std::int64_t skip = first - first_block * kNumbers;
  out.reshape({out.numel()}).copy_from(target.slice(skip, skip + out.numel()));
}

}  // namespace

void uniform_on(Backend, const Random& random, std::int64_t first, Tensor& out) {
  draw_into<ToUniform>(random, first, out);
}
void normal_on(Backend, const Random& random, std::int64_t first, Tensor& out) {
  draw_into<ToNormal>(random, first, out);
}

}  // namespace skytape::tensor
