// Performer's passes on tensor cores: tiles and products are those of the Gaussian kernel
// (gaussian_kernel_fragments.hpp), with random features in the landmarks' place. The equations are
// performer.cpp's, with epsilon added to a feature before it is rounded, so that
//
//   T = (F + eps)^T U    S = (E + eps) T    da_i = -row_sum(dE E)_i    dc = -sum(dF F)
//
// and the last two are sums that the gradients' norms need anyhow. A block has a chunk of rows of
// one head; what is summed over rows, T and dT, is a partial sum a chunk.
#include <cstdint>
#include <tuple>

#include "attention/feature_maps/gaussian_kernel_cuda.hpp"
#include "attention/feature_maps/gaussian_kernel_fragments.hpp"
#include "attention/feature_maps/gaussian_kernel_plan.hpp"
#include "attention/random_features/feature_attention.hpp"
#include "attention/random_features/feature_attention_tiles.hpp"
#include "tensor/gemm/precision.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tensor/launch/cuda.hpp"

namespace skytape::attention {
namespace {

using namespace kernel_cuda;
using cuda::TensorCore;

/// Blocks that a multiprocessor holds at least in backward: left alone, the compiler takes
/// registers for one.
template <Precision kPrecision, int kD> inline constexpr int kResident =
    kPrecision == Precision::bf16&& kD <= 32 ? 2 : 1;

/// Each row of K has its largest product with W, and the first feature that gives it.
template <Precision kPrecision, int kD, int kP> __global__ void __launch_bounds__(kThreads, 3)
    key_maxima_kernel(Sizes s, Pass p) {
  auto& [x, w] = *reinterpret_cast<Tile<TensorCore<kPrecision>, kD>(*)[2]>(cuda::dynamic_shared());
  const WarpRows at;
  const Chunk chunk(s);
  w.load(p.w, s.landmarks, s.width);
  for (int from = 0; from < chunk.count; from += kTile) {
    const TileRows rows(chunk, from);
    __syncthreads();  // everybody is done with the last rows
    x.load(p.x + rows.first * s.width, rows.count, s.width, rows.factors(s, p.of_x));
    __syncthreads();
    if (at.row >= rows.count) continue;
    const Largest found(at, x, w, static_cast<int>(s.landmarks));
    found.store(at, p.largest, p.position, rows.first, rows.count);
  }
}

/// (3): T.
template <Precision kPrecision, int kD, int kP> __global__ void __launch_bounds__(kThreads)
    keys_kernel(Sizes s, Pass p) {
  auto& shared = *reinterpret_cast<Shared<TensorCore<kPrecision>, kD, kP>*>(cuda::dynamic_shared());
  const WarpRows at;
  const Chunk chunk(s);
  const int features = static_cast<int>(s.landmarks);
  load_features(s, p, chunk, shared.landmarks);
  Totals<kD, kP> totals;
  for (int from = 0; from < chunk.count; from += kTile) {
    const TileRows rows(chunk, from);
    __syncthreads();  // everybody is done with the last rows
    load_keys(s, p, rows, shared.rows);
    __syncthreads();
    if (at.row >= features) continue;
    walk<false, true, true>(at, shared.landmarks, shared.rows, rows.count, totals, p.epsilon);
  }
  if (at.row >= features) return;
  store(at, totals.values, {}, p.parts + blockIdx.x * s.landmarks * s.factor, features, s.factor);
}

/// (4), (5): a, S and O of own rows.
template <Precision kPrecision, int kD, int kP> __global__ void __launch_bounds__(kThreads)
    queries_kernel(Sizes s, Pass p) {
  auto& shared = *reinterpret_cast<Shared<TensorCore<kPrecision>, kD, kP>*>(cuda::dynamic_shared());
  const WarpRows at;
  const Chunk chunk(s);
  const int features = static_cast<int>(s.landmarks), width = static_cast<int>(s.width);
  load_features(s, p, chunk, shared.landmarks);
  shared.landmarks.second.load(p.y + chunk.head * s.landmarks * s.factor, s.landmarks, s.factor);
  for (int from = 0; from < chunk.count; from += kTile) {
    const TileRows rows(chunk, from);
    __syncthreads();  // everybody is done with the last rows
    shared.rows.first.load(p.x + rows.first * s.width, rows.count, s.width, true, shared.rows.term,
                           rows.factors(s, p.of_x));
    __syncthreads();
    if (at.row >= rows.count) continue;
    const Largest found(at, shared.rows.first, shared.landmarks.first, features);
    found.store(at, p.largest, p.position, rows.first, rows.count);
    found.take_from(at, shared.rows.term);
    Totals<kD, kP> totals;
    walk<false, true, true>(at, shared.rows, shared.landmarks, features, totals, p.epsilon);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float normaliser = 0;  // in one of the row's lanes
#pragma unroll
      for (int c = 0; c < kP / 8; ++c) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          if (8 * c + 2 * at.t + e == width) normaliser = totals.values[c].x[half][e];
        }
      }
      normaliser = over_row(normaliser);
      const float inverse = normaliser == 0.0f ? 0.0f : 1.0f / normaliser;
#pragma unroll
      for (Accumulator& sums : totals.values) {
        for (float& sum : sums.x[half]) sum *= inverse;
      }
      const int row = at.row_of(half);
      if (at.t == 0 && row < rows.count) p.normalisers[rows.first + row] = normaliser;
    }
    store(at, totals.values, {}, p.rows_out + rows.first * s.width, rows.count, s.width);
  }
}

