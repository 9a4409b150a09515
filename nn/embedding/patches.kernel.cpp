// The intensities around each pixel.
#include "nn/embedding/patches.hpp"
#include "tensor/launch/launch.hpp"

namespace skytape::nn {
namespace {

constexpr std::int32_t kIntensities = 256;  // ids behind them stand for no intensity

template <class T> struct PatchIntensities {
  const std::int32_t* ids;  // [B, N]
  T* intensities;           // [B, N, side²]
  std::int64_t n, columns, side;

  HD void operator()(std::int64_t at) const {
    const std::int64_t position = at % n, row = position / columns, column = position % columns;
    const std::int32_t* const picture = ids + (at - position);  // [N]
    T* to = intensities + at * side * side;
    for (std::int64_t r = row - side / 2; r <= row + side / 2; ++r) {
      for (std::int64_t c = column - side / 2; c <= column + side / 2; ++c) {
        const bool inside = r >= 0 && c >= 0 && c < columns && r * columns + c < n;
        const std::int32_t id = inside ? picture[r * columns + c] : kIntensities;
        *to++ = id < kIntensities ? T(2) * T(id) / T(kIntensities - 1) - T(1) : T(0);
      }
    }
  }
};

}  // namespace

void patch_intensities_on(Backend, const Tensor& ids, std::int64_t columns, std::int64_t side,
                          Tensor& intensities) {
  dispatch_float(intensities.dtype(), [&]<class T>() {
    map(ids.numel(), PatchIntensities<T>{ids.data<std::int32_t>(), intensities.data<T>(),
                                         ids.size(1), columns, side});
  });
}

}  // namespace skytape::nn
