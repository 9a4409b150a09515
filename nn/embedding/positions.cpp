#include "nn/embedding/positions.hpp"

#include <array>
#include <cmath>
#include <memory>
#include <span>

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
  on_device(x.device(), [&](auto tag) {
    turn_on(tag, std::span<const Tensor>(&x, 1), angles, direction, std::span<Tensor>(&y, 1));
  });
  return y;
}

using Pair = std::array<Tensor, 2>;  // of queries and keys, [B, H, N, D] each

Pair turn(const Pair& x, const Tensor& angles, Turn direction) {
  Pair y = {empty_like(x[0]), empty_like(x[1])};
  on_device(x[0].device(), [&](auto tag) { turn_on(tag, x, angles, direction, y); });
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
  require_turnable("rotary", x.value(), angles);
  return record("rotary", {x}, turn(x.value(), angles, Turn::forward),
                [angles](const Tensor& dy, Grads& g) {
                  g.add(0, turn(dy, angles, Turn::back));  // the inverse of a turn is its transpose
                });
}

std::array<Var, 2> rotary_pair(Var q, Var k, const Tensor& angles) {
  if (q.value().device() == Device::cuda) return rotary_pair_at_once(q, k, angles);
  return {rotary(q, angles), rotary(k, angles)};
}

// A node has one output: both hang on one that holds nothing, [0], as with project_heads.
std::array<Var, 2> rotary_pair_at_once(Var q, Var k, const Tensor& angles) {
  require_turnable("rotary_pair", q.value(), angles);
  require_same_kind("rotary_pair", {&q.value(), &k.value()});
  ENSURE(q.shape() == k.shape(), "rotary_pair: shapes differ: q ", q.value(), ", k ", k.value());
  const Pair turned = turn(Pair{q.value(), k.value()}, angles, Turn::forward);
  const auto left = std::make_shared<Pair>();  // what the outputs leave: their gradients
  const Tensor nothing = empty_like(angles, {0});
  const Var both = record("rotary_pair", {q, k}, nothing, [left, angles](const Tensor&, Grads& g) {
    const Pair& d = *left;
    if (d[0].defined() && d[1].defined()) {
      const Pair back = turn(d, angles, Turn::back);
      g.add(0, back[0]);
      g.add(1, back[1]);
      return;
    }
    const int known = d[0].defined() ? 0 : 1;
    g.add(known, turn(d[static_cast<std::size_t>(known)], angles, Turn::back));
  });
  std::array<Var, 2> outputs;
  for (std::size_t i = 0; i < 2; ++i) {
    outputs[i] =
        record("rotary_pair", {both}, turned[i], [left, i, nothing](const Tensor& dy, Grads& g) {
          (*left)[i] = dy;
          g.add(0, nothing);  // its turn comes
        });
  }
  return outputs;
}

}  // namespace skytape::nn