/// (5), (4), (2), (1) of queries: dq and dT.
template <Precision kPrecision, int kD, int kP>
__global__ void __launch_bounds__(kThreads, kResident<kPrecision, kD>)
    queries_backward_kernel(Sizes s, Pass p) {
  auto& shared = *reinterpret_cast<Shared<TensorCore<kPrecision>, kD, kP>*>(cuda::dynamic_shared());
  const WarpRows at;
  const Chunk chunk(s);
  const int features = static_cast<int>(s.landmarks);
  load_features(s, p, chunk, shared.landmarks);
  shared.landmarks.second.load(p.y + chunk.head * s.landmarks * s.factor, s.landmarks, s.factor);
  shared.rows.second.load(nullptr, 0, 0);  // zeros behind dS's columns
  Totals<kD, kP> of_features;
  for (int from = 0; from < chunk.count; from += kTile) {
    const TileRows rows(chunk, from);
    const RowFactors factors{nullptr, p.of_x.scale};  // no mask: known here, it saves registers
    __syncthreads();                                  // everybody is done with the last rows
    shared.rows.first.load(p.x + rows.first * s.width, rows.count, s.width, true, shared.rows.term,
                           factors, p.largest + rows.first);
    load_ratio_gradient<TensorCore<kPrecision>, kD, kP>(s, p, rows, shared.rows.second);
    __syncthreads();
    if (at.row < rows.count) {
      Totals<kD, kP> totals;
      walk<true, false>(at, shared.rows, shared.landmarks, features, totals);
      subtract_own(at, shared.rows.first, totals);
      if (p.maxima_have_gradients) {
        subtract_maxima(at, p.position + rows.first, rows.count, shared.landmarks.first, totals);
      }
      store(at, totals.d, factors, p.dx + rows.first * s.width, rows.count, s.width);
    }
    if (at.row >= features) continue;
    walk<false, true, true>(at, shared.landmarks, shared.rows, rows.count, of_features, p.epsilon);
  }
  if (at.row >= features) return;
  store(at, of_features.values, {}, p.parts + blockIdx.x * s.landmarks * s.factor, features,
        s.factor);
}

/// (3), (1) of keys and values: dk but for c's gradient, dv, and the sums that this is made of.
template <Precision kPrecision, int kD, int kP>
__global__ void __launch_bounds__(kThreads, kResident<kPrecision, kD>)
    keys_backward_kernel(Sizes s, Pass p) {
  auto& shared = *reinterpret_cast<Shared<TensorCore<kPrecision>, kD, kP>*>(cuda::dynamic_shared());
  const WarpRows at;
  const Chunk chunk(s);
  const int features = static_cast<int>(s.landmarks);
  load_features(s, p, chunk, shared.landmarks);
  shared.landmarks.second.load(p.y + chunk.head * s.landmarks * s.factor, s.landmarks, s.factor);
  for (int from = 0; from < chunk.count; from += kTile) {
    const TileRows rows(chunk, from);
    __syncthreads();  // everybody is done with the last rows
    load_keys(s, p, rows, shared.rows);
    __syncthreads();
    if (at.row >= rows.count) continue;
    Totals<kD, kP> totals;
    walk<true, true, true>(at, shared.rows, shared.landmarks, features, totals, p.epsilon);
    if (p.sums != nullptr) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float sum = over_row(totals.sums[half]);
        const int row = at.row_of(half);
        if (at.t == 0 && row < rows.count) p.sums[rows.first + row] = sum;
      }
    }
    subtract_own(at, shared.rows.first, totals);
    store(at, totals.d, rows.factors(s, p.of_x), p.dx + rows.first * s.width, rows.count, s.width);
    store(at, totals.values, rows.factors(s, p.of_v), p.dv + rows.first * s.width, rows.count,
          s.width);
  }
}

