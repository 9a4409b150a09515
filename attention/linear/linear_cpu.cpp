// Linear attention on the CPU. A task is a chunk of rows of one head; within it, features are made
// in tiles that stay in a core's cache, used by every product that needs them, and forgotten. Sums
// over rows (T, dT) are partial per chunk and added up in order, so results do not depend on the
// number of threads.
#include "attention/feature_maps/gaussian_kernel_tiles.hpp"
#include "attention/linear/linear_rows.hpp"

namespace skytape::attention {
namespace {

using namespace kernel_tiles;
using namespace linear_rows;

/// One head's operands.
template <Activation A, class T> struct LinearHead {
  Features<A, T> phi;
  const T *q, *k, *v, *mask;        // [N, D] three times, [N]
  std::int64_t width, features, p;  // D, R, P

  LinearHead(const LinearInputs& in, std::int64_t g)
      : phi(features_of<A, T>(in)), width(in.q.size(2)), features(in.features), p(width + 1) {
    const std::int64_t n = in.q.size(1);
    q = in.q.data<T>() + g * n * width;
    k = in.k.data<T>() + g * n * width;
    v = in.v.data<T>() + g * n * width;
    mask = in.mask.data<T>() + g / in.heads * n;
  }

  /// A of `count` rows from `row` on, into f: [count, R].
  void of_queries(std::int64_t row, std::int64_t count, T* f) const {
    for (std::int64_t i = 0; i < count; ++i) {
      phi.make(cpu::Team{}, row + i, q + (row + i) * width, T(1), f + i * features);
    }
  }
  /// C, likewise.
  void of_keys(std::int64_t row, std::int64_t count, T* f) const {
    for (std::int64_t i = 0; i < count; ++i) {
      phi.make(cpu::Team{}, row + i, k + (row + i) * width, mask[row + i], f + i * features);
    }
  }
};

/// f(g, chunk, first row, number of rows, scratch) for every tile of every chunk, in parallel.
/// Scratch has room for `columns` numbers a row.
template <class T, class F>
void each_tile(const KernelInputs& in, std::int64_t columns, const F& f) {
  const auto make = [&] { return Tensor::empty({kTile, columns}, kDTypeOf<T>, Device::cpu); };
  each_chunk(in, make,
             [&](const Tensor& scratch, std::int64_t g, std::int64_t chunk, std::int64_t begin,
                 std::int64_t end) {
               for (std::int64_t row = begin; row < end; row += kTile) {
                 f(g, chunk, row, std::min(kTile, end - row), scratch.data<T>());
               }
             });
}

/// The rows that chunks are cut from.
KernelInputs rows_of(const LinearInputs& in) {
  KernelInputs rows;
  rows.x = in.q;
  return rows;
}

/// (1): sums += [V, 1]^T C, where the ones make sums of columns.
template <Activation A, class T>
void add_keys(const LinearHead<A, T>& head, std::int64_t row, std::int64_t count, T* f, T* sums) {
  head.of_keys(row, count, f);
  tensor::gemm_cpu<T>(T(1), tensor::transposed<T>({head.v + row * head.width, count, head.width}),
                      {f, count, head.features}, T(1), {sums, head.width, head.features});
  T* const columns = sums + head.width * head.features;
  for (std::int64_t i = 0; i < count; ++i) {
    const T* const from = f + i * head.features;
#pragma omp simd
    for (std::int64_t c = 0; c < head.features; ++c) columns[c] += from[c];
  }
}

template <Activation A, class T> void run_forward(const LinearInputs& in, LinearForward& result) {
  const KernelInputs rows = rows_of(in);
  const std::int64_t n = in.q.size(1), width = in.q.size(2), p = width + 1;
  const Partials<T> partial(rows, in.features * p);
  each_tile<T>(rows, in.features,
               [&](std::int64_t g, std::int64_t chunk, std::int64_t row, std::int64_t count, T* f) {
                 add_keys(LinearHead<A, T>(in, g), row, count, f, partial.at(g, chunk));
               });
  partial.add_up(result.sums);
  const Normalise<T> rule = normalise_of<T>(in);
  each_tile<T>(
      rows, in.features + p,
      [&](std::int64_t g, std::int64_t, std::int64_t row, std::int64_t count, T* f) {
        const LinearHead<A, T> head(in, g);
        T* const s = f + count * in.features;  // [count, P]
        head.of_queries(row, count, f);
        tensor::gemm_cpu<T>(
            T(1), {f, count, in.features},
            tensor::transposed<T>({result.sums.data<T>() + g * p * in.features, p, in.features}),
            T(0), {s, count, p});  // (2)
        T* const out = result.out.data<T>() + (g * n + row) * width;
        T* const z = result.z.data<T>() + g * n + row;
        for (std::int64_t i = 0; i < count; ++i) {
          z[i] = rule.divide(cpu::Team{}, s + i * p, out + i * width);  // (2)
        }
      });
}

/// One tile of queries: dq, and its share of dT.
template <Activation A, class T> struct QueryTile {
  const LinearInputs& in;
  const LinearForward& saved;
  const Tensor& dout;
  LinearBackward& d;

  /// f: room for R, P and R numbers a row; dsums: [P, R].
  void run(std::int64_t g, std::int64_t row, std::int64_t count, T* f, T* dsums) const {
    const LinearHead<A, T> head(in, g);
    const std::int64_t width = head.width, p = head.p, features = head.features;
    const std::int64_t first = g * in.q.size(1) + row;
    const Normalise<T> rule = normalise_of<T>(in);
    T* const ds = f + count * features;  // [count, P]
    T* const da = ds + count * p;        // [count, R]
    for (std::int64_t i = 0; i < count; ++i) {
      rule.differentiate(cpu::Team{}, saved.z.data<T>()[first + i],
                         saved.out.data<T>() + (first + i) * width,
                         dout.data<T>() + (first + i) * width, ds + i * p);  // (2)
    }
    head.of_queries(row, count, f);
    tensor::gemm_cpu<T>(T(1), tensor::transposed<T>({ds, count, p}), {f, count, features}, T(1),
                        {dsums, p, features});  // (2)
    tensor::gemm_cpu<T>(T(1), {ds, count, p},
                        {saved.sums.data<T>() + g * p * features, p, features}, T(0),
                        {da, count, features});  // (2)
    T* const dq = d.dq.data<T>() + first * width;
    for (std::int64_t i = 0; i < count; ++i) {
      head.phi.differentiate(cpu::Team{}, row + i, head.q + (row + i) * width, T(1),
                             da + i * features, dq + i * width);  // (3)
    }
  }
};

/// One tile of keys: dk and dv from the whole dT.
template <Activation A, class T> struct KeyTile {
  const LinearInputs& in;
  const Tensor& dsums;  // dT, [G, P, R]
  LinearBackward& d;

  /// f: room for R and R numbers a row.
  void run(std::int64_t g, std::int64_t row, std::int64_t count, T* f) const {
    const LinearHead<A, T> head(in, g);
    const std::int64_t width = head.width, features = head.features;
    const std::int64_t first = g * in.q.size(1) + row;
    const T* const dt = dsums.data<T>() + g * head.p * features;
    const T* const of_ones = dt + width * features;  // the last row
    T* const dc = f + count * features;              // [count, R]
    head.of_keys(row, count, f);
    tensor::gemm_cpu<T>(T(1), {f, count, features}, tensor::transposed<T>({dt, width, features}),
                        T(0), {d.dv.data<T>() + first * width, count, width});  // (1)
    for (std::int64_t i = 0; i < count; ++i) {
      std::copy(of_ones, of_ones + features, dc + i * features);  // (1)
    }
    tensor::gemm_cpu<T>(T(1), {head.v + row * width, count, width}, {dt, width, features}, T(1),
                        {dc, count, features});  // (1)
    T* const dk = d.dk.data<T>() + first * width;
    for (std::int64_t i = 0; i < count; ++i) {
      head.phi.differentiate(cpu::Team{}, row + i, head.k + (row + i) * width, head.mask[row + i],
                             dc + i * features, dk + i * width);  // (3)
    }
  }
};

template <Activation A, class T> void run_backward(const LinearInputs& in,
                                                   const LinearForward& saved, const Tensor& dout,
                                                   LinearBackward& d) {
  const KernelInputs rows = rows_of(in);
  const std::int64_t p = in.q.size(2) + 1;
  const Partials<T> partial(rows, in.features * p);
  Tensor dsums = empty_like(saved.sums);  // [G, P, R]
  const QueryTile<A, T> queries{in, saved, dout, d};
  each_tile<T>(rows, 2 * in.features + p,
               [&](std::int64_t g, std::int64_t chunk, std::int64_t row, std::int64_t count, T* f) {
                 queries.run(g, row, count, f, partial.at(g, chunk));
               });
  partial.add_up(dsums);
  const KeyTile<A, T> keys{in, dsums, d};
  each_tile<T>(rows, 2 * in.features,
               [&](std::int64_t g, std::int64_t, std::int64_t row, std::int64_t count, T* f) {
                 keys.run(g, row, count, f);
               });
}

}  // namespace

void linear_forward_on(Cpu, const LinearInputs& in, LinearForward& result) {
  dispatch(in, [&]<class T, Activation A>() { run_forward<A, T>(in, result); });
}
void linear_backward_on(Cpu, const LinearInputs& in, const LinearForward& saved, const Tensor& dout,
                        LinearBackward& d) {
  dispatch(in, [&]<class T, Activation A>() { run_backward<A, T>(in, saved, dout, d); });
}

}  // namespace skytape::attention
