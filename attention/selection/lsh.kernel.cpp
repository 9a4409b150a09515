// Kernels of locality-sensitive hashing: key lengths, buckets, slots, and the sum over rounds.
#include <limits>

#include "attention/selection/lsh.hpp"
#include "tensor/launch/narrow_rows.hpp"

namespace skytape::attention {
namespace {

constexpr double kLengthEpsilon = 1e-6;  // as in the library whose layer the papers use

template <class T> struct UnitKey {
  const T* x;  // [rows, D]
  T* k;        // [rows, D]
  std::int64_t width;
  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const T* const from = x + row * width;
    T* const to = k + row * width;
    const T squares = sum_over(
        team, width, [](T one) { return one * one; }, from);
    const T factor =
        T(1) / math::sqrt((squares / T(width) + T(kLengthEpsilon)) * T(width));  // rho / sqrt(D)
    assign(
        team, width, to, [=](T one) { return one * factor; }, from);
  }
};

template <class T> struct UnitKeyBackward {
  const T *x, *dk;  // [rows, D]
  T* dx;            // [rows, D]
  std::int64_t width;
  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const T* const from = x + row * width;
    const T* const g = dk + row * width;
    T* const to = dx + row * width;
    const T squares = sum_over(
        team, width, [](T one) { return one * one; }, from);
    const T along = sum_over(
        team, width, [](T one, T slope) { return one * slope; }, from, g);
    const T rho_squared = T(1) / (squares / T(width) + T(kLengthEpsilon));
    const T factor = math::sqrt(rho_squared / T(width));
    const T pull = rho_squared * along / T(width);
    assign(
        team, width, to, [=](T one, T slope) { return factor * (slope - one * pull); }, from, g);
  }
};

template <class T> struct NegativeBucket {
  BucketFactors factors;
  const T* rotated;  // [B, H, N, R * W]
  const T* mask;     // [B, N]
  T* negative;       // [B, H, R, N]
  std::int64_t heads, length, rounds;

  /// Position of the largest of [y, -y], the first on ties.
  HD static std::int64_t largest(const T* y, std::int64_t half) {
    std::int64_t at_top = 0, at_bottom = 0;
    T top = y[0], bottom = y[0];
    for (std::int64_t i = 1; i < half; ++i) {
      if (y[i] > top) {
        top = y[i];
        at_top = i;
      }
      if (y[i] < bottom) {
        bottom = y[i];
        at_bottom = i;
      }
    }
    return top >= -bottom ? at_top : half + at_bottom;
  }
  HD void operator()(std::int64_t e) const {
    const std::int64_t i = e % length, r = e / length % rounds, group = e / (length * rounds);
    const std::int64_t half_width = (factors.first + factors.second) / 2;
    const T* const y = rotated + ((group * length + i) * rounds + r) * half_width;
    std::int64_t bucket = largest(y, factors.first / 2);
    if (factors.second > 0) {
      bucket += factors.first * largest(y + factors.first / 2, factors.second / 2);
    }
    const std::int64_t last = factors.first * (factors.second > 0 ? factors.second : 1);
    const bool real = mask[group / heads * length + i] != T(0);
    negative[e] = -static_cast<T>(real ? bucket : last);
  }
};

struct PlaceSlot {
  const std::int32_t* order;  // [B, H, R, N]
  std::int32_t* token;        // [B, H, R, slots per round]
  std::int32_t* slot;         // [B, H, R, N]
  std::int64_t length, rounds, slots;
  HD void operator()(std::int64_t e) const {
    const std::int64_t rank = e % length, list = e / length;  // list = (b H + h) R + r
    const std::int32_t i = order[e];
    token[list * slots + rank] = i;
    slot[list * length + i] = static_cast<std::int32_t>(list % rounds * slots + rank);
  }
};

/// The rounds of all tokens.
template <class T> struct Rounds {
  const T* out;              // [B, H, P, D]
  const T* lse;              // [B, H, P]
  const std::int32_t* slot;  // [B, H, R, N]
  std::int64_t rounds, length, slots, width;
};

/// The rows of `out` of one token's rounds, and their weights: softmax of log-sum-exps.
template <class T> struct TokenRounds {
  std::int64_t at[kMaxRounds];  // rows of `out`
  T weight[kMaxRounds];

  HD TokenRounds(const Rounds<T>& in, std::int64_t row) {
    const std::int64_t group = row / in.length;
    const std::int32_t* const slot = in.slot + group * (in.rounds - 1) * in.length + row;
    T largest = -std::numeric_limits<T>::infinity(), total = 0;
    for (std::int64_t r = 0; r < in.rounds; ++r) {
      at[r] = group * in.slots + slot[r * in.length];
      largest = math::max(largest, in.lse[at[r]]);
    }
    for (std::int64_t r = 0; r < in.rounds; ++r) {
      weight[r] = math::exp(in.lse[at[r]] - largest);
      total += weight[r];
    }
    for (std::int64_t r = 0; r < in.rounds; ++r) weight[r] /= total;
  }
};

