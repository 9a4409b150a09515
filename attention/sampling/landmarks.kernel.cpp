// Drawing landmarks, picking their rows and adding gradients back.
#include "attention/sampling/landmarks_plan.hpp"
#include "tensor/launch/launch.hpp"
#include "tensor/random/philox.hpp"

namespace skytape::attention {
namespace {

template <class T> struct CountTokens {
  const T* mask;         // [B, N]
  std::int32_t* counts;  // [B, blocks]
  std::int64_t rows, blocks;

  HD void operator()(std::int64_t i) const {
    const std::int64_t begin = i % blocks * kCountBlock;
    const std::int64_t end = begin + kCountBlock < rows ? begin + kCountBlock : rows;
    const T* const own = mask + i / blocks * rows;
    std::int32_t count = 0;
    for (std::int64_t j = begin; j < end; ++j) count += own[j] != T(0);
    counts[i] = count;
  }
};

template <class T> struct DrawLandmark {
  LandmarkPlan plan;
  const T* mask;               // [B, N]
  const std::int32_t* counts;  // [B, blocks]
  std::int64_t blocks;
  std::int32_t* out;  // [B, heads, slots]

  HD void operator()(std::int64_t i) const {
    const std::int64_t slot = i % plan.slots, group = i / plan.slots;
    const std::int64_t example = group / plan.heads;
    std::int64_t tokens = 0;
    for (std::int64_t j = 0; j < blocks; ++j) tokens += counts[example * blocks + j];

    const bool official = plan.rule == LandmarkRule::official;
    const std::int64_t drawing = plan.alone ? 0 : plan.first_example + example;
    const std::int64_t number =
        official ? slot : (drawing * plan.heads + group % plan.heads) * plan.slots + slot;
    bool key = slot >= plan.slots / 2;
    std::int64_t pick = 0;
    if (plan.rule == LandmarkRule::uniform) {
      pick = uniform_below(number, 2 * tokens);
      key = pick >= tokens && tokens > 0;
      if (key) pick -= tokens;
    } else {
      pick = uniform_below(number, tokens);
    }
    const std::int64_t position = official ? pick : token(example, pick);
    out[i] = static_cast<std::int32_t>(key ? plan.rows + position : position);
  }

  /// floor(u limit) for number e of the sequence, u = word / 2^32: below the limit, 0 if that is 0.
  HD std::int64_t uniform_below(std::int64_t e, std::int64_t limit) const {
    const philox::Words words =
        philox::draw(plan.key, static_cast<std::uint64_t>(e / 4), philox::step_of(plan.step));
    const std::uint64_t word = words.w[e % 4];
    return static_cast<std::int64_t>((word * static_cast<std::uint64_t>(limit)) >> 32);
  }

  /// Position of real token `pick` of an example; 0 if it has none. Neither loop ends early: so no
  /// load of a GPU waits for what the one before it brought.
  HD std::int64_t token(std::int64_t example, std::int64_t pick) const {
    const std::int32_t* const own = counts + example * blocks;
    std::int64_t block = 0, before = 0, tokens = 0;  // the token's block, and tokens before that
    for (std::int64_t j = 0; j < blocks; ++j) {
      tokens += own[j];
      if (tokens <= pick) {
        block = j + 1;
        before = tokens;
      }
    }
    if (block == blocks) return 0;
    const std::int64_t begin = block * kCountBlock;
    const std::int64_t end = math::min(begin + kCountBlock, plan.rows);
    std::int64_t position = begin;
    for (std::int64_t j = begin; j < end; ++j) {
      before += mask[example * plan.rows + j] != T(0);
      if (before <= pick) position = j + 1;
    }
    return position;
  }
};

/// The row of q or k that a landmark is; nothing is read at an index outside [0, 2 N).
struct StackRow {
  bool valid, key;
  std::int64_t position;  // of N
  std::int64_t row;       // of [G, N]

