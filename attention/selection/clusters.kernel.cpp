// Kernels of balanced clusters: directions of centroids, lists of slots, rows between tokens and
// slots.
#include <algorithm>

#include "attention/selection/clusters.hpp"
#include "tensor/launch/narrow_rows.hpp"

namespace skytape::attention {
namespace {

/// A centroid that no token has been nearest to for long has faded, but still points somewhere: f64
/// has the squares of everything that f32 has.
template <class T> struct UnitCentroid {
  const T* centroids;  // [H, C, D]
  T* directions;       // [B, H, C, D]
  std::int64_t count, width;

  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const T* const from = centroids + row % count * width;
    T* const to = directions + row * width;
    const double squares = team.sum(width, [=](std::int64_t c) {
      const double entry = from[c];
      return entry * entry;
    });
    const double factor = squares > 0 ? 1 / math::sqrt(squares) : 0;
    team.each(width, [=](std::int64_t c) { to[c] = static_cast<T>(from[c] * factor); });
  }
};

template <class T> struct LinkSlots {
  const T* mask;              // [B, N]
  const std::int32_t* token;  // [B, H, P]
  T *used, *weight;           // [B, H, P]
  std::int32_t* first;        // [B, H, N]
  std::int32_t* next;         // [B, H, P]
  std::int64_t heads, tokens, slots, window;

  template <class Team> HD void operator()(std::int64_t head, const Team& team) const {
    const T* const real = mask + head / heads * tokens;
    const std::int32_t* const held = token + head * slots;
    std::int32_t *const begin = first + head * tokens, *const after = next + head * slots;
    team.each(tokens, [=](std::int64_t i) { begin[i] = -1; });
    // From the last cluster to the first: each goes before its token's list. No token is in it
    // twice.
    for (std::int64_t at = slots - window; at >= 0; at -= window) {
      team.each(window, [=](std::int64_t i) {
        const std::int32_t slot = static_cast<std::int32_t>(at + i), own = held[slot];
        after[slot] = begin[own];
        begin[own] = slot;
      });
    }
    team.each(tokens, [=, *this](std::int64_t i) {
      T times = 0;
      for (std::int32_t s = begin[i]; s >= 0; s = after[s]) times += T(1);
      for (std::int32_t s = begin[i]; s >= 0; s = after[s]) {
        used[head * slots + s] = real[i];
        weight[head * slots + s] = real[i] / times;
      }
    });
  }
};

template <class T> struct ToWeightedSlot {
  const T* x;                 // [B, H, N, D]
  const std::int32_t* token;  // [B, H, P]
  const T* weight;            // [B, H, P]
  T* y;                       // [B, H, P, D]
  std::int64_t tokens, slots, width;

  template <class Team> HD void operator()(std::int64_t slot, const Team& team) const {
    const T factor = weight[slot];
    const auto times = [=](T value) { return value * factor; };
    assign(team, width, y + slot * width, times, x + (slot / slots * tokens + token[slot]) * width);
  }
};

template <class T> struct FromSlots {
  const T* x;                 // [B, H, P, D]
  const std::int32_t* first;  // [B, H, N]
  const std::int32_t* next;   // [B, H, P]
  T* y;                       // [B, H, N, D]
  std::int64_t tokens, slots, width;

  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const std::int64_t before = row / tokens * slots;  // slots of other heads
    T* const to = y + row * width;
    std::int32_t s = first[row];
    if (s < 0) return team.each(width, [=](std::int64_t c) { to[c] = T(0); });
    const auto own = [](T value) { return value; };
    const auto sum = [](T total, T value) { return total + value; };
    assign(team, width, to, own, x + (before + s) * width);
    while ((s = next[before + s]) >= 0) {
      assign(team, width, to, sum, static_cast<const T*>(to), x + (before + s) * width);
    }
  }
};

}  // namespace

void unit_centroids_on(Backend, const Tensor& centroids, Tensor& directions) {
  dispatch_float(centroids.dtype(), [&]<class T>() {
    narrow_rows(directions.rows(), directions.cols(),
                UnitCentroid<T>{centroids.data<T>(), directions.data<T>(), centroids.rows(),
                                centroids.cols()});
  });
}

void link_slots_on(Backend, const Tensor& mask, std::int64_t window, Clusters& clusters) {
  const std::int64_t heads = clusters.token.size(1), tokens = mask.size(1),
                     slots = clusters.token.size(2);
  dispatch_float(mask.dtype(), [&]<class T>() {
    rows(mask.size(0) * heads, std::max(tokens, slots),
         LinkSlots<T>{mask.data<T>(), clusters.token.data<std::int32_t>(), clusters.used.data<T>(),
                      clusters.weight.data<T>(), clusters.first.data<std::int32_t>(),
                      clusters.next.data<std::int32_t>(), heads, tokens, slots, window});
  });
}

void to_weighted_slots_on(Backend, const Tensor& x, const Clusters& clusters, Tensor& y) {
  dispatch_float(x.dtype(), [&]<class T>() {
    narrow_rows(
        y.rows(), y.cols(),
        ToWeightedSlot<T>{x.data<T>(), clusters.token.data<std::int32_t>(),
                          clusters.weight.data<T>(), y.data<T>(), x.size(2), y.size(2), y.cols()});
  });
}

void from_slots_on(Backend, const Tensor& x, const Clusters& clusters, Tensor& y) {
  dispatch_float(x.dtype(), [&]<class T>() {
    narrow_rows(y.rows(), y.cols(),
                FromSlots<T>{x.data<T>(), clusters.first.data<std::int32_t>(),
                             clusters.next.data<std::int32_t>(), y.data<T>(), y.size(2), x.size(2),
                             y.cols()});
  });
}

}  // namespace skytape::attention
