// CPU matrix products: oneDNN for f32 where the build has it, else Eigen. The libraries run
// serially on tiles; threads share the tiles out. How a product is cut depends on its sizes alone,
// so its bits do not depend on the number of threads. The order of a sum is the library's: equal
// rows may differ in their last bits by where they stand.
#include <omp.h>

#include <algorithm>
#include <type_traits>
#include <vector>

// g++ 12 takes the "undefined" operands inside its own AVX-512 intrinsics for uninitialised reads.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <Eigen/Core>

#include "tensor/core/tensor.hpp"
#include "tensor/gemm/gemm_bf16.hpp"
#include "tensor/gemm/gemm_plan.hpp"
#include "tensor/gemm/precision.hpp"
#include "tensor/launch/first_failure.hpp"
#include "tensor/launch/launch.hpp"
#ifdef SKYTAPE_HAVE_DNNL
#include <dnnl.h>
#endif

namespace skytape::tensor {
namespace {

#ifdef SKYTAPE_HAVE_DNNL
constexpr bool kHaveDnnl = true;
#else
constexpr bool kHaveDnnl = false;
#endif

/// Keeps the libraries serial outside parallel regions: both ask OpenMP how many threads to use.
class OneThread {
 public:
  OneThread() : threads_(omp_in_parallel() ? 0 : omp_get_max_threads()) {
    if (threads_ > 1) omp_set_num_threads(1);
  }
  ~OneThread() {
    if (threads_ > 1) omp_set_num_threads(threads_);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int threads_;
};

/// One serial product, c = alpha op(a) op(b) + beta c.
template <class T> struct SerialProduct {
  using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using Source = Eigen::Map<const Matrix, 0, Eigen::OuterStride<>>;
  using Target = Eigen::Map<Matrix, 0, Eigen::OuterStride<>>;

  static constexpr std::int64_t kVector = 16;  // floats of an AVX-512 register

  T alpha;
  MatrixView<const T> a, b;
  T beta;
  MatrixView<T> c;

  void run() const {
    const std::int64_t m = c.rows, n = c.columns, k = a.op == Op::none ? a.columns : a.rows;
    if (m == 0 || n == 0) return;
    if (k == 0) return scale_target();
    const OneThread guard;
    if constexpr (kHaveDnnl && std::is_same_v<T, float>) {
      if (precision(Device::cpu) == Precision::bf16) {
        gemm_bf16_cpu(alpha, a, b, beta, c);
      } else if (n % kVector == 1 && n > 1 && n < 16 * kVector) {
        // Values with their normaliser, S columns and the mean of the rest: alone, the last costs
        // a tenth of what the whole vector for it would (26 % of a product with 33 columns).
        run_dnnl(n - 1, k, b.data, c.data);
        const std::int64_t last = (n - 1) * (b.op == Op::transpose ? b.stride : 1);
        run_dnnl(1, k, b.data + last, c.data + (n - 1));
      } else {
        run_dnnl(n, k, b.data, c.data);
      }
    } else {
      scale_target();
      add_product();
    }
  }

  /// c = beta c; beta 0 clears, as 0 * c would keep NaN.
  void scale_target() const {
    if (beta == T(1)) return;
    for (std::int64_t i = 0; i < c.rows; ++i) {
      for (std::int64_t j = 0; j < c.columns; ++j) {
        T& entry = c.data[i * c.stride + j];
        entry = beta == T(0) ? T(0) : beta * entry;
      }
    }
  }

  /// `columns` of the product, from those of op(b) and c that are given, over k terms.
  void run_dnnl([[maybe_unused]] std::int64_t columns, [[maybe_unused]] std::int64_t k,
                [[maybe_unused]] const T* from, [[maybe_unused]] T* to) const {
#ifdef SKYTAPE_HAVE_DNNL
    const auto letter = [](Op op) { return op == Op::transpose ? 'T' : 'N'; };
    const dnnl_status_t status = dnnl_sgemm(letter(a.op), letter(b.op), c.rows, columns, k, alpha,
                                            a.data, a.stride, from, b.stride, beta, to, c.stride);
    ENSURE(status != dnnl_out_of_memory, "out of memory: gemm has no room for m ", c.rows, ", n ",
           columns, ", k ", k);
    ENSURE(status == dnnl_success, "gemm: dnnl_sgemm failed with status ", status, " for m ",
           c.rows, ", n ", columns, ", k ", k);
#endif
  }

  /// c += alpha op(a) op(b). One form of Eigen's product is compiled, each takes half a second:
  /// what is transposed is copied into that form first.
  void add_product() const {
    Matrix left, right;  // the copies
    Target(c.data, c.rows, c.columns, Eigen::OuterStride<>(c.stride)).noalias() +=
        alpha * untransposed(a, left) * untransposed(b, right);
  }
  static Source untransposed(const MatrixView<const T>& x, Matrix& copy) {
    const Source as_stored(x.data, x.rows, x.columns, Eigen::OuterStride<>(x.stride));
    if (x.op == Op::none) return as_stored;
    copy = as_stored.transpose();
    return Source(copy.data(), x.columns, x.rows, Eigen::OuterStride<>(x.rows));
  }
};

/// The split of a product into tasks; a function of its sizes only.
struct Cut {
  std::int64_t tile_m, tile_n, chunk_k;                 // sizes of one task
  std::int64_t tiles_m = 1, tiles_n = 1, chunks_k = 1;  // counts

