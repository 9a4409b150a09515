// Elementwise kernels. Each line of elementwise.def becomes a small functor; its dispatch happens
// once per call.
#include "tensor/kernels/elementwise.hpp"

#include <type_traits>

#include "tensor/core/tensor.hpp"
#include "tensor/launch/narrow_rows.hpp"
#include "tensor/launch/strided.hpp"

namespace skytape::tensor {
namespace {

/// One number each would have a GPU start more threads than its memory needs.
template <class T> struct FillChunk {
  static constexpr std::int64_t kChunk = 512;
  T* x;  // [n]
  T value;
  std::int64_t n;
  template <class Team> HD void operator()(std::int64_t chunk, const Team& team) const {
    const std::int64_t begin = chunk * kChunk;
    assign(team, math::min(kChunk, n - begin), x + begin, [v = value] { return v; });
  }
};

/// y = value(x) and dy/dx = derivative(x).
template <Unary f> struct UnaryFunction;
#define UNARY(name, y, dy_dx)                                                         \
  template <> struct UnaryFunction<Unary::name> {                                     \
    template <class T> HD static T value(T x) { return y; }                           \
    template <class T> HD static T derivative([[maybe_unused]] T x) { return dy_dx; } \
  };
#include "tensor/kernels/elementwise.def"

/// y = value(a, b).
template <Binary f> struct BinaryFunction;
#define BINARY(name, y)                                          \
  template <> struct BinaryFunction<Binary::name> {              \
    template <class T> HD static T value(T a, T b) { return y; } \
  };
#include "tensor/kernels/elementwise.def"

/// Calls launch with the function's type.
template <class F> void dispatch(Unary f, F&& launch) {
  switch (f) {
#define UNARY(name, value, derivative) \
  case Unary::name:                    \
    return launch(UnaryFunction<Unary::name>{});
#include "tensor/kernels/elementwise.def"
  }
}
template <class F> void dispatch(Binary f, F&& launch) {
  switch (f) {
#define BINARY(name, value) \
  case Binary::name:        \
    return launch(BinaryFunction<Binary::name>{});
#include "tensor/kernels/elementwise.def"
  }
}

template <class T, class Op> struct UnaryEntry {
  const T* x;  // [n]
  T* y;        // [n]
  HD void operator()(std::int64_t i) const { y[i] = Op::value(x[i]); }
};

template <class T, class Op> struct UnaryBackwardEntry {
  const T* x;   // [n]
  const T* dy;  // [n]
  T* dx;        // [n]
  HD void operator()(std::int64_t i) const { dx[i] = dy[i] * Op::derivative(x[i]); }
};

/// In a row each operand either moves by one entry or repeats: three loops that vectorise.
template <class T, class Op> struct BinaryTask {
  StridedLoop loop;
  const T* a;
  const T* b;
  T* y;
  template <class Team> HD void operator()(std::int64_t task, const Team& team) const {
    loop.each_run(
        task, [&](std::int64_t at, std::int64_t bt, std::int64_t first, std::int64_t count) {
          const T* const from_a = a + at;
          const T* const from_b = b + bt;
          T* const to = y + first;
          if (loop.row.a == 0) {
            const T value = *from_a;
            assign(
                team, count, to, [=](T other) { return Op::value(value, other); }, from_b);
          } else if (loop.row.b == 0) {
            const T value = *from_b;
            assign(
                team, count, to, [=](T other) { return Op::value(other, value); }, from_a);
          } else {
            assign(
                team, count, to, [](T x, T z) { return Op::value(x, z); }, from_a, from_b);
          }
        });
  }
};

template <class T> struct Affine {
  const T* x;  // [n]
  T* y;        // [n]
  T scale, shift;
  HD void operator()(std::int64_t i) const { y[i] = scale * x[i] + shift; }
};

template <class T> struct Accumulate {
  T* y;        // [n]
  const T* x;  // [n]
  T scale;
  HD void operator()(std::int64_t i) const { y[i] += scale * x[i]; }
};

/// Pairs of arrays, cut into chunks that are numbered through.
template <class T> struct AccumulateChunk {
  // A GPU's lane moves four numbers once.
  static constexpr std::int64_t kChunk = std::is_same_v<Backend, Cuda> ? 128 : 512;
  static constexpr std::int64_t kPairs = 64;
  struct Pair {
    T* y;                  // [n]
    const T* x;            // [n]
    std::int64_t n, from;  // number of its first chunk
  };
  Pair pairs[kPairs];
  std::int64_t count;
  template <class Team> HD void operator()(std::int64_t chunk, const Team& team) const {
    std::int64_t at = 0;
    while (at + 1 < count && pairs[at + 1].from <= chunk) ++at;
    const std::int64_t begin = (chunk - pairs[at].from) * kChunk;
    T* const to = pairs[at].y + begin;
    const T* const x = pairs[at].x + begin;
    assign(
        team, math::min(kChunk, pairs[at].n - begin), to, [](T sum, T one) { return sum + one; },
        to, x);
  }
};

template <class T> struct MaskRow {
  const T* x;            // [B, H, N, D]
  const T* mask;         // [B, N]
  T* y;                  // [B, H, N, D]
  std::int64_t h, n, d;  // H, N, D
  T scale;
  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const T factor = scale * mask[row / (h * n) * n + row % n];
    const T* const from = x + row * d;
    T* const to = y + row * d;
    assign(
        team, d, to, [=](T value) { return value * factor; }, from);
  }
};

/// Counts the entries of a chunk that are infinite or NaN.
template <class T> struct NonFinite {
  static constexpr std::int64_t kChunk = 4096;
  const T* x;            // [n]
  std::int32_t* counts;  // [ceil(n / kChunk)]
  std::int64_t n;
  template <class Team> HD void operator()(std::int64_t chunk, const Team& team) const {
    const T* const from = x + chunk * kChunk;
    const T count = team.sum(math::min(kChunk, n - chunk * kChunk), [=](std::int64_t i) {
      return from[i] - from[i] == T(0) ? T(0) : T(1);  // inf - inf and NaN - NaN are NaN
    });
    if (team.leader()) counts[chunk] = static_cast<std::int32_t>(count);
  }
};

}  // namespace

