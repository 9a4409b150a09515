// Tiled attention on the CPU: library products over tiles that stay in the second-level cache, with
// one vectorised pass between them.
//
// Work is cut by shapes only, never by the number of threads, and every sum has a fixed order, so
// results do not depend on it either:
//   forward   unit = (b, h, query tile), walks the keys;
//   backward  unit = (b, h, run of key tiles), walks the queries for each of its key tiles. It owns
//             dk and dv of its keys; its share of dq goes to the slab of its run, the first run's
//             to dq itself, and at the end the other slabs are added to dq in order.
#include <omp.h>

#include <algorithm>
#include <limits>

#include "attention/tiled/online_softmax.hpp"
#include "attention/tiled/tiled_plan.hpp"
#include "tensor/core/tensor.hpp"
#include "tensor/gemm/gemm.hpp"
#include "tensor/gemm/precision.hpp"
#include "tensor/launch/first_failure.hpp"
#include "tensor/launch/launch.hpp"
#include "tensor/launch/math.hpp"
#include "tensor/random/philox.hpp"

namespace skytape::attention {
namespace {

constexpr std::int64_t kQueryTile = 128;  // at most
constexpr std::int64_t kKeyTile = 256;    // also the leading dimension of a tile of weights
static_assert(kKeyTile % philox::kChunk == 0);

// Backward units per call that keep sixteen cores busy; more slabs would only cost memory.
constexpr std::int64_t kBackwardUnits = 16;

/// Rows of a query tile: as few tiles as kQueryTile allows, of nearly the same size, in whole
/// groups of the eight that a product takes together.
std::int64_t query_tile(std::int64_t queries) {
  const std::int64_t tiles = std::max<std::int64_t>(1, ceil_div(queries, kQueryTile));
  return std::max<std::int64_t>(8, (ceil_div(queries, tiles) + 7) / 8 * 8);
}

/// Typed pointers of one call; see TiledInputs for the shapes.
template <class T> struct Arrays {
  const T *q, *k, *v, *row, *column, *keep;
  explicit Arrays(const TiledInputs& in)
      : q(in.q.data<T>()),
        k(in.k.data<T>()),
        v(in.v.data_or_null<T>()),
        row(in.row.data_or_null<T>()),
        column(in.column.data<T>()),
        keep(in.keep.data_or_null<T>()) {}
};

/// One tile: queries [i, i + rows) and keys [j, j + cols) of head `bh` = b H + h.
struct Tile {
  std::int64_t bh, i, rows, j, cols;
};

bool drops(const TiledPlan& plan, const TiledInputs& in) {
  return plan.threshold > 0 || in.keep.defined();
}

/// Factors of the weights in row i of a tile, into out[kKeyTile].
template <class T> void keep_row(const TiledPlan& plan, const Arrays<T>& in, const Tile& tile,
                                 std::int64_t i, T* out) {
  const T scale = static_cast<T>(plan.keep_scale);
  if (in.keep != nullptr) {
    const T* const keep = in.keep + (tile.bh * plan.queries + i) * plan.keys + tile.j;
#pragma omp simd
    for (std::int64_t j = 0; j < tile.cols; ++j) out[j] = keep[j] * scale;
    return;
  }
  const std::int64_t element =
      ((plan.first_head + tile.bh) * plan.row_count + i) * plan.row_stride + tile.j;
  const std::int64_t chunks = ceil_div(tile.cols, philox::kChunk);
  philox::keep_factors(plan.key, philox::step_of(plan.step), element / philox::kChunk, chunks,
                       plan.threshold, scale, out);
}

/// True when every key of the tile is padding: nothing to add.
template <class T> bool all_padding(const T* column, std::int64_t cols) {
  return std::all_of(column, column + cols,
                     [](T b) { return b == -std::numeric_limits<T>::infinity(); });
}

/// The forward pass of one query tile. weights: [kQueryTile, kKeyTile], factors: [kKeyTile].
template <class T> void forward_unit(const TiledPlan& plan, const Arrays<T>& in, std::int64_t bh,
                                     std::int64_t i, bool dropout, T* weights, T* factors, T* out,
                                     T* lse) {
  const std::int64_t d = plan.width;
  const std::int64_t rows = std::min(query_tile(plan.queries), plan.queries - i);
  const bool softmax = plan.score == Score::softmax;
  const bool round = sizeof(T) == 4 && precision(Device::cpu) == Precision::bf16;
  const T* const q = in.q + (bh * plan.queries + i) * d;  // [rows, D]
  OnlineSoftmax<T> statistics[kQueryTile];
  if (out != nullptr) std::fill_n(out, rows * d, T(0));

  for (std::int64_t j = 0; j < plan.keys; j += kKeyTile) {
    const Tile tile{bh, i, rows, j, std::min(kKeyTile, plan.keys - j)};
    const T* const column = in.column + bh * plan.keys + j;
    if (all_padding(column, tile.cols)) continue;
    tensor::gemm_cpu<T>(static_cast<T>(plan.scale), {q, rows, d},
                        tensor::transposed<T>({in.k + (bh * plan.keys + j) * d, tile.cols, d}),
                        T(0), {weights, rows, tile.cols, kKeyTile});
    for (std::int64_t r = 0; r < rows; ++r) {
      T* const w = weights + r * kKeyTile;
      if (softmax) {
        T largest = statistics[r].max;
#pragma omp simd reduction(max : largest)
        for (std::int64_t c = 0; c < tile.cols; ++c) {
          w[c] += column[c];
          largest = w[c] > largest ? w[c] : largest;
        }
        const T correction = statistics[r].update(w, tile.cols, largest, round);
        if (out != nullptr && correction != 1) {
          for (std::int64_t c = 0; c < d; ++c) out[r * d + c] *= correction;
        }
      } else {
        const T a = in.row[bh * plan.queries + i + r];
#pragma omp simd
        for (std::int64_t c = 0; c < tile.cols; ++c) w[c] = math::exp(w[c] + a + column[c]);
      }
      if (dropout && out != nullptr) {
        keep_row(plan, in, tile, i + r, factors);
#pragma omp simd
        for (std::int64_t c = 0; c < tile.cols; ++c) w[c] *= factors[c];
      }
    }
    if (out != nullptr) {
      tensor::gemm_cpu<T>(T(1), {weights, rows, tile.cols, kKeyTile},
                          {in.v + (bh * plan.keys + j) * d, tile.cols, d}, T(1), {out, rows, d});
    }
  }
  if (!softmax) return;
  for (std::int64_t r = 0; r < rows; ++r) {
    lse[r] = statistics[r].lse();
    const T inverse = statistics[r].inverse();
    if (out == nullptr) continue;
    for (std::int64_t c = 0; c < d; ++c) out[r * d + c] *= inverse;
  }
}

/// Turns products into weights times dropout (in `weights`) and dL/dscore (in `dscores`), row by
/// row. Without v, dscores come in undefined and weights are left as they are.
template <class T> void backward_tile(const TiledPlan& plan, const Arrays<T>& in, const Tile& tile,
                                      const T* delta, bool dropout, T* weights, T* dscores,
                                      T* factors) {
  const T* const column = in.column + tile.bh * plan.keys + tile.j;
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    const std::int64_t row = tile.bh * plan.queries + tile.i + r;
    T* const w = weights + r * kKeyTile;
    T* const e = dscores + r * kKeyTile;
    T a = in.row[row];
    if (plan.score == Score::softmax) {
      a = a == -std::numeric_limits<T>::infinity() ? T(0) : -a;  // no real key: all weights vanish
    }
    const T c = delta[row];
    if (in.v == nullptr) {
#pragma omp simd
      for (std::int64_t j = 0; j < tile.cols; ++j) e[j] = -c * math::exp(w[j] + a + column[j]);
    } else if (dropout) {
      keep_row(plan, in, tile, tile.i + r, factors);
#pragma omp simd
      for (std::int64_t j = 0; j < tile.cols; ++j) {
        const T weight = math::exp(w[j] + a + column[j]);
        w[j] = weight * factors[j];
        e[j] = weight * (e[j] * factors[j] - c);
      }
    } else {
#pragma omp simd
      for (std::int64_t j = 0; j < tile.cols; ++j) {
        w[j] = math::exp(w[j] + a + column[j]);
        e[j] = w[j] * (e[j] - c);
      }
    }
  }
}

/// The arrays that the backward pass reads and writes besides its inputs.
template <class T> struct BackwardArrays {
  const T *dout, *delta;  // [B, H, N, D], [B, H, N]
  T *dq, *dk, *dv;        // dq: [B, H, N, D], slab 0; dk, dv: [B, H, M, D]
};

/// The backward pass of key tiles [first, last). weights, dscores: [kQueryTile, kKeyTile], factors:
/// [kKeyTile]; dq: this head's part of the unit's slab, [N, D].
template <class T> void backward_unit(const TiledPlan& plan, const Arrays<T>& in,
                                      const BackwardArrays<T>& g, std::int64_t bh,
                                      std::int64_t first, std::int64_t last, bool dropout,
                                      T* weights, T* dscores, T* factors, T* dq) {
  using tensor::gemm_cpu;
  using tensor::transposed;
  const std::int64_t d = plan.width, tile_rows = query_tile(plan.queries);
  const T scale = static_cast<T>(plan.scale);
  std::fill_n(dq, plan.queries * d, T(0));
  for (std::int64_t j = first * kKeyTile; j < std::min(last * kKeyTile, plan.keys); j += kKeyTile) {
    const std::int64_t cols = std::min(kKeyTile, plan.keys - j);
    const std::int64_t at_key = (bh * plan.keys + j) * d;
    T* const dk = g.dk + at_key;                              // [cols, D]
    T* const dv = g.dv == nullptr ? nullptr : g.dv + at_key;  // [cols, D]
    std::fill_n(dk, cols * d, T(0));
    if (dv != nullptr) std::fill_n(dv, cols * d, T(0));
    if (all_padding(in.column + bh * plan.keys + j, cols)) continue;

    for (std::int64_t i = 0; i < plan.queries; i += tile_rows) {
      const Tile tile{bh, i, std::min(tile_rows, plan.queries - i), j, cols};
      const std::int64_t at_query = (bh * plan.queries + i) * d;
      const T* const q = in.q + at_query;  // [rows, D]
      const T* const k = in.k + at_key;    // [cols, D]
      gemm_cpu<T>(scale, {q, tile.rows, d}, transposed<T>({k, cols, d}), T(0),
                  {weights, tile.rows, cols, kKeyTile});
      if (dv != nullptr) {
        gemm_cpu<T>(T(1), {g.dout + at_query, tile.rows, d},
                    transposed<T>({in.v + at_key, cols, d}), T(0),
                    {dscores, tile.rows, cols, kKeyTile});
      }
      backward_tile(plan, in, tile, g.delta, dropout, weights, dscores, factors);
      if (dv != nullptr) {
        gemm_cpu<T>(T(1), transposed<T>({weights, tile.rows, cols, kKeyTile}),
                    {g.dout + at_query, tile.rows, d}, T(1), {dv, cols, d});
      }
      gemm_cpu<T>(scale, transposed<T>({dscores, tile.rows, cols, kKeyTile}), {q, tile.rows, d},
                  T(1), {dk, cols, d});
      gemm_cpu<T>(scale, {dscores, tile.rows, cols, kKeyTile}, {k, cols, d}, T(1),
                  {dq + i * d, tile.rows, d});
    }
  }
}

template <class T>
void forward(const TiledPlan& plan, const TiledInputs& inputs, TiledForward& result) {
  const Arrays<T> in(inputs);
  T* const out = result.out.data_or_null<T>();
  T* const lse = result.lse.data_or_null<T>();
  const bool dropout = drops(plan, inputs);
  const std::int64_t tile_rows = query_tile(plan.queries);
  const std::int64_t tiles = ceil_div(plan.queries, tile_rows);
  const std::int64_t units = plan.batch * plan.heads * tiles;
  const Tensor workspace =
      Tensor::empty({omp_get_max_threads(), kQueryTile + 1, kKeyTile}, kDTypeOf<T>, Device::cpu);
  cpu::FirstFailure failure;
#pragma omp parallel for schedule(dynamic) if (units > 1)
  for (std::int64_t unit = 0; unit < units; ++unit) {
    const std::int64_t bh = unit / tiles;
    const std::int64_t i = unit % tiles * tile_rows;
    const std::int64_t row = bh * plan.queries + i;
    T* const weights = workspace.data<T>() + omp_get_thread_num() * (kQueryTile + 1) * kKeyTile;
    failure.guard([&] {
      forward_unit(plan, in, bh, i, dropout, weights, weights + kQueryTile * kKeyTile,
                   out == nullptr ? nullptr : out + row * plan.width,
                   lse == nullptr ? nullptr : lse + row);
    });
  }
  failure.rethrow();
}

template <class T> void backward(const TiledPlan& plan, const TiledInputs& inputs,
                                 const Tensor& dout, const Tensor& delta, TiledBackward& result) {
  const Arrays<T> in(inputs);
  const bool dropout = drops(plan, inputs);
  const std::int64_t all_heads = plan.batch * plan.heads;
  const std::int64_t tiles = ceil_div(plan.keys, kKeyTile);
  const std::int64_t slabs = std::clamp<std::int64_t>(
      kBackwardUnits / std::max<std::int64_t>(all_heads, 1), 1, std::max<std::int64_t>(tiles, 1));
  const std::int64_t slab = result.dq.numel();
  const Tensor partial =  // [slabs - 1, B H N D]: slab 0 is dq itself
      Tensor::empty(Shape{slabs - 1, slab}, kDTypeOf<T>, Device::cpu);
  const BackwardArrays<T> g{dout.data_or_null<T>(), delta.data<T>(), result.dq.data<T>(),
                            result.dk.data<T>(), result.dv.data_or_null<T>()};
  constexpr std::int64_t kSpace = (2 * kQueryTile + 1) * kKeyTile;
  const Tensor workspace = Tensor::empty({omp_get_max_threads(), kSpace}, kDTypeOf<T>, Device::cpu);
  cpu::FirstFailure failure;
#pragma omp parallel for schedule(dynamic) if (all_heads * slabs > 1)
  for (std::int64_t unit = 0; unit < all_heads * slabs; ++unit) {
    const std::int64_t bh = unit / slabs, s = unit % slabs;
    T* const weights = workspace.data<T>() + omp_get_thread_num() * kSpace;
    T* const base = s == 0 ? g.dq : partial.data<T>() + (s - 1) * slab;
    failure.guard([&] {
      backward_unit(plan, in, g, bh, tiles * s / slabs, tiles * (s + 1) / slabs, dropout, weights,
                    weights + kQueryTile * kKeyTile, weights + 2 * kQueryTile * kKeyTile,
                    base + bh * plan.queries * plan.width);
    });
  }
  failure.rethrow();
  if (slabs == 1) return;
  const T* const parts = partial.data<T>();
#pragma omp parallel for simd schedule(static)
  for (std::int64_t e = 0; e < slab; ++e) {
    T total = g.dq[e];
    for (std::int64_t s = 0; s < slabs - 1; ++s) total += parts[s * slab + e];
    g.dq[e] = total;
  }
}

}  // namespace

void tiled_forward_on(Cpu, const TiledPlan& plan, const TiledInputs& in, TiledForward& result) {
  dispatch_float(in.q.dtype(), [&]<class T>() { forward<T>(plan, in, result); });
}

void tiled_backward_on(Cpu, const TiledPlan& plan, const TiledInputs& in, const Tensor& dout,
                       const Tensor& delta, TiledBackward& result) {
  dispatch_float(in.q.dtype(), [&]<class T>() { backward<T>(plan, in, dout, delta, result); });
}

}  // namespace skytape::attention
