// Products with random features on the CPU that find their stabilisers on the way: the products
// with W are made once, in tiles that stay in a core's cache.
#include <limits>
#include <vector>

#include "attention/feature_maps/gaussian_kernel_tiles.hpp"
#include "attention/random_features/random_features_plan.hpp"

namespace skytape::attention {
namespace {

using namespace kernel_tiles;

/// The largest entries of rows and their first positions; [G, N] both.
template <class T> class Maxima {
 public:
  Maxima(const KernelInputs& in, const FeatureMaxima& rows)
      : value_(rows.value.data<T>()),
        position_(rows.feature.data<std::int32_t>()),
        n_(in.x.size(1)) {}

  /// Stores and returns the largest entry of row `row` of head g, whose entries are in c: [count].
  T find(std::int64_t g, std::int64_t row, const T* c, std::int64_t count) const {
    const T largest = cpu::Team{}.max(count, [=](std::int64_t j) { return c[j]; });
    const T* const found = std::find(c, c + count, largest);
    value_[g * n_ + row] = largest;
    // No entry equals the maximum of a row with NaN: any position does.
    position_[g * n_ + row] = found == c + count ? 0 : static_cast<std::int32_t>(found - c);
    return largest;
  }

 private:
  T* value_;
  std::int32_t* position_;
  std::int64_t n_;
};

template <class T>
void run_times(const KernelInputs& in, const Tensor& y, const FeatureMaxima& rows, Tensor& out) {
  const Maxima<T> maxima(in, rows);
  times<T>(in, y, out,
           [&](const Head<T>& head, std::int64_t g, std::int64_t row, std::int64_t count, T* c) {
             head.products(row, count, c);
             for (std::int64_t i = 0; i < count; ++i) {
               T* const own = c + i * head.landmarks;
               const T largest = maxima.find(g, row + i, own, head.landmarks);
               head.exponentiate(head.xx[row + i] - largest, own);
             }
           });
}

/// One chunk's share of E^T u, relative to the largest product of the chunk so far.
template <class T> struct SharedChunk {
  const Head<T>& head;
  const Maxima<T>& maxima;
  const T* u;  // [N, P]
  std::int64_t p;

  /// c: [kTile, R]; sum: [R, P], zero at first. Returns the largest product.
  T run(std::int64_t g, std::int64_t begin, std::int64_t end, T* c, T* sum) const {
    const std::int64_t features = head.landmarks;
    T largest = -std::numeric_limits<T>::infinity();
    for (std::int64_t row = begin; row < end; row += kTile) {
      const std::int64_t count = std::min(kTile, end - row);
      head.products(row, count, c);
      T in_tile = largest;
      for (std::int64_t i = 0; i < count; ++i) {
        in_tile = math::max(in_tile, maxima.find(g, row + i, c + i * features, features));
      }
      if (row > begin && in_tile > largest) {  // what is there becomes relative to the new one
        const T factor = std::exp(largest - in_tile);
#pragma omp simd
        for (std::int64_t e = 0; e < features * p; ++e) sum[e] *= factor;
      }
      largest = in_tile;
      for (std::int64_t i = 0; i < count; ++i) {
        head.exponentiate(head.xx[row + i] - largest, c + i * features);
      }
      tensor::gemm_cpu<T>(T(1), tensor::transposed<T>({c, count, features}),
                          {u + row * p, count, p}, T(1), {sum, features, p});
    }
    return largest;
  }
};

template <class T> void run_transposed(const KernelInputs& in, const Tensor& u, std::int64_t scope,
                                       const FeatureMaxima& rows, Tensor& out) {
  const std::int64_t features = in.w.size(1), p = u.size(2), heads = in.x.size(0);
  const Maxima<T> maxima(in, rows);
  const Partials<T> sums(in, features * p);
  const std::int64_t chunks = sums.chunks();
  std::vector<T> largest(static_cast<std::size_t>(heads * chunks));  // [G, chunks]
  const auto make = [&] { return Tensor::empty({kTile, features}, kDTypeOf<T>, Device::cpu); };
  each_chunk(in, make,
             [&](const Tensor& scratch, std::int64_t g, std::int64_t chunk, std::int64_t begin,
                 std::int64_t end) {
               const Head<T> head(in, g);
               const SharedChunk<T> share{head, maxima, u.data<T>() + g * head.n * p, p};
               largest[static_cast<std::size_t>(g * chunks + chunk)] =
                   share.run(g, begin, end, scratch.data<T>(), sums.at(g, chunk));
             });
  for (auto first = largest.begin(); first != largest.end(); first += scope * chunks) {
    const auto last = first + scope * chunks;
    const T stabiliser = *std::max_element(first, last);
    std::transform(first, last, first, [=](T own) { return std::exp(own - stabiliser); });
  }
  const std::vector<T>& weight = largest;  // of each chunk's sums, now
  sums.add_up(out, [&](std::int64_t g, std::int64_t chunk) {
    return weight[static_cast<std::size_t>(g * chunks + chunk)];
  });
}

}  // namespace

void stabilised_times_tiled(const KernelInputs& in, const Tensor& y, const FeatureMaxima& rows,
                            Tensor& out) {
  dispatch_float(out.dtype(), [&]<class T>() { run_times<T>(in, y, rows, out); });
}
void stabilised_transposed_times_tiled(const KernelInputs& in, const Tensor& u, std::int64_t scope,
                                       const FeatureMaxima& rows, Tensor& out) {
  dispatch_float(out.dtype(), [&]<class T>() { run_transposed<T>(in, u, scope, rows, out); });
}

}  // namespace skytape::attention