void fill_on(Backend, Tensor& x, double value) {
  const auto fill = [&]<class T>() {
    using Chunk = FillChunk<T>;
    rows(ceil_div(x.numel(), Chunk::kChunk), Chunk::kChunk,
         Chunk{x.data<T>(), static_cast<T>(value), x.numel()});
  };
  if (x.dtype() == DType::i32) return fill.template operator()<std::int32_t>();
  dispatch_float(x.dtype(), fill);
}

void unary_on(Backend, Unary f, const Tensor& x, Tensor& y) {
  dispatch_float(x.dtype(), [&]<class T>() {
    dispatch(f, [&]<class Op>(Op) { map(x.numel(), UnaryEntry<T, Op>{x.data<T>(), y.data<T>()}); });
  });
}

void unary_backward_on(Backend, Unary f, const Tensor& x, const Tensor& dy, Tensor& dx) {
  dispatch_float(x.dtype(), [&]<class T>() {
    dispatch(f, [&]<class Op>(Op) {
      map(x.numel(), UnaryBackwardEntry<T, Op>{x.data<T>(), dy.data<T>(), dx.data<T>()});
    });
  });
}

void binary_on(Backend, Binary f, const StridedLoop& loop, const Tensor& a, const Tensor& b,
               Tensor& y) {
  dispatch_float(a.dtype(), [&]<class T>() {
    dispatch(f, [&]<class Op>(Op) {
      narrow_rows(loop.tasks, loop.task_entries,
                  BinaryTask<T, Op>{loop, a.data<T>(), b.data<T>(), y.data<T>()});
    });
  });
}

void affine_on(Backend, const Tensor& x, double scale, double shift, Tensor& y) {
  dispatch_float(x.dtype(), [&]<class T>() {
    map(x.numel(),
        Affine<T>{x.data<T>(), y.data<T>(), static_cast<T>(scale), static_cast<T>(shift)});
  });
}

void accumulate_on(Backend, Tensor& y, const Tensor& x, double scale) {
  dispatch_float(y.dtype(), [&]<class T>() {
    map(y.numel(), Accumulate<T>{y.data<T>(), x.data<T>(), static_cast<T>(scale)});
  });
}

void accumulate_all_on(Backend, std::span<Addition> additions) {
  dispatch_float(additions.front().target.dtype(), [&]<class T>() {
    using Chunks = AccumulateChunk<T>;
    Chunks next{};
    std::int64_t chunks = 0;
    for (std::size_t i = 0; i < additions.size(); ++i) {
      auto& [target, source] = additions[i];
      const std::int64_t n = target.numel();
      next.pairs[next.count++] = {target.data<T>(), source.data<T>(), n, chunks};
      chunks += ceil_div(n, Chunks::kChunk);
      if (next.count < Chunks::kPairs && i + 1 < additions.size()) continue;
      if (chunks > 0) rows(chunks, Chunks::kChunk, next);
      next.count = 0;
      chunks = 0;
    }
  });
}

void mask_rows_on(Backend, const Tensor& x, const Tensor& mask, double scale, Tensor& y) {
  dispatch_float(x.dtype(), [&]<class T>() {
    narrow_rows(x.rows(), x.cols(),
                MaskRow<T>{x.data<T>(), mask.data<T>(), y.data<T>(), x.size(1), x.size(2),
                           x.size(3), static_cast<T>(scale)});
  });
}

Tensor non_finite_on(Backend, const Tensor& x) {
  constexpr std::int64_t kChunk = NonFinite<float>::kChunk;
  const std::int64_t chunks = ceil_div(x.numel(), kChunk);
  Tensor counts = Tensor::empty({chunks}, DType::i32, x.device());
  dispatch_float(x.dtype(), [&]<class T>() {
    rows(chunks, kChunk, NonFinite<T>{x.data<T>(), counts.data<std::int32_t>(), x.numel()});
  });
  return counts;
}

}  // namespace skytape::tensor
