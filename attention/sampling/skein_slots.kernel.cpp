// Small kernels of Skeinformer's bookkeeping: drawing pilots, weighing columns, counting slots.
#include <limits>

#include "attention/sampling/skein_slots.hpp"
#include "tensor/launch/launch.hpp"
#include "tensor/random/philox.hpp"

namespace skytape::attention {
namespace {

template <class T> struct SlotsInUse {
  FeatureLimit limit;
  const std::int32_t* fewest;  // [1], tokens of the shortest example; null: look
  const T* tokens;             // [B]
  std::int64_t batch;
  std::int32_t* used;  // [B]

  HD void operator()(std::int64_t b) const {
    const auto own = static_cast<std::int64_t>(tokens[b]);
    std::int64_t shortest = own;
    if (!limit.per_example && fewest != nullptr) {
      shortest = *fewest;
    } else if (!limit.per_example) {
      for (std::int64_t i = 0; i < batch; ++i) {  // an example without tokens needs no columns
        if (tokens[i] > 0) shortest = math::min(shortest, static_cast<std::int64_t>(tokens[i]));
      }
    }
    const std::int64_t d = math::max(math::min(limit.features, shortest - 1), std::int64_t{1});
    used[b] = static_cast<std::int32_t>(math::min(d, own));
  }
};

template <class T> struct DrawPilot {
  PilotPlan plan;
  const T* tokens;           // [B]
  const std::int32_t* used;  // [B]
  std::int32_t* pilots;      // [B, S]
  std::int64_t slots;

  HD void operator()(std::int64_t e) const {
    const std::int64_t b = e / slots, j = e % slots;
    const philox::Words words =
        philox::draw(plan.key, static_cast<std::uint64_t>(j / 4), philox::step_of(plan.step));
    const auto m = static_cast<std::uint64_t>(tokens[b]);
    const std::uint64_t row = (words.w[j % 4] * m) >> 32;  // floor(m u), u in [0, 1)
    pilots[e] = j < used[b] ? static_cast<std::int32_t>(row) : -1;
  }
};

/// One row of K Q_J^T: the scores of one column for all pilots.
template <class T> struct ColumnWeight {
  const T* scores;             // [B, H, N, S]
  const T* lse;                // [B, H, S]
  const std::int32_t* pilots;  // [B, S]
  const T* v;                  // [B, H, N, D]
  const T* mask;               // [B, N]
  T* weights;                  // [B, H, N]
  std::int64_t heads, length, slots, width;
  T scale;

  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const std::int64_t group = row / length, b = group / heads;
    const T* const s = scores + row * slots;
    const T* const l = lse + group * slots;
    const std::int32_t* const pilot = pilots + b * slots;
    const T* const value = v + row * width;
    const T real = mask[b * length + row % length];
    if (real == T(0)) {
      if (team.leader()) weights[row] = T(0);
      return;
    }
    const T squares = team.sum(slots, [&](std::int64_t j) {
      const T p = math::exp(T(2) * (scale * s[j] - l[j]));
      // If a pilot's row sum is NaN, the columns that made it so must stay visible.
      const bool other = l[j] != l[j] && s[j] == s[j];
      return pilot[j] < 0 || other ? T(0) : p;
    });
    const T norm = team.sum(width, [&](std::int64_t c) { return value[c] * value[c]; });
    if (team.leader()) {
      const T weight = math::sqrt(squares * norm), least = std::numeric_limits<T>::min();
      weights[row] = weight < least ? least : weight;  // NaN stays NaN
    }
  }
};

struct LimitSlot {
  const std::int32_t* columns;  // [B, H, S]
  const std::int32_t* used;     // [B]
  std::int32_t* limited;        // [B, H, S]
  std::int64_t heads, slots;
  HD void operator()(std::int64_t e) const {
    limited[e] = e % slots < used[e / (heads * slots)] ? columns[e] : -1;
  }
};

template <class T> struct Normalise {
  const T* weights;  // [rows, n]
  T* prob;           // [rows, n]
  std::int64_t n;
  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const T* const w = weights + row * n;
    T* const p = prob + row * n;
    const T total = team.sum(n, [&](std::int64_t i) { return w[i]; });
    const T factor = total == T(0) ? T(0) : T(1) / total;
    team.each(n, [&](std::int64_t i) { p[i] = w[i] * factor; });
  }
};

template <class T> struct PilotSlot {
  const std::int32_t* pilots;  // [B, S]
  std::int32_t* index;         // [B, S]
  T *first, *gradient;         // [B, S]
  T* others;                   // [B, N], all 1 at the start
  std::int64_t slots, length;
  bool count_repeats;

  HD void operator()(std::int64_t e) const {
    const std::int64_t b = e / slots;
    const std::int32_t row = pilots[e];
    bool is_first = row >= 0;
    for (std::int64_t i = b * slots; i < e; ++i) is_first = is_first && pilots[i] != row;
    index[e] = row < 0 ? 0 : row;
    first[e] = is_first ? T(1) : T(0);
    gradient[e] = is_first || (count_repeats && row >= 0) ? T(1) : T(0);
    if (is_first) others[b * length + row] = T(0);
  }
};

