// From the encodings of a sequence's positions to one vector.
//
// Notation: B batch, N positions of this batch, E width.
#pragma once

#include <cstdint>
#include <optional>

#include "autograd/parameter.hpp"
#include "autograd/tape.hpp"
#include "nn/config/model_config.hpp"
#include "tensor/norm/norm_pool.hpp"

namespace skytape::nn {

/// The pooling of every sequence. A sequence without real tokens gives zeros.
class Pool {
 public:
  Pool(ParameterStore& store, Pooling pooling, std::int64_t width, std::int64_t nominal_length);
  /// x: [B, N, E], zero where the mask [B, N] is -> [B, E].
  [[nodiscard]] Var operator()(Var x, const Tensor& mask) const;
  /// The weights of tokens, where a sum of them is all that it does.
  [[nodiscard]] std::optional<tensor::TokenWeights> weights() const;

 private:
  Pooling pooling_;
  double nominal_length_;
  Parameter* query_ = nullptr;  // w, [E, 1]; attention alone has it
};

}  // namespace skytape::nn