  /// terms: products that are added up in every tile.
  explicit Cut(const GemmPlan& p, std::int64_t terms = 1) : tile_m(p.m), tile_n(p.n), chunk_k(p.k) {
    constexpr std::int64_t kTasks = 32;      // enough to balance the threads that we expect
    constexpr std::int64_t kWork = 1 << 20;  // multiply-adds, some 10 us: not worth cutting
    constexpr std::int64_t kTile = 64, kChunk = 512;
    // Weight gradients, Linformer's projections: small results from thousands of rows, with too few
    // tiles to share out. Only these are cut along k.
    const std::int64_t smallest = p.batch * ceil_div(p.m, kTile) * ceil_div(p.n, kTile);
    if (smallest < kTasks && p.k >= 2 * kChunk && p.k > 4 * std::max(p.m, p.n)) {
      chunk_k = std::max(kChunk, ceil_div(smallest * p.k, kTasks));
      chunks_k = ceil_div(p.k, chunk_k);
    }
    while (p.batch * tiles_m * tiles_n * chunks_k < kTasks &&
           terms * tile_m * tile_n * chunk_k > kWork && std::max(tile_m, tile_n) > kTile) {
      std::int64_t& longer = tile_m >= tile_n ? tile_m : tile_n;
      longer = std::max(kTile, (longer / 2 + 15) / 16 * 16);  // whole vectors
      tiles_m = ceil_div(p.m, tile_m);
      tiles_n = ceil_div(p.n, tile_n);
    }
  }
};

template <class T> struct TileProduct {
  const GemmPlan& p;
  const Cut& cut;
  const T* a;
  const T* b;

  /// Tile (i, j) of batch entry g over k-chunk `chunk`, into target with rows ldc apart.
  void run(std::int64_t g, std::int64_t i, std::int64_t j, std::int64_t chunk, T beta, T* target,
           std::int64_t ldc) const {
    const std::int64_t row = i * cut.tile_m, column = j * cut.tile_n, depth = chunk * cut.chunk_k;
    const std::int64_t m = std::min(cut.tile_m, p.m - row), n = std::min(cut.tile_n, p.n - column);
    const std::int64_t k = std::min(cut.chunk_k, p.k - depth);
    SerialProduct<T>{static_cast<T>(p.alpha),
                     part(a + g * p.stride_a, p.op_a, p.lda(), row, depth, m, k),
                     part(b + g * p.stride_b, p.op_b, p.ldb(), depth, column, k, n), beta,
                     MatrixView<T>(target, m, n, ldc)}
        .run();
  }
  /// Rows [row, row + rows) and columns [column, column + columns) of op(x).
  static MatrixView<const T> part(const T* x, Op op, std::int64_t stride, std::int64_t row,
                                  std::int64_t column, std::int64_t rows, std::int64_t columns) {
    if (op == Op::none) return {x + row * stride + column, rows, columns, stride};
    return {x + column * stride + row, columns, rows, stride, op};
  }
};

constexpr double kParallelWork = 1 << 18;  // multiply-adds below which one thread is faster

template <class T> void run_tiles(const TileProduct<T>& product, T* c) {
  const GemmPlan& p = product.p;
  const Cut& cut = product.cut;
  const std::int64_t tasks = p.batch * cut.tiles_m * cut.tiles_n;
  const double work = static_cast<double>(p.batch * p.m) * p.n * p.k;
  cpu::FirstFailure failure;
#pragma omp parallel for schedule(static) if (tasks > 1 && work > kParallelWork)
  for (std::int64_t t = 0; t < tasks; ++t) {
    const std::int64_t g = t / (cut.tiles_m * cut.tiles_n);
    const std::int64_t i = t / cut.tiles_n % cut.tiles_m, j = t % cut.tiles_n;
    T* const target = c + (g * p.m + i * cut.tile_m) * p.n + j * cut.tile_n;
    failure.guard([&] { product.run(g, i, j, 0, static_cast<T>(p.beta), target, p.n); });
  }
  failure.rethrow();
}

/// Every chunk of k gives a partial result; they are added up in order.
template <class T> void run_chunks(const TileProduct<T>& product, Tensor& c) {
  const GemmPlan& p = product.p;
  const Cut& cut = product.cut;
  const std::int64_t size = p.batch * p.m * p.n;
  const Tensor partial = Tensor::empty({cut.chunks_k, size}, c.dtype(), Device::cpu);
  T* const parts = partial.data<T>();  // [chunks, batch, m, n]
  T* const out = c.data<T>();
  const std::int64_t tasks = cut.chunks_k * p.batch * cut.tiles_m * cut.tiles_n;
  cpu::FirstFailure failure;
#pragma omp parallel
  {
#pragma omp for schedule(static)
    for (std::int64_t t = 0; t < tasks; ++t) {
      const std::int64_t chunk = t % cut.chunks_k, tile = t / cut.chunks_k;
      const std::int64_t g = tile / (cut.tiles_m * cut.tiles_n);
      const std::int64_t i = tile / cut.tiles_n % cut.tiles_m, j = tile % cut.tiles_n;
      T* const target = parts + chunk * size + (g * p.m + i * cut.tile_m) * p.n + j * cut.tile_n;
      failure.guard([&] { product.run(g, i, j, chunk, T(0), target, p.n); });
    }
    const T beta = static_cast<T>(p.beta);
#pragma omp for simd schedule(static)
    for (std::int64_t e = 0; e < size; ++e) {
      T sum = parts[e];
      for (std::int64_t chunk = 1; chunk < cut.chunks_k; ++chunk) sum += parts[chunk * size + e];
      out[e] = beta == T(0) ? sum : beta * out[e] + sum;
    }
  }
  failure.rethrow();
}

template <class T>
void run_plan(const GemmPlan& plan, const Tensor& a, const Tensor& b, Tensor& c) {
  const Cut cut(plan);
  const TileProduct<T> product{plan, cut, a.data<T>(), b.data<T>()};
  if (cut.chunks_k > 1) {
    run_chunks(product, c);
  } else {
    run_tiles(product, c.data<T>());
  }
}

/// The products of all entries added up in c [m, n]: a tile stays in a core's cache meanwhile.
template <class T> void run_sum(const GemmPlan& plan, const Tensor& a, const Tensor& b, Tensor& c) {
  GemmPlan one = plan;
  one.batch = 1;
  const Cut cut(one, plan.batch);
  if (cut.chunks_k > 1) {  // too few tiles to share out: one entry after the other
    for (std::int64_t g = 0; g < plan.batch; ++g) {
      one.beta = g == 0 ? 0 : 1;
      run_chunks<T>({one, cut, a.data<T>() + g * plan.stride_a, b.data<T>() + g * plan.stride_b},
                    c);
    }
    return;
  }
  const TileProduct<T> product{plan, cut, a.data<T>(), b.data<T>()};
  T* const out = c.data<T>();
  const std::int64_t tiles = cut.tiles_m * cut.tiles_n;
  const double work = static_cast<double>(plan.batch * plan.m) * plan.n * plan.k;
  cpu::FirstFailure failure;
#pragma omp parallel for schedule(static) if (tiles > 1 && work > kParallelWork)
  for (std::int64_t t = 0; t < tiles; ++t) {
    const std::int64_t i = t / cut.tiles_n, j = t % cut.tiles_n;
    T* const target = out + i * cut.tile_m * plan.n + j * cut.tile_n;
    failure.guard([&] {
      for (std::int64_t g = 0; g < plan.batch; ++g) {
        product.run(g, i, j, 0, g == 0 ? T(0) : T(1), target, plan.n);
      }
    });
  }
  failure.rethrow();
}

}  // namespace

void gemm_on(Cpu, const GemmPlan& plan, const Tensor& a, const Tensor& b, Tensor& c) {
  ENSURE(a.dtype() == c.dtype() && c.dtype() != DType::i32,
         "gemm: a CPU multiplies f32 and f64, got ", a);
  if (c.dtype() == DType::f32) {
    run_plan<float>(plan, a, b, c);
  } else {
    run_plan<double>(plan, a, b, c);
  }
}

void gemm_sum_on(Cpu, const GemmPlan& plan, const Tensor& a, const Tensor& b, Tensor& c) {
  dispatch_float(c.dtype(), [&]<class T>() { run_sum<T>(plan, a, b, c); });
}

template <class T> void gemm_cpu(T alpha, const MatrixView<const T>& a,
                                 const MatrixView<const T>& b, T beta, const MatrixView<T>& c) {
  SerialProduct<T>{alpha, a, b, beta, c}.run();
}
template void gemm_cpu(float, const MatrixView<const float>&, const MatrixView<const float>&, float,
                       const MatrixView<float>&);
template void gemm_cpu(double, const MatrixView<const double>&, const MatrixView<const double>&,
                       double, const MatrixView<double>&);

}  // namespace skytape::tensor