template <class T> struct ColumnSlot {
  const std::int32_t* columns;      // [B, H, S]
  const T* tokens;                  // [B]
  std::int32_t* index;              // [B, H, S]
  T* used;                          // [B, S]
  T *inverse_count, *inverse_rest;  // [B]
  T* weights;                       // [B, S + 1]
  std::int64_t heads, slots;

  template <class Team> HD void operator()(std::int64_t b, const Team& team) const {
    const std::int32_t* const own = columns + b * heads * slots;
    team.each(heads * slots,
              [&](std::int64_t e) { index[b * heads * slots + e] = own[e] < 0 ? 0 : own[e]; });
    team.each(slots, [&](std::int64_t j) {
      const T in_use = own[j] < 0 ? T(0) : T(1);
      used[b * slots + j] = in_use;
      weights[b * (slots + 1) + j] = in_use;
    });
    const T count = team.sum(slots, [&](std::int64_t j) { return own[j] < 0 ? T(0) : T(1); });
    if (team.leader()) {
      const T rest = math::max(tokens[b] - count, T(0));
      inverse_count[b] = count > T(0) ? T(1) / count : T(0);
      inverse_rest[b] = rest > T(0) ? T(1) / rest : T(0);
      weights[b * (slots + 1) + slots] = rest;
    }
  }
};

template <class T> struct Importance {
  const std::int32_t* index;  // [B, H, S]
  const T* used;              // [B, S]
  const T* inverse_count;     // [B]
  const T* prob;              // [B, H, N]
  T* factors;                 // [B, H, S]
  std::int64_t heads, slots, length;
  HD void operator()(std::int64_t e) const {
    const std::int64_t group = e / slots, b = group / heads;
    const T p = prob[group * length + index[e]];
    // A slot that is not used reads the first column, whose 1 / p may be infinite.
    const bool counts = used[b * slots + e % slots] != T(0) && p != T(0);
    factors[e] = counts ? inverse_count[b] / p : T(0);
  }
};

template <class T> struct ExpDifference {
  const T *a, *b;
  T* y;
  HD void operator()(std::int64_t i) const {
    const bool empty = a[i] == -std::numeric_limits<T>::infinity();
    y[i] = empty ? T(0) : math::exp(a[i] - b[i]);
  }
};

}  // namespace

void slots_in_use_on(Backend, const FeatureLimit& limit, const std::int32_t* fewest,
                     const Tensor& tokens, Tensor& used) {
  dispatch_float(tokens.dtype(), [&]<class T>() {
    map(tokens.numel(),
        SlotsInUse<T>{limit, fewest, tokens.data<T>(), tokens.numel(), used.data<std::int32_t>()});
  });
}

void draw_pilots_on(Backend, const PilotPlan& plan, const Tensor& tokens, const Tensor& used,
                    Tensor& pilots) {
  dispatch_float(tokens.dtype(), [&]<class T>() {
    map(pilots.numel(), DrawPilot<T>{plan, tokens.data<T>(), used.data<std::int32_t>(),
                                     pilots.data<std::int32_t>(), pilots.cols()});
  });
}

void column_weights_on(Backend, const Tensor& scores, const Tensor& lse, const Tensor& pilots,
                       const Tensor& v, const Tensor& mask, double scale, Tensor& weights) {
  dispatch_float(v.dtype(), [&]<class T>() {
    rows(scores.rows(), scores.cols(),
         ColumnWeight<T>{scores.data<T>(), lse.data<T>(), pilots.data<std::int32_t>(), v.data<T>(),
                         mask.data<T>(), weights.data<T>(), v.size(1), v.size(2), scores.cols(),
                         v.size(3), static_cast<T>(scale)});
  });
}

void limit_slots_on(Backend, const Tensor& columns, const Tensor& used, Tensor& limited) {
  map(columns.numel(), LimitSlot{columns.data<std::int32_t>(), used.data<std::int32_t>(),
                                 limited.data<std::int32_t>(), columns.size(1), columns.size(2)});
}

void normalise_on(Backend, const Tensor& weights, Tensor& prob) {
  dispatch_float(weights.dtype(), [&]<class T>() {
    rows(weights.rows(), weights.cols(),
         Normalise<T>{weights.data<T>(), prob.data<T>(), weights.cols()});
  });
}

void pilot_slots_on(Backend, const Tensor& pilots, bool count_repeats, PilotSlots& slots) {
  dispatch_float(slots.first.dtype(), [&]<class T>() {
    map(pilots.numel(),
        PilotSlot<T>{pilots.data<std::int32_t>(), slots.index.data<std::int32_t>(),
                     slots.first.data<T>(), slots.gradient.data<T>(), slots.others.data<T>(),
                     pilots.cols(), slots.others.cols(), count_repeats});
  });
}

void column_slots_on(Backend, const Tensor& columns, const Tensor& tokens, ColumnSlots& slots) {
  dispatch_float(tokens.dtype(), [&]<class T>() {
    rows(columns.size(0), columns.size(1) * columns.size(2),
         ColumnSlot<T>{columns.data<std::int32_t>(), tokens.data<T>(),
                       slots.index.data<std::int32_t>(), slots.used.data<T>(),
                       slots.inverse_count.data<T>(), slots.inverse_rest.data<T>(),
                       slots.weights.data<T>(), columns.size(1), columns.size(2)});
  });
}

void importance_on(Backend, const ColumnSlots& slots, const Tensor& prob, Tensor& factors) {
  dispatch_float(prob.dtype(), [&]<class T>() {
    map(factors.numel(),
        Importance<T>{slots.index.data<std::int32_t>(), slots.used.data<T>(),
                      slots.inverse_count.data<T>(), prob.data<T>(), factors.data<T>(),
                      prob.size(1), factors.cols(), prob.cols()});
  });
}

void exp_difference_on(Backend, const Tensor& a, const Tensor& b, Tensor& y) {
  dispatch_float(a.dtype(), [&]<class T>() {
    map(a.numel(), ExpDifference<T>{a.data<T>(), b.data<T>(), y.data<T>()});
  });
}

}  // namespace skytape::attention