/// (2), (1) of keys: dc to the row of each scope's largest product.
struct AddKeyMaximum {
  const float *sums, *w;         // [scopes]: -dc; [R, D]
  const std::int32_t* position;  // [scopes], among the rows of a scope
  const std::int32_t* feature;   // [G, N]
  RowFactors of_x;
  float* dk;  // [G, N, D]
  Sizes s;
  std::int64_t scope;

  __device__ void operator()(std::int64_t i) const {
    const std::int64_t at = i / s.width, channel = i % s.width;
    const std::int64_t row = at * scope * s.rows + position[at];
    const float factor = of_x.from(s, row / s.rows, row % s.rows).of(0);
    dk[row * s.width + channel] -= factor * sums[at] * w[feature[row] * s.width + channel];
  }
};

Sizes sizes_of(const FeatureAttention& a) {
  const std::int64_t n = a.q.size(2), width = a.q.size(3);
  return {a.q.size(0) * a.q.size(1), n,           a.w.size(0), width, width + 1,
          ceil_div(n, kChunkRows),   a.q.size(1), true};
}

/// Returns the pass over all queries or over all keys, with the values that every pass has.
Pass pass_over(const FeatureAttention& a, const Tensor& x, bool keys) {
  Pass p{};
  p.x = x.data<float>();
  p.w = a.w.data<float>();
  p.of_x.scale = static_cast<float>(a.config.scale);
  if (keys && a.config.official) p.of_x.mask = a.mask.data<float>();
  p.scope = a.config.scope;
  p.epsilon = static_cast<float>(a.config.epsilon);
  p.maxima_have_gradients = a.config.maxima_have_gradients && a.config.epsilon > 0;
  return p;
}

/// Adds U and c.
void add_values(const FeatureAttention& a, Pass& p) {
  p.v = a.v.data<float>();
  p.of_v.mask = a.mask.data<float>();
  if (!a.config.official) p.normaliser.mask = a.mask.data<float>();
  p.c = a.key_maximum.data<float>();
}

/// Returns f.operator()<precision, kD, kP>() for the call's precision and the smallest compiled
/// widths that hold heads of `width`.
template <class F> auto at_precision_and_width(std::int64_t width, const F& f) {
  const auto at_width = [&]<Precision kPrecision>() {
    if (width <= 32) return f.template operator()<kPrecision, 32, 48>();
    return f.template operator()<kPrecision, 64, 80>();
  };
  if (precision(Device::cuda) == Precision::tf32) {
    return at_width.template operator()<Precision::tf32>();
  }
  return at_width.template operator()<Precision::bf16>();
}

/// Returns whether blocks of this device have the shared memory of every pass.
bool has_room(std::int64_t width) {
  return cuda::has_shared(
      at_precision_and_width(width, [&]<Precision kPrecision, int kD, int kP>() {
        return sizeof(Shared<TensorCore<kPrecision>, kD, kP>);
      }));
}

/// The passes by name.
enum class Step { key_maxima, keys, queries, queries_backward, keys_backward };
void run(Step step, const Sizes& s, const Pass& p) {
  at_precision_and_width(s.width, [&]<Precision kPrecision, int kD, int kP>() {
    using Core = TensorCore<kPrecision>;
    const std::size_t bytes = sizeof(Shared<Core, kD, kP>);
    switch (step) {
      case Step::key_maxima:
        return start("largest features of keys", key_maxima_kernel<kPrecision, kD, kP>, s, p,
                     2 * sizeof(Tile<Core, kD>));
      case Step::keys:
        return start("features of keys", keys_kernel<kPrecision, kD, kP>, s, p, bytes);
      case Step::queries:
        return start("features of queries", queries_kernel<kPrecision, kD, kP>, s, p, bytes);
      case Step::queries_backward:
        return start("features of queries backward", queries_backward_kernel<kPrecision, kD, kP>, s,
                     p, bytes);
      case Step::keys_backward:
        return start("features of keys backward", keys_backward_kernel<kPrecision, kD, kP>, s, p,
                     bytes);
    }
  });
}

