// From the encodings of a sequence's positions to one vector.
//
// Letters: B batch, N positions of this batch, E width.
#pragma once

#include <cstdint>

#include "autograd/parameter.hpp"
#include "autograd/tape.hpp"

namespace skytape::nn {

/// `nominal`: the sum over the nominal length, as in the papers' code, where a short sequence gives
/// a short vector. `mean` and `max`: over the real tokens. `first`: the encoding of the first
/// position. `cls`: the same, a learned token being put there. `attention`: the mean over the real
/// tokens weighted by exp(x.w / sqrt E) with a learned w.
enum class Pooling { nominal, mean, first, cls, max, attention };

/// What every tower of a model pools by. A sequence without real tokens gives zeros.
class Pool {
 public:
  Pool(ParameterStore& store, Pooling pooling, std::int64_t width, std::int64_t nominal_length);
  /// x: [B, N, E], zero where the mask [B, N] is -> [B, E].
  [[nodiscard]] Var operator()(Var x, const Tensor& mask) const;

 private:
  Pooling pooling_;
  double nominal_length_;
  Parameter* query_ = nullptr;  // w, [E, 1]; attention alone has it
};

}  // namespace skytape::nn
