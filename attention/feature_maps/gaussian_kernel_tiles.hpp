// The tiling of kernel products on the CPU, for the Gaussian kernel and for random features: C is
// made in tiles of rows that stay in a core's cache, used by every product that needs it, and
// dropped.
//
// A task is a chunk of rows of one head. Sums over rows (C^T u, dw, dy) are partial per chunk and
// added up in order, so results do not depend on the number of threads.
#pragma once

#include <algorithm>
#include <optional>

#include "attention/feature_maps/gaussian_kernel_plan.hpp"
#include "tensor/core/tensor.hpp"
#include "tensor/gemm/gemm.hpp"
#include "tensor/launch/first_failure.hpp"
#include "tensor/launch/launch.hpp"

namespace skytape::attention::kernel_tiles {

inline constexpr std::int64_t kTile = 128;  // rows; a tile of C with 128 landmarks is 64 KiB in f32
inline constexpr std::int64_t kTaskRows = 512;  // rows of a task

/// One head's operands and the sizes of everything.
template <class T> struct Head {
  std::int64_t n, landmarks, width;  // N, L, D
  const T *x, *w, *xx, *ww;          // [N, D], [L, D], [N], [L]

  Head(const KernelInputs& in, std::int64_t g)
      : n(in.x.size(1)),
        landmarks(in.w.size(1)),
        width(in.x.size(2)),
        x(in.x.data<T>() + g * n * width),
        w(in.w.data<T>() + g * landmarks * width),
        xx(in.xx.data<T>() + g * n),
        ww(in.ww.data<T>() + g * landmarks) {}

  /// Products x_i.w_j of `count` rows from `row` on, into c: [count, L].
  void products(std::int64_t row, std::int64_t count, T* c) const {
    tensor::gemm_cpu<T>(T(1), {x + row * width, count, width},
                        tensor::transposed<T>({w, landmarks, width}), T(0), {c, count, landmarks});
  }
  /// A row of products to a row of C, in place; `own` is the row's term of the exponent.
  void exponentiate(T own, T* c) const {
#pragma omp simd
    for (std::int64_t j = 0; j < landmarks; ++j) c[j] = math::exp(c[j] + own + ww[j]);
  }
  /// C of `count` rows from `row` on, into c: [count, L].
  void tile(std::int64_t row, std::int64_t count, T* c) const {
    products(row, count, c);
    for (std::int64_t i = 0; i < count; ++i) exponentiate(xx[row + i], c + i * landmarks);
  }
};

/// f(g, chunk, first row, end row) for every chunk of rows of every head, in parallel; f makes its
/// scratch memory once per thread through `make`.
template <class Make, class F>
void each_chunk(const KernelInputs& in, const Make& make, const F& f) {
  const std::int64_t n = in.x.size(1), chunks = ceil_div(n, kTaskRows);
  const std::int64_t tasks = in.x.size(0) * chunks;
  cpu::FirstFailure failure;
#pragma omp parallel if (tasks > 1)
  {
    std::optional<decltype(make())> scratch;
    failure.guard([&] { scratch.emplace(make()); });
#pragma omp for schedule(static)
    for (std::int64_t task = 0; task < tasks; ++task) {
      const std::int64_t chunk = task % chunks;
      failure.guard([&] {
        f(*scratch, task / chunks, chunk, chunk * kTaskRows, std::min(n, (chunk + 1) * kTaskRows));
      });
    }
  }
  failure.rethrow();
}

/// f(head, g, chunk, row, count, c) for every tile of `count` rows from `row` on; c: [kTile, L], to
/// be filled with the tile's C.
template <class T, class F> void each_tile(const KernelInputs& in, const F& f) {
  const auto make = [&] { return Tensor::empty({kTile, in.w.size(1)}, kDTypeOf<T>, Device::cpu); };
  each_chunk(in, make,
             [&](const Tensor& scratch, std::int64_t g, std::int64_t chunk, std::int64_t begin,
                 std::int64_t end) {
               const Head<T> head(in, g);
               for (std::int64_t row = begin; row < end; row += kTile) {
                 f(head, g, chunk, row, std::min(kTile, end - row), scratch.data<T>());
               }
             });
}

/// out = C y, [G, N, P], where fill(head, g, row, count, c) makes C of a tile.
template <class T, class Fill>
void times(const KernelInputs& in, const Tensor& y, Tensor& out, const Fill& fill) {
  const std::int64_t landmarks = in.w.size(1), p = y.size(2);
  each_tile<T>(in, [&](const Head<T>& head, std::int64_t g, std::int64_t, std::int64_t row,
                       std::int64_t count, T* c) {
    fill(head, g, row, count, c);
    tensor::gemm_cpu<T>(T(1), {c, count, landmarks},
                        {y.data<T>() + g * landmarks * p, landmarks, p}, T(0),
                        {out.data<T>() + (g * head.n + row) * p, count, p});
  });
}

/// Partial results of chunks, [G, chunks, size], and their sum over chunks.
template <class T> class Partials {
 public:
  Partials(const KernelInputs& in, std::int64_t size)
      : chunks_(ceil_div(in.x.size(1), kTaskRows)),
        size_(size),
        memory_(Tensor::zeros({in.x.size(0), chunks_, size}, kDTypeOf<T>, Device::cpu)) {}

  [[nodiscard]] std::int64_t chunks() const { return chunks_; }
  [[nodiscard]] T* at(std::int64_t g, std::int64_t chunk) const {
    return memory_.template data<T>() + (g * chunks_ + chunk) * size_;
  }
  /// out: [G, size].
  void add_up(Tensor& out) const {
    add_up(out, [](std::int64_t, std::int64_t) { return T(1); });
  }
  /// The same with weight(g, chunk) for each chunk.
  template <class Weight> void add_up(Tensor& out, const Weight& weight) const {
    constexpr std::int64_t kElements = 1024;  // elements of a task
    const std::int64_t blocks = ceil_div(size_, kElements);
    const std::int64_t tasks = memory_.size(0) * blocks;
#pragma omp parallel for schedule(static) if (memory_.numel() > cpu::kParallelWork)
    for (std::int64_t task = 0; task < tasks; ++task) {
      const std::int64_t g = task / blocks, first = task % blocks * kElements;
      const std::int64_t last = std::min(size_, first + kElements);
      T* const to = out.data<T>() + g * size_;
      std::fill(to + first, to + last, T(0));
      for (std::int64_t chunk = 0; chunk < chunks_; ++chunk) {
        const T* const part = at(g, chunk);
        const T factor = weight(g, chunk);
#pragma omp simd
        for (std::int64_t e = first; e < last; ++e) to[e] += factor * part[e];
      }
    }
  }

 private:
  std::int64_t chunks_, size_;
  Tensor memory_;  // [G, chunks, size]
};

}  // namespace skytape::attention::kernel_tiles