/// Runs a pass with partial sums of each chunk, and adds these up: T or dT, [B, H, R, P].
Tensor run_and_add(Step step, const FeatureAttention& a, const Sizes& s, Pass& p) {
  const Tensor parts =
      Tensor::empty({s.heads, s.chunks, s.landmarks * s.factor}, DType::f32, Device::cuda);
  p.parts = parts.data<float>();
  run(step, s, p);
  const Tensor total = s.chunks == 1 ? parts : tensor::sum(parts, 1);
  return total.reshape({a.q.size(0), a.q.size(1), s.landmarks, s.factor});
}

}  // namespace

bool feature_attention_fits(const Tensor& q, const Tensor& w) {
  return q.dtype() == DType::f32 && q.device() == Device::cuda &&
         precision(Device::cuda) != Precision::fp32 && q.numel() > 0 &&
         w.size(0) <= kFusedLandmarks && q.size(3) <= kFusedWidth && has_room(q.size(3));
}

void feature_attention(FeatureAttention& a) {
  const Sizes s = sizes_of(a);
  const auto made = [&](const Shape& shape, DType dtype = DType::f32) {
    return Tensor::empty(shape, dtype, Device::cuda);
  };
  const Shape rows = a.q.shape().first(3);  // [B, H, N]
  const std::int64_t scopes = s.heads / a.config.scope;

  a.keys = {made(rows), made(rows, DType::i32)};
  Pass keys = pass_over(a, a.k, true);
  Pass maxima = keys;
  maxima.largest = a.keys.value.data<float>();
  maxima.position = a.keys.feature.data<std::int32_t>();
  run(Step::key_maxima, s, maxima);  // (2)
  std::tie(a.key_maximum, a.key_position) =
      tensor::max(a.keys.value.reshape({scopes, a.config.scope * s.rows}), 1);  // (2)
  add_values(a, keys);                                                          // (1)
  a.t = run_and_add(Step::keys, a, s, keys);                                    // (3)

  a.query_maxima = {made(rows), made(rows, DType::i32)};
  a.normaliser = made(rows);
  a.out = empty_like(a.q);
  Pass queries = pass_over(a, a.q, false);
  queries.y = a.t.data<float>();
  queries.largest = a.query_maxima.value.data<float>();
  queries.position = a.query_maxima.feature.data<std::int32_t>();
  queries.normalisers = a.normaliser.data<float>();
  queries.rows_out = a.out.data<float>();
  run(Step::queries, s, queries);  // (2), (4), (5)
}

FeatureAttentionGradients feature_attention_backward(const FeatureAttention& a,
                                                     const Tensor& dout) {
  const Sizes s = sizes_of(a);
  const FeatureAttentionGradients d{empty_like(a.q), empty_like(a.k), empty_like(a.v)};

  Pass queries = pass_over(a, a.q, false);
  queries.y = a.t.data<float>();
  queries.out = a.out.data<float>();
  queries.dout = dout.data<float>();
  queries.normalisers = a.normaliser.data<float>();
  queries.largest = a.query_maxima.value.data<float>();
  if (queries.maxima_have_gradients) {
    queries.position = a.query_maxima.feature.data<std::int32_t>();
  }
  queries.dx = d.dq.data<float>();
  const Tensor dt = run_and_add(Step::queries_backward, a, s, queries);  // (5), (4), (2), (1)

  Pass keys = pass_over(a, a.k, true);
  add_values(a, keys);
  keys.y = dt.data<float>();
  keys.dx = d.dk.data<float>();
  keys.dv = d.dv.data<float>();
  const std::int64_t scopes = s.heads / a.config.scope;
  const Tensor sums =  // row_sum(dF F), by scope
      Tensor::empty({scopes, a.config.scope * s.rows}, DType::f32, Device::cuda);
  if (keys.maxima_have_gradients) keys.sums = sums.data<float>();
  run(Step::keys_backward, s, keys);  // (3), (1)
  if (!keys.maxima_have_gradients) return d;
  const Tensor total = tensor::sum(sums, 1);  // [scopes]
  cuda::map(scopes * s.width,                 // (2)
            AddKeyMaximum{total.data<float>(), keys.w, a.key_position.data<std::int32_t>(),
                          a.keys.feature.data<std::int32_t>(), keys.of_x, keys.dx, s, keys.scope});
  return d;
}

}  // namespace skytape::attention