template <class T> struct CombineRounds {
  Rounds<T> in;
  T* y;  // [B, H, N, D]
  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const TokenRounds<T> token(in, row);
    T* const to = y + row * in.width;
    for (std::int64_t r = 0; r < in.rounds; ++r) {
      const T w = token.weight[r];
      const T* const from = in.out + token.at[r] * in.width;
      team.each(in.width, [&](std::int64_t c) { to[c] = (r == 0 ? T(0) : to[c]) + w * from[c]; });
    }
  }
};

template <class T> struct CombineRoundsBackward {
  Rounds<T> in;
  const T* dy;     // [B, H, N, D]
  T *dout, *dlse;  // [B, H, P, D], [B, H, P]
  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const TokenRounds<T> token(in, row);
    T out_dot[kMaxRounds];  // G.out_r
    const T* const g = dy + row * in.width;
    T mean = 0;
    for (std::int64_t r = 0; r < in.rounds; ++r) {
      const T* const o = in.out + token.at[r] * in.width;
      out_dot[r] = team.sum(in.width, [&](std::int64_t c) { return g[c] * o[c]; });
      mean += token.weight[r] * out_dot[r];
    }
    for (std::int64_t r = 0; r < in.rounds; ++r) {
      const T w = token.weight[r];
      T* const to = dout + token.at[r] * in.width;
      team.each(in.width, [&](std::int64_t c) { to[c] = w * g[c]; });
      if (team.leader()) dlse[token.at[r]] = w * (out_dot[r] - mean);
    }
  }
};

template <class T> Rounds<T> rounds_of(const Tensor& out, const Tensor& lse, const Tensor& slot) {
  return {out.data<T>(), lse.data<T>(), slot.data<std::int32_t>(), slot.size(2), slot.size(3),
          out.size(2),   out.size(3)};
}

}  // namespace

void unit_keys_on(Backend, const Tensor& x, Tensor& k) {
  dispatch_float(x.dtype(), [&]<class T>() {
    narrow_rows(x.rows(), x.cols(), UnitKey<T>{x.data<T>(), k.data<T>(), x.cols()});
  });
}

void unit_keys_backward_on(Backend, const Tensor& x, const Tensor& dk, Tensor& dx) {
  dispatch_float(x.dtype(), [&]<class T>() {
    narrow_rows(x.rows(), x.cols(),
                UnitKeyBackward<T>{x.data<T>(), dk.data<T>(), dx.data<T>(), x.cols()});
  });
}

void negative_buckets_on(Backend, const BucketFactors& factors, const Tensor& rotated,
                         const Tensor& mask, Tensor& negative) {
  dispatch_float(rotated.dtype(), [&]<class T>() {
    map(negative.numel(),
        NegativeBucket<T>{factors, rotated.data<T>(), mask.data<T>(), negative.data<T>(),
                          negative.size(1), negative.size(3), negative.size(2)});
  });
}

void place_slots_on(Backend, const Tensor& order, std::int64_t slots_per_round,
                    SortedSlots& slots) {
  map(order.numel(),
      PlaceSlot{order.data<std::int32_t>(), slots.token.data<std::int32_t>(),
                slots.slot.data<std::int32_t>(), order.size(3), order.size(2), slots_per_round});
}

void combine_rounds_on(Backend, const Tensor& out, const Tensor& lse, const Tensor& slot,
                       Tensor& y) {
  dispatch_float(out.dtype(), [&]<class T>() {
    rows(y.rows(), y.cols(), CombineRounds<T>{rounds_of<T>(out, lse, slot), y.data<T>()});
  });
}

void combine_rounds_backward_on(Backend, const Tensor& out, const Tensor& lse, const Tensor& slot,
                                const Tensor& dy, RoundGradients& g) {
  dispatch_float(out.dtype(), [&]<class T>() {
    rows(dy.rows(), dy.cols(),
         CombineRoundsBackward<T>{rounds_of<T>(out, lse, slot), dy.data<T>(), g.dout.data<T>(),
                                  g.dlse.data<T>()});
  });
}

}  // namespace skytape::attention
