#include "nn/embedding/positions.hpp"

#include <array>
#include <cmath>
#include <span>

#include "tensor/core/on_device.hpp"

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

/// x, y: one or two of [B, H, N, D] each.
std::vector<Tensor> turn(const std::vector<Tensor>& x, const Tensor& angles, Turn direction) {
  std::vector<Tensor> y;
  for (const Tensor& each : x) y.push_back(empty_like(each));
  on_device(angles.device(), [&](auto tag) { turn_on(tag, x, angles, direction, y); });
  return y;
}

void require_turnable(const char* op, const Tensor& x, const Tensor& angles) {
  require_same_kind(op, {&x, &angles});
  ENSURE(x.rank() == 4 && x.size(3) % 2 == 0 && angles.rank() == 2 && angles.size(0) >= x.size(2) &&
             angles.size(1) == x.size(3),
         op, ": expected x [B, H, N, D] with an even D and angles [at least N, D], got x ", x,
         ", angles ", angles);
}

}  // namespace

Initialiser sinusoidal_positions() {
  return table_of([](std::int64_t n, std::int64_t column, std::int64_t width) {
    const std::int64_t pair = column - column % 2;
    const double share = static_cast<double>(pair) / static_cast<double>(width);
    const double angle = static_cast<double>(n) / std::pow(kLongestWave, share);
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
  require_turnable("rotary", x.value(), angles);
  return record("rotary", {x}, turn({x.value()}, angles, Turn::forward)[0],
                [angles](const Tensor& dy, Grads& g) {  // the inverse of a turn is its transpose
                  g.add(0, turn({dy}, angles, Turn::back)[0]);
                });
}

std::array<Var, 2> rotary_pair(Var q, Var k, const Tensor& angles) {
  require_turnable("rotary_pair", q.value(), angles);
  require_same_kind("rotary_pair", {&q.value(), &k.value()});
  ENSURE(q.shape() == k.shape(), "rotary_pair: shapes differ: q ", q.value(), ", k ", k.value());
  const std::vector<Var> outputs = q.tape().record_several(
      "rotary_pair", std::array{q, k}, turn({q.value(), k.value()}, angles, Turn::forward),
      [angles](std::span<const Tensor> d, Grads& g) {
        if (!d[0].defined()) return g.add(1, turn({d[1]}, angles, Turn::back)[0]);
        if (!d[1].defined()) return g.add(0, turn({d[0]}, angles, Turn::back)[0]);
        const std::vector<Tensor> back = turn({d[0], d[1]}, angles, Turn::back);
        g.add(0, back[0]);
        g.add(1, back[1]);
      });
  return {outputs[0], outputs[1]};
}

}  // namespace skytape::nn
