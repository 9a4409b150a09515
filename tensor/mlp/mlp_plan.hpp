// The arguments of the MLP's kernels, CUDA only.
#pragma once

#include <cstdint>

#include "tensor/launch/launch.hpp"
#include "tensor/mlp/mlp.hpp"
#include "tensor/tokens/row_dropout.hpp"

namespace skytape::tensor {

struct MlpPlan {
  std::int64_t rows = 0;  // B N, at most 2^31 - 1
  int e = 0, f = 0;       // E, F
  float share = 0;        // 1 / E
  float epsilon = 0;      // of the norm
  RowDropout hidden, output;
};

/// The values that forward keeps of a token, 32 bytes: reading them takes less time than computing
/// them again.
struct alignas(16) MlpMetadata {
  std::uint32_t hidden[4];  // what dropout keeps: bit 4s + i of word t is of channel 16s + 4t + i
  std::uint16_t output[4];  // the same
  float mean, inv_std;      // of the norm
};
inline constexpr std::int64_t kMlpMetadata = sizeof(MlpMetadata) / sizeof(std::int32_t);

/// The offsets of the parameters' gradients in one array of them.
struct MlpGradientPlaces {
  std::int64_t norm_weight, norm_bias, in_weight, in_bias, out_weight, out_bias, size;
  HD MlpGradientPlaces(std::int64_t e, std::int64_t f)
      : norm_weight(0),
        norm_bias(e),
        in_weight(2 * e),
        in_bias(2 * e + e * f),
        out_weight(2 * e + e * f + f),
        out_bias(2 * e + 2 * e * f + f),
        size(3 * e + 2 * e * f + f) {}
};

/// Returns whether blocks of this device have the shared memory of the kernels below.
[[nodiscard]] bool mlp_has_room_on(Cuda);
/// `metadata`: MlpMetadata of each token.
void mlp_on(Cuda, const MlpPlan& plan, const Tensor& x, const MlpWeights& w, Tensor& y,
            Tensor& metadata);
/// `dparams`: all gradients of parameters, at MlpGradientPlaces.
void mlp_backward_on(Cuda, const MlpPlan& plan, const Tensor& x, const MlpWeights& w,
                     const Tensor& metadata, const Tensor& dy, Tensor& dx, Tensor& dparams);

}  // namespace skytape::tensor
