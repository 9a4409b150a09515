// A token's vector and that of its place, added and dropped out in one operation.
//
//   x[b, n] = drop(table[ids[b, n]] + second[place(b, n)])
//
// Notation: B batch, N positions of this batch, E model width, V vocabulary, S rows of the second
// table.
#pragma once

#include "autograd/tape.hpp"
#include "tensor/random/dropout_plan.hpp"

namespace skytape::nn {

/// One kernel forward on CUDA, one pass over dx backward.
struct LookUp {
  Tensor ids;     // i32[B, N]
  Tensor places;  // i32[B, N]: rows of the second table; undefined: n
  Dropout dropout;
};
/// table [V, E]; second [S, E], S at least N where there are no places, or undefined: nothing is
/// added.
[[nodiscard]] Var look_up(Var table, Var second, const LookUp& options);

// Its kernel (lookup.cu).
void look_up_on(Cuda, const tensor::DropoutPlan& plan, const Tensor& table, const Tensor& second,
                const LookUp& options, Tensor& x);

}  // namespace skytape::nn