  HD StackRow(std::int64_t index, std::int64_t group, std::int64_t rows)
      : valid(index >= 0 && index < 2 * rows),
        key(index >= rows),
        position(key ? index - rows : index),
        row(group * rows + position) {}
};

/// scale mask of a head's position.
template <class T> struct Factors {
  const T* mask;  // [B, N], or null
  T scale;
  std::int64_t heads, rows;  // H, N

  HD T of(std::int64_t group, std::int64_t position) const {
    return mask == nullptr ? scale : scale * mask[group / heads * rows + position];
  }
};

template <class T> struct GatherLandmark {
  const T *q, *k;             // [G, N, D]
  const std::int32_t* index;  // [G / sharing, L]
  Factors<T> factors;
  T* w;  // [G, L, D]
  std::int64_t rows, landmarks, width, sharing;

  template <class Team> HD void operator()(std::int64_t i, const Team& team) const {
    const std::int64_t group = i / landmarks;
    const StackRow source(index[group / sharing * landmarks + i % landmarks], group, rows);
    T* const to = w + i * width;
    if (!source.valid) {  // checked on the CPU; shows on a GPU as NaN
      team.each(width, [&](std::int64_t c) { to[c] = std::numeric_limits<T>::quiet_NaN(); });
      return;
    }
    const T* const from = (source.key ? k : q) + source.row * width;
    const T factor = factors.of(group, source.position);
    team.each(width, [&](std::int64_t c) { to[c] = from[c] * factor; });
  }
};

/// The first landmark at a row adds the gradients of all that repeat it, in order: no two teams
/// write to one row.
template <class T> struct ScatterLandmark {
  const T* dw[kScatterTerms];  // [G, L, D] each, or null; the first is there
  const std::int32_t* index;   // [G / sharing, L]
  Factors<T> factors;
  T *dq, *dk;  // [G, N, D]
  std::int64_t rows, landmarks, width, sharing;

  template <class Team> HD void operator()(std::int64_t i, const Team& team) const {
    const std::int64_t group = i / landmarks, own = i % landmarks;
    const std::int32_t* const picks = index + group / sharing * landmarks;
    const std::int32_t pick = picks[own];
    const auto repeats = [&](const std::int32_t* from, std::int64_t count) {
      return team.sum(count, [=](std::int64_t l) { return std::int32_t{from[l] == pick}; });
    };
    if (repeats(picks, own) != 0) return;
    std::int32_t more = repeats(picks + own, landmarks - own);
    const StackRow target(pick, group, rows);
    if (!target.valid) return;
    T* const to = (target.key ? dk : dq) + target.row * width;
    const T factor = factors.of(group, target.position);
    for (std::int64_t l = own; more > 0; ++l) {
      if (picks[l] != pick) continue;
      --more;
      const std::int64_t from = (group * landmarks + l) * width;
      team.each(width, [&](std::int64_t c) {
        T sum = dw[0][from + c];
        for (std::size_t term = 1; term < kScatterTerms; ++term) {
          if (dw[term] != nullptr) sum += dw[term][from + c];
        }
        to[c] += factor * sum;
      });
    }
  }
};

template <class T> Factors<T> factors_of(const LandmarkFactors& f, const Tensor& q) {
  return {f.mask.data_or_null<T>(), static_cast<T>(f.scale), q.size(1), q.size(2)};
}

}  // namespace

void count_tokens_on(Backend, const Tensor& mask, Tensor& counts) {
  dispatch_float(mask.dtype(), [&]<class T>() {
    map(counts.numel(),
        CountTokens<T>{mask.data<T>(), counts.data<std::int32_t>(), mask.size(1), counts.size(1)});
  });
}

void draw_landmarks_on(Backend, const LandmarkPlan& plan, const Tensor& mask, const Tensor& counts,
                       Tensor& out) {
  dispatch_float(mask.dtype(), [&]<class T>() {
    map(out.numel(), DrawLandmark<T>{plan, mask.data<T>(), counts.data<std::int32_t>(),
                                     counts.size(1), out.data<std::int32_t>()});
  });
}

void gather_landmarks_on(Backend, const Tensor& q, const Tensor& k, const Tensor& index,
                         const LandmarkFactors& factors, Tensor& w) {
  dispatch_float(q.dtype(), [&]<class T>() {
    rows(w.rows(), w.cols(),
         GatherLandmark<T>{q.data<T>(), k.data<T>(), index.data<std::int32_t>(),
                           factors_of<T>(factors, q), w.data<T>(), q.size(2), w.size(2), w.cols(),
                           index.rank() == 3 ? 1 : q.size(1)});
  });
}

void scatter_landmarks_on(Backend, const ScatterTerms& dw, const Tensor& index,
                          const LandmarkFactors& factors, Tensor& dq, Tensor& dk) {
  dispatch_float(dq.dtype(), [&]<class T>() {
    const auto term = [&](std::size_t i) { return dw[i].data_or_null<T>(); };
    rows(dw[0].rows(), dw[0].cols(),
         ScatterLandmark<T>{{term(0), term(1), term(2)},
                            index.data<std::int32_t>(),
                            factors_of<T>(factors, dq),
                            dq.data<T>(),
                            dk.data<T>(),
                            dq.size(2),
                            dw[0].size(2),
                            dw[0].cols(),
                            index.rank() == 3 ? 1 : dq.size(1)});
  });
}

}  // namespace skytape::attention
