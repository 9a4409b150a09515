// Turns pairs of entries of every row by the angles of its position; counts positions from the end;
// tells the two texts of a pair apart.
#include "nn/embedding/positions.hpp"
#include "tensor/launch/launch.hpp"

namespace skytape::nn {
namespace {

template <class T> struct TurnRow {
  const T* x[2];                        // [B, H, N, D] each
  const T* angles;                      // [N, D]: cosines, then sines
  T* y[2];                              // [B, H, N, D] each
  std::int64_t rows, positions, width;  // B H N, N, D
  T sign;                               // of the sines: -1 turns back

  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const std::int64_t half = width / 2;
    const std::int64_t second = row >= rows ? 1 : 0, at = (row - second * rows) * width;
    const T* const from = x[second] + at;
    const T* const cosine = angles + row % positions * width;
    const T* const sine = cosine + half;
    T* const to = y[second] + at;
    const T s = sign;
    team.each(half, [=](std::int64_t j) {
      const T a = from[j], b = from[j + half];
      to[j] = a * cosine[j] - s * b * sine[j];
      to[j + half] = b * cosine[j] + s * a * sine[j];
    });
  }
};

template <class T> struct ToLastToken {
  const T* mask;      // [B, N]
  std::int32_t* out;  // [B, N]
  std::int64_t n;

  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const T* const token = mask + row * n;
    std::int32_t* const to = out + row * n;
    const auto last = static_cast<std::int64_t>(
        team.max(n, [=](std::int64_t i) { return token[i] != T(0) ? T(i) : T(0); }));
    team.each(n,
              [=](std::int64_t i) { to[i] = static_cast<std::int32_t>(i < last ? last - i : 0); });
  }
};

struct TokenTypes {
  const std::int32_t* ids;  // [B, N]
  std::int32_t* out;        // [B, N]
  std::int64_t n;
  std::int32_t separator;

  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const std::int32_t* const id = ids + row * n;
    std::int32_t* const to = out + row * n;
    const std::int32_t end = separator;
    // The first separator has most places behind it; a row without one has its end there.
    const std::int64_t places = n;
    const auto behind = static_cast<std::int64_t>(team.max(
        n, [=](std::int64_t i) { return id[i] == end ? static_cast<double>(places - 1 - i) : 0; }));
    team.each(n, [=](std::int64_t i) { to[i] = i >= places - behind ? 1 : 0; });
  }
};

}  // namespace

void turn_on(Backend, std::span<const Tensor> x, const Tensor& angles, Turn direction,
             std::span<Tensor> y) {
  const Tensor& first = x.front();
  const auto count = static_cast<std::int64_t>(x.size());
  dispatch_float(first.dtype(), [&]<class T>() {
    rows(count * first.rows(), first.cols(),
         TurnRow<T>{{first.data<T>(), x.back().data<T>()},
                    angles.data<T>(),
                    {y.front().data<T>(), y.back().data<T>()},
                    first.rows(),
                    first.size(2),
                    first.cols(),
                    direction == Turn::forward ? T(1) : T(-1)});
  });
}

void to_last_token_on(Backend, const Tensor& mask, Tensor& out) {
  dispatch_float(mask.dtype(), [&]<class T>() {
    rows(mask.size(0), mask.size(1),
         ToLastToken<T>{mask.data<T>(), out.data<std::int32_t>(), mask.size(1)});
  });
}

void token_types_on(Backend, const Tensor& ids, std::int32_t separator, Tensor& out) {
  rows(ids.size(0), ids.size(1),
       TokenTypes{ids.data<std::int32_t>(), out.data<std::int32_t>(), ids.size(1), separator});
}

}  // namespace skytape::nn
