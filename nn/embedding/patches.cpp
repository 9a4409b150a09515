#include "nn/embedding/patches.hpp"

#include <cmath>
#include <numbers>

#include "tensor/core/on_device.hpp"

namespace skytape::nn {

Tensor patch_intensities(const Tensor& ids, std::int64_t columns, std::int64_t side, DType dtype) {
  ENSURE(ids.rank() == 2 && ids.dtype() == DType::i32,
         "patch_intensities: expected ids i32[B, N], got ", ids);
  ENSURE(columns >= 1, "patch_intensities: a picture has columns, got ", columns);
  ENSURE(side >= 1 && side % 2 == 1, "patch_intensities: expected an odd side, got ", side);
  Tensor intensities =
      Tensor::empty({ids.size(0), ids.size(1), side * side}, dtype, ids.device());  // [B, N, T]
  if (intensities.numel() == 0) return intensities;
  on_device(ids.device(),
            [&](auto tag) { patch_intensities_on(tag, ids, columns, side, intensities); });
  return intensities;
}

Initialiser patch_waves() {
  return [](const Shape& shape, const Random&) {
    Tensor waves = Tensor::empty(shape, DType::f64, Device::cpu);  // [T, T]
    const std::int64_t count = shape[0];
    const auto side = static_cast<std::int64_t>(std::lround(std::sqrt(static_cast<double>(count))));
    const auto length = static_cast<double>(side);
    // Entry x of wave u of one axis; all waves have length 1.
    const auto wave = [length](std::int64_t u, std::int64_t x) {
      const double angle =
          std::numbers::pi * static_cast<double>(u) * (static_cast<double>(x) + 0.5) / length;
      return std::sqrt((u == 0 ? 1 : 2) / length) * std::cos(angle);
    };
    for (std::int64_t i = 0; i < count; ++i) {
      for (std::int64_t j = 0; j < count; ++j) {
        const std::int64_t u = j / side, v = j % side;
        const double frequency = std::hypot(static_cast<double>(u), static_cast<double>(v));
        const double scale = j == 0 ? 2 / length : frequency;
        waves.data<double>()[i * count + j] = scale * wave(u, i / side) * wave(v, i % side);
      }
    }
    return waves;
  };
}

}  // namespace skytape::nn
