// Hashes each n-gram to the row of its vector, and sums the vectors at a position.
#include "nn/embedding/ngrams.hpp"
#include "tensor/launch/launch.hpp"

namespace skytape::nn {
namespace {

// Multiplying by an odd number near 2^64 / golden ratio spreads neighbours over the upper bits
// (Knuth, The Art of Computer Programming 3, sec. 6.4); the shift brings those down again.
constexpr std::uint64_t kSpread = 0x9E3779B97F4A7C15;

struct NgramSlots {
  const std::int32_t* ids;  // [B, N]
  std::int32_t* slots;      // [G, B, N]
  std::int64_t grams, n, count;
  std::uint64_t rows;

  HD void operator()(std::int64_t at) const {
    const std::int64_t position = at % n;
    std::uint64_t hash = 0;
    for (std::int64_t back = 0; back <= grams; ++back) {
      const std::int32_t id = back <= position ? ids[at - back] : 0;
      hash = (hash ^ (static_cast<std::uint64_t>(id) + 1)) * kSpread;
      hash ^= hash >> 32;
      if (back > 0) slots[(back - 1) * count + at] = static_cast<std::int32_t>(hash % rows);
    }
  }
};

template <class T> struct AddRowsAt {
  const T* x;                 // [B, N, E]
  const T* table;             // [S, E]
  const std::int32_t* slots;  // [G, B, N]
  T* y;                       // [B, N, E]
  std::int64_t grams, count, width;

  template <class Team> HD void operator()(std::int64_t at, const Team& team) const {
    const T* const from = x + at * width;
    T* const to = y + at * width;
    const T* const first = table + slots[at] * width;
    team.each(width, [=](std::int64_t c) { to[c] = from[c] + first[c]; });
    for (std::int64_t g = 1; g < grams; ++g) {
      const T* const row = table + slots[g * count + at] * width;
      team.each(width, [=](std::int64_t c) { to[c] += row[c]; });
    }
  }
};

}  // namespace

void ngram_slots_on(Backend, const Tensor& ids, std::int64_t rows, Tensor& slots) {
  map(ids.numel(), NgramSlots{ids.data<std::int32_t>(), slots.data<std::int32_t>(), slots.size(0),
                              ids.size(1), ids.numel(), static_cast<std::uint64_t>(rows)});
}

void add_rows_at_on(Backend, const Tensor& x, const Tensor& table, const Tensor& slots, Tensor& y) {
  dispatch_float(x.dtype(), [&]<class T>() {
    rows(x.rows(), x.cols(),
         AddRowsAt<T>{x.data<T>(), table.data<T>(), slots.data<std::int32_t>(), y.data<T>(),
                      slots.size(0), x.rows(), x.cols()});
  });
}

}  // namespace skytape::nn
