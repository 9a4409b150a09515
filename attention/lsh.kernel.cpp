// Kernels of locality-sensitive hashing: key lengths, buckets, slots, and the sum over rounds.
#include "attention/lsh_plan.hpp"
#include "tensor/launch.hpp"

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
    const T squares = team.sum(width, [&](std::int64_t c) { return from[c] * from[c]; });
    const T factor =
        T(1) / math::sqrt((squares / T(width) + T(kLengthEpsilon)) * T(width));  // rho / sqrt(D)
    team.each(width, [&](std::int64_t c) { to[c] = from[c] * factor; });
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
    const T squares = team.sum(width, [&](std::int64_t c) { return from[c] * from[c]; });
    const T along = team.sum(width, [&](std::int64_t c) { return from[c] * g[c]; });
    const T rho_squared = T(1) / (squares / T(width) + T(kLengthEpsilon));
    const T factor = math::sqrt(rho_squared / T(width));
    const T pull = rho_squared * along / T(width);
    team.each(width, [&](std::int64_t c) { to[c] = factor * (g[c] - from[c] * pull); });
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
    std::int64_t best = 0;
    for (std::int64_t i = 1; i < 2 * half; ++i) {
      const T a = best < half ? y[best] : -y[best - half];
      const T b = i < half ? y[i] : -y[i - half];
      if (b > a) best = i;
    }
    return best;
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

/// Where the rounds of one token lie, and their weights.
template <class T> struct Rounds {
  const T* out;              // [B, H, P, D]
  const T* lse;              // [B, H, P]
  const std::int32_t* slot;  // [B, H, R, N]
  std::int64_t rounds, length, slots, width;

  HD std::int64_t at(std::int64_t row, std::int64_t r) const {  // row of `out`
    const std::int64_t group = row / length;
    return group * slots + slot[(group * rounds + r) * length + row % length];
  }
  /// w = softmax of the rounds' log-sum-exps.
  HD void weights(std::int64_t row, T* w) const {
    T largest = lse[at(row, 0)], total = 0;
    for (std::int64_t r = 1; r < rounds; ++r) largest = math::max(largest, lse[at(row, r)]);
    for (std::int64_t r = 0; r < rounds; ++r) {
      w[r] = math::exp(lse[at(row, r)] - largest);
      total += w[r];
    }
    for (std::int64_t r = 0; r < rounds; ++r) w[r] /= total;
  }
};

template <class T> struct CombineRounds {
  Rounds<T> in;
  T* y;  // [B, H, N, D]
  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    T w[kMaxRounds];
    in.weights(row, w);
    T* const to = y + row * in.width;
    team.each(in.width, [&](std::int64_t c) { to[c] = T(0); });
    for (std::int64_t r = 0; r < in.rounds; ++r) {
      const T* const from = in.out + in.at(row, r) * in.width;
      team.each(in.width, [&](std::int64_t c) { to[c] += w[r] * from[c]; });
    }
  }
};

template <class T> struct CombineRoundsBackward {
  Rounds<T> in;
  const T* dy;     // [B, H, N, D]
  T *dout, *dlse;  // [B, H, P, D], [B, H, P]
  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    T w[kMaxRounds], gain[kMaxRounds];
    in.weights(row, w);
    const T* const g = dy + row * in.width;
    T mean = 0;
    for (std::int64_t r = 0; r < in.rounds; ++r) {
      const T* const o = in.out + in.at(row, r) * in.width;
      gain[r] = team.sum(in.width, [&](std::int64_t c) { return g[c] * o[c]; });
      mean += w[r] * gain[r];
    }
    for (std::int64_t r = 0; r < in.rounds; ++r) {
      const std::int64_t at = in.at(row, r);
      team.each(in.width, [&](std::int64_t c) { dout[at * in.width + c] = w[r] * g[c]; });
      if (team.leader()) dlse[at] = w[r] * (gain[r] - mean);
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
    rows(x.rows(), x.cols(), UnitKey<T>{x.data<T>(), k.data<T>(), x.cols()});
  });
}

void unit_keys_backward_on(Backend, const Tensor& x, const Tensor& dk, Tensor& dx) {
  dispatch_float(x.dtype(), [&]<class T>() {
    rows(x.rows(), x.cols(), UnitKeyBackward<T>{x.data<T>(), dk.data<T>(), dx.data<T>(), x.cols()});
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
