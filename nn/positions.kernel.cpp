// Turns pairs of entries of every row by the angles of its position.
#include "nn/positions_plan.hpp"
#include "tensor/launch/launch.hpp"

namespace skytape::nn {
namespace {

template <class T> struct TurnRow {
  const T* x;       // [B, H, N, D]
  const T* angles;  // [N, D]: cosines, then sines
  T* y;             // [B, H, N, D]
  std::int64_t positions, width;
  T sign;  // of the sines: -1 turns back

  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const std::int64_t half = width / 2;
    const T* const from = x + row * width;
    const T* const cosine = angles + row % positions * width;
    const T* const sine = cosine + half;
    T* const to = y + row * width;
    const T s = sign;
    team.each(half, [=](std::int64_t j) {
      const T a = from[j], b = from[j + half];
      to[j] = a * cosine[j] - s * b * sine[j];
      to[j + half] = b * cosine[j] + s * a * sine[j];
    });
  }
};

}  // namespace

void turn_on(Backend, const Tensor& x, const Tensor& angles, Turn direction, Tensor& y) {
  dispatch_float(x.dtype(), [&]<class T>() {
    rows(x.rows(), x.cols(),
         TurnRow<T>{x.data<T>(), angles.data<T>(), y.data<T>(), x.size(2), x.cols(),
                    direction == Turn::forward ? T(1) : T(-1)});
  });
}

}  // namespace skytape::nn
