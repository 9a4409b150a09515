#include "nn/embedding/positions.hpp"

#include <cmath>

#include "nn/embedding/positions_plan.hpp"

namespace skytape::nn {
namespace {

constexpr double kLongestWave = 10000;  // over 2 pi, of the sinusoidal positions

/// Fills a table from f(position, column).
template <class F> Initialiser table_of(const F& f) {
  return [f](const Shape& shape, const Random&) {
    Tensor table = Tensor::empty(shape, DType::f64, Device::cpu);  // [N, columns]
    const std::int64_t columns = shape[1];
    for (std::int64_t i = 0; i < table.numel(); ++i) {
      table.data<double>()[i] = f(i / columns, i % columns, columns);
    }
    return table;
  };
}

Tensor turn(const Tensor& x, const Tensor& angles, Turn direction) {
  Tensor y = empty_like(x);  // [B, H, N, D]
  on_device(x.device(), [&](auto tag) { turn_on(tag, x, angles, direction, y); });
  return y;
}

}  // namespace

Initialiser sinusoidal_positions() {
  return table_of([](std::int64_t n, std::int64_t column, std::int64_t width) {
    const auto pair = static_cast<double>(column / 2 * 2);
    const double angle = static_cast<double>(n) / std::pow(kLongestWave, pair / width);
    const double scale = kEmbeddingDeviation * std::sqrt(2.0);  // a wave's deviation is 1 / sqrt 2
    return scale * (column % 2 == 0 ? std::sin(angle) : std::cos(angle));
  });
}

Initialiser rotary_angles(double base) {
  return table_of([base](std::int64_t n, std::int64_t column, std::int64_t width) {
    const std::int64_t half = width / 2, j = column % half;
    const double angle = static_cast<double>(n) / std::pow(base, 2.0 * j / width);
    return column < half ? std::cos(angle) : std::sin(angle);
  });
}

Tensor to_last_token(const Tensor& mask) {
  ENSURE(mask.rank() == 2, "to_last_token: expected a mask [B, N], got ", mask);
  Tensor out = Tensor::empty(mask.shape(), DType::i32, mask.device());
  on_device(mask.device(), [&](auto tag) { to_last_token_on(tag, mask, out); });
  return out;
}

Tensor token_types(const Tensor& ids, std::int32_t separator) {
  ENSURE(ids.rank() == 2 && ids.dtype() == DType::i32, "token_types: expected ids i32[B, N], got ",
         ids);
  Tensor out = Tensor::empty(ids.shape(), DType::i32, ids.device());
  on_device(ids.device(), [&](auto tag) { token_types_on(tag, ids, separator, out); });
  return out;
}

Var rotary(Var x, const Tensor& angles) {
  require_same_kind("rotary", {&x.value(), &angles});
  ENSURE(x.shape().rank() == 4 && x.size(3) % 2 == 0 && angles.rank() == 2 &&
             angles.size(0) >= x.size(2) && angles.size(1) == x.size(3),
         "rotary: expected x [B, H, N, D] with an even D and angles [at least N, D], got x ",
         x.value(), ", angles ", angles);
  return record("rotary", {x}, turn(x.value(), angles, Turn::forward),
                [angles](const Tensor& dy, Grads& g) {
                  g.add(0, turn(dy, angles, Turn::back));  // the inverse of a turn is its transpose
                });
}

}  // namespace skytape::nn
