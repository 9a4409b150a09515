// Maxima of random features on the CPU: products with W in tiles that stay in a core's cache.
#include <algorithm>

#include "attention/random_features_plan.hpp"
#include "tensor/gemm.hpp"
#include "tensor/launch.hpp"

namespace skytape::attention {
namespace {

constexpr std::int64_t kTile = 128;  // rows; with 128 features a tile is 64 KiB in f32

template <class T>
void run_maxima(const Tensor& x, const Tensor& w, T* value, std::int32_t* feature) {
  const std::int64_t count = x.rows(), width = x.cols(), features = w.size(0);
  const std::int64_t tiles = (count + kTile - 1) / kTile;
#pragma omp parallel if (tiles > 1)
  {
    const Tensor scratch = Tensor::empty({kTile, features}, x.dtype(), Device::cpu);
    T* const u = scratch.data<T>();  // [kTile, R]
#pragma omp for schedule(static)
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
      const std::int64_t begin = tile * kTile, end = std::min(count, begin + kTile);
      tensor::gemm_cpu<T>(Op::none, Op::transpose, end - begin, features, width, T(1),
                          x.data<T>() + begin * width, width, w.data<T>(), width, T(0), u,
                          features);
      for (std::int64_t row = begin; row < end; ++row) {
        const T* const from = u + (row - begin) * features;
        value[row] = cpu::Team{}.max(features, [=](std::int64_t j) { return from[j]; });
        const T* const found = std::find(from, from + features, value[row]);
        // No entry equals the maximum of a row with NaN: any position does.
        feature[row] = found == from + features ? 0 : static_cast<std::int32_t>(found - from);
      }
    }
  }
}

}  // namespace

void feature_maxima_on(Cpu, const Tensor& x, const Tensor& w, Tensor& value, Tensor& feature) {
  dispatch_float(x.dtype(), [&]<class T>() {
    run_maxima<T>(x, w, value.data<T>(), feature.data<std::int32_t>());
  });
}

}  // namespace skytape::attention
