// Scores of the blocks that are there.
#include <limits>

#include "attention/sinkhorn/sinkhorn.hpp"
#include "tensor/launch/launch.hpp"

namespace skytape::attention {
namespace {

template <class T> struct PresentScores {
  const T *s, *noise;  // [B, H, Q, Q]; noise may be null
  const T* present;    // [B, Q]
  T* scores;           // [B, H, Q, Q]
  std::int64_t size, heads;
  T inverse_temperature;

  HD void operator()(std::int64_t e) const {
    const std::int64_t j = e % size, i = e / size % size, b = e / (size * size * heads);
    const bool row = present[b * size + i] != T(0), column = present[b * size + j] != T(0);
    const T alone = i == j ? T(0) : -std::numeric_limits<T>::infinity();
    const T value = (s[e] + (noise != nullptr ? noise[e] : T(0))) * inverse_temperature;
    scores[e] = row && column ? value : alone;
  }
};

}  // namespace

void sinkhorn_scores_on(Backend, const Tensor& s, const Tensor& noise, const Tensor& present,
                        double temperature, Tensor& scores) {
  dispatch_float(s.dtype(), [&]<class T>() {
    map(s.numel(),
        PresentScores<T>{s.data<T>(), noise.data_or_null<T>(), present.data<T>(), scores.data<T>(),
                         s.cols(), s.size(1), static_cast<T>(1 / temperature)});
  });
}

}  // namespace skytape::attention
