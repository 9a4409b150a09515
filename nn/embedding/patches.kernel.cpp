// The grey values around each pixel.
#include "nn/embedding/patches.hpp"
#include "tensor/launch/launch.hpp"

namespace skytape::nn {
namespace {

constexpr std::int32_t kGreys = 256;  // ids behind them stand for no grey

template <class T> struct PatchGreys {
  const std::int32_t* ids;  // [B, N]
  T* greys;                 // [B, N, side²]
  std::int64_t n, columns, side;

  HD void operator()(std::int64_t at) const {
    const std::int64_t position = at % n, row = position / columns, column = position % columns;
    const std::int32_t* const picture = ids + (at - position);  // [N]
    T* to = greys + at * side * side;
    for (std::int64_t r = row - side / 2; r <= row + side / 2; ++r) {
      for (std::int64_t c = column - side / 2; c <= column + side / 2; ++c) {
        const bool inside = r >= 0 && c >= 0 && c < columns && r * columns + c < n;
        const std::int32_t id = inside ? picture[r * columns + c] : kGreys;
        *to++ = id < kGreys ? T(2) * T(id) / T(kGreys - 1) - T(1) : T(0);
      }
    }
  }
};

}  // namespace

void patch_greys_on(Backend, const Tensor& ids, std::int64_t columns, std::int64_t side,
                    Tensor& greys) {
  dispatch_float(greys.dtype(), [&]<class T>() {
    map(ids.numel(),
        PatchGreys<T>{ids.data<std::int32_t>(), greys.data<T>(), ids.size(1), columns, side});
  });
}

}  // namespace skytape::nn
