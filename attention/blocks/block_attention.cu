// Block attention on CUDA in true f32 or f64, the form to read first; block_attention_tensor_core.cu
// has tf32 and bf16. One warp owns a query row (forward, dq) or a key row (dk, dv). Lanes share out
// the rows of the other side to score them, then the columns to add them up. No atomics, so results
// repeat; scores live in registers.
#include <limits>

#include "attention/blocks/block_attention_plan.hpp"
#include "attention/tiled/tiled_cuda.hpp"
#include "tensor/launch/cuda.hpp"
#include "tensor/launch/launch.hpp"

namespace skytape::attention {
namespace {

using cuda::kWarp;

constexpr unsigned kAll = 0xffffffffu;
constexpr int kPerLane = 8;                                         // columns that a lane adds up
constexpr std::int64_t kMaxWidth = std::int64_t{kPerLane} * kWarp;  // D

template <class T> struct Arrays {
  BlockPlan plan;
  const T *q, *k, *v, *mask;

  __device__ const T* row(const T* x, std::int64_t group, std::int64_t t) const {
    return x + (group * plan.tokens + t) * plan.width;
  }
  __device__ bool real(std::int64_t group, std::int64_t t) const {
    return mask[group / plan.heads * plan.tokens + t] != T(0);
  }
  __device__ T dot(const T* a, const T* b) const {
    T sum = 0;
    for (std::int64_t c = 0; c < plan.width; ++c) sum += a[c] * b[c];
    return sum;
  }
  /// Score of token i for token j, -inf where j does not count.
  __device__ T score(std::int64_t group, std::int64_t i, std::int64_t j) const {
    if (j < 0) return -std::numeric_limits<T>::infinity();
    if (plan.avoid_self && i == j) return T(kSelfScore);
    if (!real(group, j) || !plan.sees(group, i, j)) return -std::numeric_limits<T>::infinity();
    return static_cast<T>(plan.scale) * dot(row(q, group, i), row(k, group, j));
  }
};

/// Columns lane, lane + 32, … of a row that a warp adds up.
template <class T> struct Columns {
  T sum[kPerLane] = {};

  /// sum += factor of each lane times that lane's row (null: nothing to add).
  __device__ void add(const T* rows, T factor, int lane, std::int64_t width) {
    for (int u = 0; u < kWarp; ++u) {
      const T f = __shfl_sync(kAll, factor, u);
      const auto address = __shfl_sync(kAll, reinterpret_cast<unsigned long long>(rows), u);
      const T* const from = reinterpret_cast<const T*>(address);
      if (from == nullptr) continue;  // the same for all lanes
#pragma unroll
      for (int c = 0; c < kPerLane; ++c) {
        if (lane + c * kWarp < width) sum[c] += f * from[lane + c * kWarp];
      }
    }
  }
  __device__ void store(T* to, T factor, int lane, std::int64_t width) const {
#pragma unroll
    for (int c = 0; c < kPerLane; ++c) {
      if (lane + c * kWarp < width) to[lane + c * kWarp] = factor * sum[c];
    }
  }
};

/// f(token or -1) for the slots that query block i lists, one a lane; every lane calls f equally
/// often.
template <class F> __device__ void each_key(const BlockPlan& plan, std::int64_t group,
                                            std::int64_t i, int lane, const F& f) {
  const std::int32_t* const list = plan.list(group);
  for (std::int32_t e = plan.begin[i]; e < plan.begin[i + 1]; ++e) {
    if (list[e] < 0) continue;
    for (std::int64_t j = 0; j < plan.block; j += kWarp) {
      const bool inside = j + lane < plan.block;
      f(inside ? plan.token_at(group, list[e] * plan.block + j + lane) : std::int64_t{-1});
    }
  }
}

/// The row of out and lse of one slot, in two passes over its keys: row sum, then values.
template <class T> struct ForwardRow {
  Arrays<T> in;
  T *out, *lse;  // [B, H, rows, D], [B, H, rows]

  __device__ void operator()(std::int64_t task, const cuda::Warp& warp) const {
    constexpr T kNothing = -std::numeric_limits<T>::infinity();
    const BlockPlan& plan = in.plan;
    const std::int64_t group = task / plan.slots, s = task % plan.slots;
    const std::int64_t own = plan.token_at(group, s), i = s / plan.block;
    const std::int64_t row = plan.row_at(group, s), at = group * plan.rows + row;
    if (row < 0) return;  // the same for all lanes
    T max = kNothing, sum = 0;
    if (own >= 0) {
      each_key(plan, group, i, warp.lane, [&](std::int64_t j) {
        const T x = in.score(group, own, j);
        if (x == kNothing) return;
        const T larger = math::max(max, x);
        sum = sum * math::exp(max - larger) + math::exp(x - larger);
        max = larger;
      });
    }
    T largest = max;
    for (int offset = kWarp / 2; offset > 0; offset /= 2) {
      largest = math::max(largest, __shfl_xor_sync(kAll, largest, offset));
    }
    sum = max == kNothing ? T(0) : sum * math::exp(max - largest);
    for (int offset = kWarp / 2; offset > 0; offset /= 2) {
      sum += __shfl_xor_sync(kAll, sum, offset);
    }
    Columns<T> columns;
    if (sum > T(0)) {  // the same for all lanes
      each_key(plan, group, i, warp.lane, [&](std::int64_t j) {
        const T x = in.score(group, own, j);
        columns.add(x == kNothing ? nullptr : in.row(in.v, group, j),
                    x == kNothing ? T(0) : math::exp(x - largest), warp.lane, plan.width);
      });
    }
    columns.store(out + at * plan.width, sum > T(0) ? T(1) / sum : T(0), warp.lane, plan.width);
    if (warp.leader()) lse[at] = sum > T(0) ? largest + math::log(sum) : kNothing;
  }
};

/// Weight of a pair and dL/dscore.
template <class T> struct Pair { T weight = 0, dscore = 0; };

template <class T> struct BackwardInputs {
  Arrays<T> in;
  const T *lse, *delta, *dout;  // [B, H, rows], dout: [B, H, rows, D]

  /// at: row of out that query i stands in.
  __device__ Pair<T> pair(std::int64_t group, std::int64_t at, std::int64_t i,
                          std::int64_t j) const {
    const T x = in.score(group, i, j);
    if (x == -std::numeric_limits<T>::infinity()) return {};
    const T weight = math::exp(x - lse[at]);
    if (in.plan.avoid_self && i == j) return {weight, T(0)};
    const T dweight = in.dot(dout + at * in.plan.width, in.row(in.v, group, j));
    return {weight, weight * (dweight - delta[at])};
  }
};

/// dq of one slot, by rows of out: [B, H, rows, D].
template <class T> struct QueryRow {
  BackwardInputs<T> g;
  T* dq;
  __device__ void operator()(std::int64_t task, const cuda::Warp& warp) const {
    const BlockPlan& plan = g.in.plan;
    const std::int64_t group = task / plan.slots, s = task % plan.slots;
    const std::int64_t own = plan.token_at(group, s);
    const std::int64_t row = plan.row_at(group, s), at = group * plan.rows + row;
    if (row < 0) return;  // the same for all lanes
    Columns<T> columns;
    if (own >= 0) {
      each_key(plan, group, s / plan.block, warp.lane, [&](std::int64_t j) {
        const Pair<T> p = g.pair(group, at, own, j);
        columns.add(p.dscore == T(0) ? nullptr : g.in.row(g.in.k, group, j), p.dscore, warp.lane,
                    plan.width);
      });
    }
    columns.store(dq + at * plan.width, static_cast<T>(plan.scale), warp.lane, plan.width);
  }
};

/// dk and dv of one slot, by rows of out: looks through the lists, in order, for the blocks that see
/// its own.
template <class T> struct KeyRow {
  BackwardInputs<T> g;
  T *dk, *dv;
  __device__ void operator()(std::int64_t task, const cuda::Warp& warp) const {
    const BlockPlan& plan = g.in.plan;
    const std::int64_t group = task / plan.slots, s = task % plan.slots;
    const std::int64_t own = plan.token_at(group, s), block = s / plan.block;
    const std::int64_t own_row = plan.row_at(group, s), to = group * plan.rows + own_row;
    if (own_row < 0) return;  // the same for all lanes
    const std::int32_t* const list = plan.list(group);
    Columns<T> keys, values;
    for (std::int64_t e = 0; own >= 0 && e < plan.total; e += kWarp) {
      const bool hit = e + warp.lane < plan.total && list[e + warp.lane] == block;
      for (unsigned hits = __ballot_sync(kAll, hit); hits != 0; hits &= hits - 1) {
        const std::int64_t i = plan.row[e + __ffs(static_cast<int>(hits)) - 1];
        for (std::int64_t r = warp.lane; r < plan.block + warp.lane; r += kWarp) {
          const std::int64_t slot = i * plan.block + r;
          const bool inside = r < plan.block && slot < plan.slots;
          const std::int64_t query = inside ? plan.token_at(group, slot) : -1;
          const std::int64_t at = query < 0 ? 0 : group * plan.rows + plan.row_at(group, slot);
          const Pair<T> p = query < 0 ? Pair<T>{} : g.pair(group, at, query, own);
          keys.add(query < 0 ? nullptr : g.in.row(g.in.q, group, query), p.dscore, warp.lane,
                   plan.width);
          values.add(query < 0 ? nullptr : g.dout + at * plan.width, p.weight, warp.lane,
                     plan.width);
        }
      }
    }
    keys.store(dk + to * plan.width, static_cast<T>(plan.scale), warp.lane, plan.width);
    values.store(dv + to * plan.width, T(1), warp.lane, plan.width);
  }
};

/// y[token] = sum of x over the token's slots, round by round.
template <class T> struct AddRounds {
  BlockPlan plan;
  const T* x;  // [B, H, P, D]
  T* y;        // [B, H, N, D]
  __device__ void operator()(std::int64_t e) const {
    const std::int64_t c = e % plan.width, t = e / plan.width % plan.tokens;
    const std::int64_t group = e / (plan.width * plan.tokens);
    T sum = 0;
    for (std::int64_t r = 0; r < plan.rounds; ++r) {
      const std::int64_t s = plan.slot[(group * plan.rounds + r) * plan.tokens + t];
      sum += x[(group * plan.rows + s) * plan.width + c];
    }
    y[e] = sum;
  }
};

/// One warp per slot. Each pair of a query and a listed key costs so many products of rows at most;
/// what is padding or out of reach costs less.
template <class F> void each_slot(const BlockPlan& plan, std::int64_t products, const F& f) {
  const std::int64_t count = plan.batch * plan.heads * plan.slots;
  ENSURE(plan.width <= kMaxWidth, "block attention on cuda: expected a head width of at most ",
         kMaxWidth, ", got ", plan.width);
  const std::int64_t pairs = plan.batch * plan.heads * plan.total * plan.block * plan.block;
  cuda::computes(products * pairs * plan.width);
  cuda::warp_rows(count, f);
}

template <class T> Arrays<T> arrays_of(const BlockPlan& plan, const BlockInputs& in) {
  return {plan, in.q.data<T>(), in.k.data<T>(), in.v.data<T>(), in.mask.data<T>()};
}

bool on_tensor_cores(const BlockPlan& plan, const BlockInputs& in) {
  return fits_tensor_cores(plan) && tiled_cuda::on_tensor_cores(in.q);
}

}  // namespace

void block_forward_on(Cuda, const BlockPlan& plan, const BlockInputs& in, BlockForward& result) {
  if (on_tensor_cores(plan, in)) {
    tensor_core_forward(plan, in, result);
    return;
  }
  dispatch_float(in.q.dtype(), [&]<class T>() {
    each_slot(plan, 3,  // scores in both passes, and values
              ForwardRow<T>{arrays_of<T>(plan, in), result.out.data<T>(), result.lse.data<T>()});
  });
}

void block_backward_on(Cuda, const BlockPlan& plan, const BlockInputs& in, const Tensor& lse,
                       const Tensor& delta, const Tensor& dout, BlockBackward& result) {
  const auto by_rows = [&](const Tensor& x) {  // [B, H, P, D], or x itself: one slot of each token
    return plan.slot == nullptr
               ? x
               : Tensor::empty(x.shape().with(2, plan.rows), x.dtype(), x.device());
  };
  const BlockBackward rows{by_rows(result.dq), by_rows(result.dk), by_rows(result.dv)};
  dispatch_float(in.q.dtype(), [&]<class T>() {
    if (on_tensor_cores(plan, in)) {
      tensor_core_backward(plan, in, lse, delta, dout, rows);
    } else {
      const BackwardInputs<T> g{arrays_of<T>(plan, in), lse.data<T>(), delta.data<T>(),
                                dout.data<T>()};
      each_slot(plan, 3, QueryRow<T>{g, rows.dq.data<T>()});
      each_slot(plan, 4, KeyRow<T>{g, rows.dk.data<T>(), rows.dv.data<T>()});
    }
    if (plan.slot == nullptr) return;
    const auto add = [&](const Tensor& x, const Tensor& y) {
      cuda::map(y.numel(), AddRounds<T>{plan, x.data<T>(), y.data<T>()});
    };
    add(rows.dq, result.dq);
    add(rows.dk, result.dk);
    add(rows.dv, result.dv);
  });
}

}  // namespace skytape::attention
