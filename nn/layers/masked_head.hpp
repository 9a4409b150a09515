// The head of masked-token prediction: what stood at the hidden places. Only their rows are
// computed.
//
// Notation: B batch, N positions of this batch, E width, P places of a sequence, V ids.
#pragma once

#include <cstdint>

#include "nn/layers/layers.hpp"

namespace skytape::nn {

/// h = LN(GELU(x W^T + b)) of a hidden place (Devlin et al. 2019); then either scores of all ids,
/// h T^T + c with the embedding's own table T (Press and Wolf 2017), or, of pixels, one intensity
/// in [0, 1], h w + c.
class MaskedHead {
 public:
  MaskedHead(ParameterStore& store, std::int64_t width, std::int64_t ids, bool pixels,
             double norm_epsilon = tensor::kLayerNormEpsilon);

  /// Losses and hits of the places `at`. x: [B, N, E], table: [V, E], at and ids: i32[B, P] ->
  /// [B P] each: cross entropy, and 1 where the largest score is right; of pixels |value - truth|,
  /// and 1 where that is below half an intensity.
  struct Answers {
    Var losses;
    Tensor correct;
  };
  [[nodiscard]] Answers operator()(Var x, Parameter& table, const Tensor& at,
                                   const Tensor& ids) const;

 private:
  [[nodiscard]] Answers of_ids(Var h, Var table, const Tensor& ids) const;
  [[nodiscard]] Answers of_pixels(Var h, const Tensor& ids) const;

  bool pixels_;
  Linear dense_;
  LayerNorm norm_;
  Parameter* bias_ = nullptr;    // c: [V], or [1] of pixels
  Parameter* weight_ = nullptr;  // w: [1, E], of pixels
  Parameter* grey_ = nullptr;    // [256, 1]: intensity of an id, a constant; of pixels
};

}  // namespace skytape::nn
