// Block attention on the CPU: listed keys are packed next to one another, so that the products of a
// query block with all of them are library calls on arrays that stay in cache.
//
// Work is cut by shapes only and every sum has a fixed order:
//   forward   unit = (b, h, query block);
//   backward  unit = (b, h): its query blocks add to the rows of dk and dv one after the other.
#include <omp.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "attention/blocks/block_attention_plan.hpp"
#include "attention/tiled/online_softmax.hpp"
#include "tensor/gemm/gemm.hpp"
#include "tensor/launch/first_failure.hpp"
#include "tensor/launch/launch.hpp"
#include "tensor/launch/math.hpp"

namespace skytape::attention {
namespace {

using tensor::gemm_cpu;
using tensor::transposed;

constexpr std::int64_t kPack = 512;  // keys packed at a time, or one block if that is more

template <class T> constexpr T kNothing = -std::numeric_limits<T>::infinity();

/// Arrays of one call.
template <class T> struct Arrays {
  const T *q, *k, *v, *mask;
  explicit Arrays(const BlockInputs& in)
      : q(in.q.data<T>()), k(in.k.data<T>()), v(in.v.data<T>()), mask(in.mask.data<T>()) {}
};

/// Scratch of one thread: a query block, packed keys, and the values between them.
template <class T> struct Workspace {
  std::int64_t capacity;                   // keys
  std::vector<T> q, out;                   // [c, D]
  std::vector<T> k, v, dk, dv;             // [capacity, D]
  std::vector<T> bias;                     // [capacity]: 0, or -inf where no key is
  std::vector<T> weights, dscores;         // [c, capacity]
  std::vector<OnlineSoftmax<T>> softmax;   // [c]
  std::vector<std::int32_t> rows, tokens;  // [c], [capacity]; -1 for none
  std::vector<std::int32_t> places;        // [capacity]: key places, if there are any
  std::vector<T> dout, lse, delta;         // [c, D], [c], [c]

  Workspace(const BlockPlan& plan, bool backward)
      : capacity(std::max(kPack / plan.block, std::int64_t{1}) * plan.block) {
    const auto c = static_cast<std::size_t>(plan.block), d = static_cast<std::size_t>(plan.width);
    const auto keys = static_cast<std::size_t>(capacity);
    q.resize(c * d);
    out.resize(c * d);
    k.resize(keys * d);
    v.resize(keys * d);
    bias.resize(keys);
    weights.resize(c * keys);
    softmax.resize(c);
    rows.resize(c);
    tokens.resize(keys);
    if (plan.key_place != nullptr) places.resize(keys);
    if (!backward) return;
    dout.resize(c * d);
    lse.resize(c);
    delta.resize(c);
    dk.resize(keys * d);
    dv.resize(keys * d);
    dscores.resize(c * keys);
  }
};

/// Loads the tokens of query block i; false if there is none.
template <class T> bool load_rows(const BlockPlan& plan, std::int64_t group, std::int64_t i,
                                  const T* q, Workspace<T>& w) {
  bool any = false;
  for (std::int64_t r = 0; r < plan.block; ++r) {
    const std::int64_t t = plan.token_at(group, i * plan.block + r);
    w.rows[r] = static_cast<std::int32_t>(t);
    any = any || t >= 0;
    T* const to = w.q.data() + r * plan.width;
    if (t < 0) {
      std::fill_n(to, plan.width, T(0));
    } else {
      std::copy_n(q + (group * plan.tokens + t) * plan.width, plan.width, to);
    }
  }
  return any;
}

/// Packs the listed blocks from entry `e` on, as many as fit, leaving out those that no row of the
/// block looks at; returns the number of packed slots and moves `e` on. Padded keys are packed too:
/// with avoid_self a padded query has its own key.
template <class T> std::int64_t pack_keys(const BlockPlan& plan, const Arrays<T>& in,
                                          std::int64_t group, std::int64_t end, std::int64_t& e,
                                          Workspace<T>& w) {
  const std::int32_t* const list = plan.list(group);
  const T* const mask = in.mask + group / plan.heads * plan.tokens;
  std::int64_t count = 0;
  for (; e < end && count + plan.block <= w.capacity; ++e) {
    if (list[e] < 0) continue;
    bool any = false;
    for (std::int64_t j = 0; j < plan.block; ++j) {
      const std::int64_t t = plan.token_at(group, list[e] * plan.block + j);
      const bool real = t >= 0 && mask[t] != T(0);
      w.tokens[count + j] = static_cast<std::int32_t>(t);
      w.bias[count + j] = real ? T(0) : kNothing<T>;
      any = any || real || (plan.avoid_self && t >= 0);
    }
    if (!any) continue;
    if (plan.key_place != nullptr) {
      const std::int32_t* const place =
          plan.key_place + (plan.views == 1 ? 0 : group % plan.heads * plan.places);
      for (std::int64_t j = count; j < count + plan.block; ++j) {
        w.places[j] = w.tokens[j] < 0 ? kSeenByAll : place[w.tokens[j]];
      }
    }
    for (std::int64_t j = count; j < count + plan.block; ++j) {
      const std::int64_t at = (group * plan.tokens + w.tokens[j]) * plan.width;
      T* const k = w.k.data() + j * plan.width;
      T* const v = w.v.data() + j * plan.width;
      if (w.tokens[j] < 0) {
        std::fill_n(k, plan.width, T(0));
        std::fill_n(v, plan.width, T(0));
      } else {
        std::copy_n(in.k + at, plan.width, k);
        std::copy_n(in.v + at, plan.width, v);
      }
    }
    count += plan.block;
  }
  return count;
}

/// The token whose key is row r's own and counts last; -2, which no slot holds, if there is none.
template <class T>
std::int32_t own_token(const BlockPlan& plan, std::int64_t r, const Workspace<T>& w) {
  return plan.avoid_self && w.rows[r] >= 0 ? w.rows[r] : -2;
}

/// scores: [c, count] of the packed keys, in rows of w.capacity.
template <class T> void score(const BlockPlan& plan, std::int64_t count, Workspace<T>& w) {
  gemm_cpu<T>(static_cast<T>(plan.scale), {w.q.data(), plan.block, plan.width},
              transposed<T>({w.k.data(), count, plan.width}), T(0),
              {w.weights.data(), plan.block, count, w.capacity});
}

/// Scores of keys that row r's query does not see become -inf.
template <class T> void hide_unseen(const BlockPlan& plan, std::int64_t group, std::int64_t r,
                                    std::int64_t count, Workspace<T>& w) {
  if (plan.key_place == nullptr || w.rows[r] < 0) return;
  const std::int64_t view = plan.views == 1 ? 0 : group % plan.heads;
  const std::int32_t own = plan.query_place[view * plan.places + w.rows[r]];
  const std::int32_t reach = plan.reach[view];
  const std::int32_t* const places = w.places.data();
  T* const s = w.weights.data() + r * w.capacity;
#pragma omp simd
  for (std::int64_t j = 0; j < count; ++j) {
    const bool seen = places[j] == kSeenByAll || BlockPlan::within(own - places[j], reach);
    s[j] = seen ? s[j] : kNothing<T>;
  }
}

/// One row of scores becomes exponentials relative to the running maximum; earlier sums shrink.
template <class T>
void forward_row(const BlockPlan& plan, std::int64_t r, std::int64_t count, Workspace<T>& w) {
  T* const s = w.weights.data() + r * w.capacity;
  const T* const bias = w.bias.data();
  const std::int32_t* const tokens = w.tokens.data();
  const std::int32_t own = own_token(plan, r, w);
  T largest = w.softmax[r].max;
#pragma omp simd reduction(max : largest)
  for (std::int64_t j = 0; j < count; ++j) {
    s[j] = tokens[j] == own ? T(kSelfScore) : s[j] + bias[j];
    largest = s[j] > largest ? s[j] : largest;
  }
  const T shrink = w.softmax[r].update(s, count, largest);
  if (shrink == 1) return;
  T* const out = w.out.data() + r * plan.width;
  for (std::int64_t c = 0; c < plan.width; ++c) out[c] *= shrink;
}

template <class T> void forward_unit(const BlockPlan& plan, const Arrays<T>& in, std::int64_t group,
                                     std::int64_t i, Workspace<T>& w, T* out, T* lse) {
  const std::int64_t d = plan.width;
  std::fill(w.out.begin(), w.out.end(), T(0));
  std::fill(w.softmax.begin(), w.softmax.end(), OnlineSoftmax<T>());
  if (load_rows(plan, group, i, in.q, w)) {
    for (std::int64_t e = plan.begin[i]; e < plan.begin[i + 1];) {
      const std::int64_t count = pack_keys(plan, in, group, plan.begin[i + 1], e, w);
      if (count == 0) continue;
      score(plan, count, w);
      for (std::int64_t r = 0; r < plan.block; ++r) {
        hide_unseen(plan, group, r, count, w);
        forward_row(plan, r, count, w);
      }
      gemm_cpu<T>(T(1), {w.weights.data(), plan.block, count, w.capacity}, {w.v.data(), count, d},
                  T(1), {w.out.data(), plan.block, d});
    }
  }
  for (std::int64_t r = 0; r < plan.block; ++r) {
    const std::int64_t row = plan.row_at(group, i * plan.block + r);
    if (row < 0) continue;
    const std::int64_t at = group * plan.rows + row;
    const T inverse = w.softmax[r].inverse();
    for (std::int64_t c = 0; c < d; ++c) out[at * d + c] = w.out[r * d + c] * inverse;
    lse[at] = w.softmax[r].lse();
  }
}

/// Turns one row of scores into weights, and of G v^T into dscores.
template <class T>
void backward_row(const BlockPlan& plan, std::int64_t r, std::int64_t count, Workspace<T>& w) {
  T* const s = w.weights.data() + r * w.capacity;
  T* const e = w.dscores.data() + r * w.capacity;
  const T* const bias = w.bias.data();
  const std::int32_t* const tokens = w.tokens.data();
  const std::int32_t own = own_token(plan, r, w);
  const T shift = w.lse[r] == kNothing<T> ? T(0) : w.lse[r];  // no real key: all weights vanish
  const T delta = w.delta[r];
#pragma omp simd
  for (std::int64_t j = 0; j < count; ++j) {
    const bool self = tokens[j] == own;
    s[j] = math::exp((self ? T(kSelfScore) : s[j] + bias[j]) - shift);
    e[j] = self ? T(0) : s[j] * (e[j] - delta);
  }
}

/// Adds packed rows to the rows of their tokens.
template <class T> void add_rows(const BlockPlan& plan, std::int64_t group, std::int64_t count,
                                 const std::int32_t* tokens, const T* rows, T* target) {
  for (std::int64_t j = 0; j < count; ++j) {
    if (tokens[j] < 0) continue;
    const T* const from = rows + j * plan.width;
    T* const to = target + (group * plan.tokens + tokens[j]) * plan.width;
#pragma omp simd
    for (std::int64_t c = 0; c < plan.width; ++c) to[c] += from[c];
  }
}

/// The arrays that backward reads and writes besides its inputs.
template <class T> struct BackwardArrays {
  const T *lse, *delta, *dout;  // [B, H, rows], dout: [B, H, rows, D]
  T *dq, *dk, *dv;              // [B, H, N, D]
};

/// Loads dout, lse and delta of query block i; zeros where no row belongs to a slot.
template <class T> void load_cotangents(const BlockPlan& plan, const BackwardArrays<T>& g,
                                        std::int64_t group, std::int64_t i, Workspace<T>& w) {
  for (std::int64_t r = 0; r < plan.block; ++r) {
    const std::int64_t row = plan.row_at(group, i * plan.block + r);
    const std::int64_t at = group * plan.rows + row;
    T* const to = w.dout.data() + r * plan.width;
    if (row < 0) {
      std::fill_n(to, plan.width, T(0));
    } else {
      std::copy_n(g.dout + at * plan.width, plan.width, to);
    }
    w.lse[r] = row < 0 ? T(0) : g.lse[at];
    w.delta[r] = row < 0 ? T(0) : g.delta[at];
  }
}

template <class T> void backward_block(const BlockPlan& plan, const Arrays<T>& in,
                                       const BackwardArrays<T>& g, std::int64_t group,
                                       std::int64_t i, Workspace<T>& w) {
  if (!load_rows(plan, group, i, in.q, w)) return;
  const std::int64_t d = plan.width, c = plan.block;
  load_cotangents(plan, g, group, i, w);
  const T* const dout = w.dout.data();  // [c, D], zeros where no row belongs to a slot
  const T scale = static_cast<T>(plan.scale);
  std::fill(w.out.begin(), w.out.end(), T(0));  // dq of the block
  for (std::int64_t e = plan.begin[i]; e < plan.begin[i + 1];) {
    const std::int64_t count = pack_keys(plan, in, group, plan.begin[i + 1], e, w);
    if (count == 0) continue;
    score(plan, count, w);
    gemm_cpu<T>(T(1), {dout, c, d}, transposed<T>({w.v.data(), count, d}), T(0),
                {w.dscores.data(), c, count, w.capacity});
    for (std::int64_t r = 0; r < c; ++r) {
      hide_unseen(plan, group, r, count, w);
      backward_row(plan, r, count, w);
    }
    gemm_cpu<T>(T(1), transposed<T>({w.weights.data(), c, count, w.capacity}), {dout, c, d}, T(0),
                {w.dv.data(), count, d});
    gemm_cpu<T>(scale, transposed<T>({w.dscores.data(), c, count, w.capacity}), {w.q.data(), c, d},
                T(0), {w.dk.data(), count, d});
    gemm_cpu<T>(scale, {w.dscores.data(), c, count, w.capacity}, {w.k.data(), count, d}, T(1),
                {w.out.data(), c, d});
    add_rows(plan, group, count, w.tokens.data(), w.dv.data(), g.dv);
    add_rows(plan, group, count, w.tokens.data(), w.dk.data(), g.dk);
  }
  add_rows(plan, group, c, w.rows.data(), w.out.data(), g.dq);
}

// A block of queries, or a head, is a task of a thread.
template <class T>
void forward(const BlockPlan& plan, const BlockInputs& in, BlockForward& result) {
  const std::int64_t units = plan.batch * plan.heads * plan.row_blocks;
  const Arrays<T> arrays(in);
  T* const out = result.out.data<T>();
  T* const lse = result.lse.data<T>();
  cpu::FirstFailure failure;
#pragma omp parallel if (units > 1)
  {
    std::optional<Workspace<T>> workspace;
    failure.guard([&] { workspace.emplace(plan, false); });
#pragma omp for schedule(dynamic)
    for (std::int64_t unit = 0; unit < units; ++unit) {
      failure.guard([&] {
        forward_unit(plan, arrays, unit / plan.row_blocks, unit % plan.row_blocks, *workspace, out,
                     lse);
      });
    }
  }
  failure.rethrow();
}

template <class T> void backward(const BlockPlan& plan, const BlockInputs& in, const Tensor& lse,
                                 const Tensor& delta, const Tensor& dout, BlockBackward& result) {
  const std::int64_t groups = plan.batch * plan.heads, head = plan.tokens * plan.width;
  const Arrays<T> arrays(in);
  const BackwardArrays<T> g{lse.data<T>(),       delta.data<T>(),     dout.data<T>(),
                            result.dq.data<T>(), result.dk.data<T>(), result.dv.data<T>()};
  cpu::FirstFailure failure;
#pragma omp parallel if (groups > 1)
  {
    std::optional<Workspace<T>> workspace;
    failure.guard([&] { workspace.emplace(plan, true); });
#pragma omp for schedule(dynamic)
    for (std::int64_t group = 0; group < groups; ++group) {
      for (T* const target : {g.dq, g.dk, g.dv}) std::fill_n(target + group * head, head, T(0));
      failure.guard([&] {
        for (std::int64_t i = 0; i < plan.row_blocks; ++i) {
          backward_block(plan, arrays, g, group, i, *workspace);
        }
      });
    }
  }
  failure.rethrow();
}

}  // namespace

void block_forward_on(Cpu, const BlockPlan& plan, const BlockInputs& in, BlockForward& result) {
  dispatch_float(in.q.dtype(), [&]<class T>() { forward<T>(plan, in, result); });
}

void block_backward_on(Cpu, const BlockPlan& plan, const BlockInputs& in, const Tensor& lse,
                       const Tensor& delta, const Tensor& dout, BlockBackward& result) {
  dispatch_float(in.q.dtype(), [&]<class T>() { backward<T>(plan, in, lse, delta, dout, result); });
}

}  // namespace skytape::attention
