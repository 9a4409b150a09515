// Rows of the op table: a layer norm with what stands beside or behind it.
#include "autograd/ops_norm.hpp"
#include "tests/autograd/op_samples.hpp"

namespace skytape::test::op {
namespace {

using tensor::TokenWeights;
using Kind = TokenWeights::Kind;

/// One of its outputs: x, or that of a reader from 1 on.
Function beside_norm(int readers, int which) {
  return [=](Tape&, Vars v) {
    const NormBeside n = layer_norm_beside_at_once(v[0], v[1], v[2], readers);
    return which == 0 ? n.x : n.y[static_cast<std::size_t>(which) - 1];
  };
}

Function pooled(const TokenWeights& rule, const Tensor& mask) {
  return [=](Tape&, Vars v) { return norm_pool(v[0], v[1], v[2], beside(v[0], mask), rule); };
}

std::vector<Tensor> norm_inputs(const Shape& x) {
  return {normal(x, 301), normal({x[x.rank() - 1]}, 302), normal({x[x.rank() - 1]}, 303)};
}

}  // namespace

Rows fused_rows() {
  const Tensor lengths = mask(5, {5, 3, 0});
  return {{"layer_norm_beside",
           {{"one reader", norm_inputs({2, 3, 7}), beside_norm(1, 1)},
            {"the second of two", norm_inputs({3, 41, 5}), beside_norm(2, 2)},
            {"what stands beside", norm_inputs({1, 2, 70}), beside_norm(2, 0)},
            {"no rows", norm_inputs({0, 5}), beside_norm(1, 1)}},
           {{"layer_norm_beside: expected 1 or 2 readers",
             [](Tape& t) {
               const Var e = zeros(t, {3});
               return layer_norm_beside_at_once(zeros(t, {2, 3}), e, e, 3).x;
             }}}},
          {"norm_pool",
           {{"nominal", norm_inputs({3, 5, 7}), pooled({Kind::nominal, 8}, lengths)},
            {"mean", norm_inputs({3, 5, 6}), pooled({Kind::mean}, lengths)},
            {"first", norm_inputs({3, 5, 4}), pooled({Kind::first}, lengths)},
            {"long", norm_inputs({1, 260, 3}), pooled({Kind::mean}, mask(260, {259}))}},
           {{"norm_pool: expected x [B, N, E]",
             [](Tape& t) {
               const Var e = zeros(t, {3});
               return norm_pool(zeros(t, {2, 3}), e, e, zeros(t, {2, 3}).value(), {});
             }},
            {"norm_pool: expected a weight [E] and a mask [B, N]", [](Tape& t) {
               const Var e = zeros(t, {3});
               return norm_pool(zeros(t, {2, 4, 3}), e, e, zeros(t, {2, 3}).value(), {});
             }}}}};
}

}  // namespace skytape::test::op
