// Rows of the op table: what is fused on CUDA: a layer norm with the operations beside or behind
// it, the classifier, the vectors of tokens and places, a convolution with what surrounds it.
#include "autograd/ops.hpp"
#include "nn/embedding/lookup.hpp"
#include "nn/embedding/positions.hpp"
#include "nn/layers/convolution.hpp"
#include "nn/layers/loss.hpp"
#include "tensor/norm/norm_pool.hpp"
#include "tests/autograd/op_samples.hpp"

namespace skytape::test::op {
namespace {

using tensor::TokenWeights;
using Kind = TokenWeights::Kind;

/// One of its outputs: x, or that of a reader from 1 on.
Function beside_norm(int readers, int which) {
  return [=](Tape&, Vars v) {
    const NormBeside n = layer_norm_beside(v[0], v[1], v[2], readers);
    return which == 0 ? n.x : n.y[static_cast<std::size_t>(which) - 1];
  };
}

Function pooled(const TokenWeights& rule, const Tensor& mask) {
  return [=](Tape&, Vars v) { return norm_pool(v[0], v[1], v[2], beside(v[0], mask), rule); };
}

/// `weights`: of the classes; empty: none.
Function classified(const Tensor& labels, double smoothing, std::vector<double> weights = {}) {
  return [=](Tape&, Vars v) {
    const Tensor of_classes = weights.empty()
                                  ? Tensor()
                                  : Tensor::from(weights, {std::ssize(weights)},
                                                 v[0].value().dtype(), v[0].value().device());
    return nn::classifier_loss({v[0], v[1], v[2], v[3], v[4]}, beside(v[0], labels), smoothing, 3,
                               of_classes)
        .loss;
  };
}

/// A sum of rows of v[0] and, where there are two, v[1].
Function looked_up(const Tensor& ids, const Tensor& places, double rate) {
  return [=](Tape&, Vars v) {
    Dropout dropout = dropping(rate);
    dropout.nominal_length = 8;
    return nn::look_up(
        v[0], v.size() > 1 ? v[1] : Var(),
        {beside(v[0], ids), places.defined() ? beside(v[0], places) : Tensor(), dropout});
  };
}

/// Queries or keys, turned.
Function turned(std::int64_t positions, std::size_t which) {
  return [=](Tape&, Vars v) {
    const Tensor angles = nn::rotary_angles(10)({positions, v[0].size(3)}, {});
    return nn::rotary_pair(v[0], v[1], beside(v[0], angles))[which];
  };
}

Function convolved(const nn::Window& window, const Tensor& mask, double rate) {
  return [=](Tape&, Vars v) {
    Dropout dropout = dropping(rate);
    dropout.nominal_length = 600;
    return nn::add_convolution(v[0], v[1], v[2], beside(v[0], mask), window, dropout);
  };
}

std::vector<Tensor> norm_inputs(const Shape& x) {
  return {normal(x, 301), normal({x[x.rank() - 1]}, 302), normal({x[x.rank() - 1]}, 303)};
}

std::vector<Tensor> classifier_inputs(std::int64_t b, std::int64_t k, std::int64_t f,
                                      std::int64_t c) {
  return {normal({b, k}, 311), normal({f, k}, 312), normal({f}, 313), normal({c, f}, 314),
          normal({c}, 315)};
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
               return layer_norm_beside(zeros(t, {2, 3}), e, e, 3).x;
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
            {"norm_pool: expected a weight [E] and a mask [B, N]",
             [](Tape& t) {
               const Var e = zeros(t, {3});
               return norm_pool(zeros(t, {2, 4, 3}), e, e, zeros(t, {2, 3}).value(), {});
             }}}},
          {"look_up",
           {{"by position",
             {normal({4, 3}, 321), normal({5, 3}, 322)},
             looked_up(integers({3, 0, 3, 1}, {2, 2}), {}, 0.3)},
            {"by place",
             {normal({4, 16}, 323), normal({3, 16}, 324)},
             looked_up(integers({3, 0, 3, 1}, {1, 4}), integers({2, 2, 0, 1}, {1, 4}), 0.3)},
            {"tokens alone", {normal({2, 5}, 325)}, looked_up(integers({1, 1}, {2, 1}), {}, 0)},
            {"aligned",
             {normal({4, 16}, 326), normal({8, 16}, 327)},
             looked_up(integers({3, 0, 3, 1, 2, 2}, {2, 3}), {}, 0.3)},
            {"none",
             {normal({2, 5}, 328), normal({3, 5}, 329)},
             looked_up(integers({}, {2, 0}), {}, 0)}},
           {{"look_up: expected a table [V, E] and ids",
             [](Tape& t) {
               return nn::look_up(zeros(t, {4, 3}), Var(), {integers({1}, {1}), {}, {}});
             }},
            {"look_up: expected a second table [S, E] of at least N = 2",
             [](Tape& t) {
               return nn::look_up(zeros(t, {4, 3}), zeros(t, {1, 3}),
                                  {integers({1, 2}, {1, 2}), {}, {}});
             }},
            {"look_up: index 4",
             [](Tape& t) {
               return nn::look_up(zeros(t, {4, 3}), Var(), {integers({4}, {1, 1}), {}, {}});
             }}}},
          {"add_convolution",
           {{"sequence",
             {normal({3, 5, 4}, 331), normal({3, 5, 4}, 332), normal({3, 4}, 333)},
             convolved({3}, lengths, 0.3)},
            {"picture",
             {normal({1, 6, 2}, 334), normal({1, 6, 2}, 335), normal({9, 2}, 336)},
             convolved({3, 3, 3}, mask(6, {6}), 0)},
            {"wider than the sequence",
             {normal({2, 3, 4}, 351), normal({2, 3, 4}, 352), normal({9, 4}, 353)},
             convolved({9}, mask(3, {3, 2}), 0.3)},
            {"long",
             {normal({1, 523, 2}, 354), normal({1, 523, 2}, 355), normal({3, 2}, 356)},
             convolved({3}, mask(523, {520}), 0.3)},
            {"window larger than the picture",
             {normal({1, 6, 2}, 357), normal({1, 6, 2}, 358), normal({35, 2}, 359)},
             convolved({7, 5, 3}, mask(6, {6}), 0)},
            {"last line cut",
             {normal({2, 11, 3}, 360), normal({2, 11, 3}, 361), normal({15, 3}, 362)},
             convolved({5, 3, 4}, mask(11, {11, 10}), 0.3)},
            {"none",
             {normal({0, 5, 4}, 337), normal({0, 5, 4}, 338), normal({1, 4}, 339)},
             convolved({1}, mask(5, {}), 0.3)}},
           {{"add_convolution: expected an odd window, got 1 by 2",
             [](Tape& t) {
               return nn::add_convolution(zeros(t, {1, 4, 3}), zeros(t, {1, 4, 3}),
                                          zeros(t, {2, 3}), zeros(t, {1, 4}).value(), {2}, {});
             }},
            {"add_convolution: expected x [B, N, E] and weight [9, E]",
             [](Tape& t) {
               return nn::add_convolution(zeros(t, {1, 4, 3}), zeros(t, {1, 4, 3}),
                                          zeros(t, {3, 3}), zeros(t, {1, 4}).value(), {3, 3, 2},
                                          {});
             }},
            {"add_convolution: expected x [B, N, E] and weight [3, E]",
             [](Tape& t) {
               return nn::add_convolution(zeros(t, {1, 4, 3}), zeros(t, {1, 4, 3}),
                                          zeros(t, {3, 2}), zeros(t, {1, 4}).value(), {3}, {});
             }},
            {"add_convolution: expected x [B, N, E] and weight [3, E]",
             [](Tape& t) {
               return nn::add_convolution(zeros(t, {1, 2, 3}), zeros(t, {1, 2, 3}),
                                          zeros(t, {2, 3}), zeros(t, {1, 2}).value(), {3}, {});
             }},
            {"add_convolution: expected a residual [B, N, E] and a mask",
             [](Tape& t) {
               return nn::add_convolution(zeros(t, {1, 2, 3}), zeros(t, {1, 2, 3}),
                                          zeros(t, {3, 3}), zeros(t, {1, 3}).value(), {3}, {});
             }}}},
          {"rotary_pair",
           {{"queries", {normal({2, 3, 5, 4}, 341), normal({2, 3, 5, 4}, 342)}, turned(7, 0)},
            {"keys", {normal({1, 2, 9, 2}, 343), normal({1, 2, 9, 2}, 344)}, turned(9, 1)},
            {"none", {normal({2, 1, 0, 2}, 345), normal({2, 1, 0, 2}, 346)}, turned(3, 0)}},
           {{"rotary_pair: shapes differ",
             [](Tape& t) {
               return nn::rotary_pair(zeros(t, {1, 1, 2, 4}), zeros(t, {1, 1, 3, 4}),
                                      zeros(t, {3, 4}).value())[0];
             }},
            {"rotary_pair: expected x [B, H, N, D] with an even D",
             [](Tape& t) {
               return nn::rotary_pair(zeros(t, {1, 1, 2, 3}), zeros(t, {1, 1, 2, 3}),
                                      zeros(t, {3, 3}).value())[0];
             }}}},
          {"classify",
           {{"odd", classifier_inputs(3, 5, 7, 4), classified(integers({3, 0, 1}, {3}), 0)},
            {"smoothed", classifier_inputs(2, 3, 6, 5), classified(integers({4, 2}, {2}), 0.2)},
            {"weighted", classifier_inputs(3, 5, 7, 3),
             classified(integers({2, 0, 1}, {3}), 0.1, {0.5, 3, 0.25})},
            {"size 1", classifier_inputs(1, 1, 1, 1), classified(integers({0}, {1}), 0)}},
           {{"classify: expected weights [F, K] and [C, F]",
             [](Tape& t) {
               return nn::classifier_loss({zeros(t, {2, 3}), zeros(t, {4, 2}), zeros(t, {4}),
                                           zeros(t, {5, 4}), zeros(t, {5})},
                                          integers({0, 1}, {2}), 0, 1)
                   .loss;
             }},
            {"classify: expected class weights [C]",
             [](Tape& t) {
               return nn::classifier_loss({zeros(t, {2, 3}), zeros(t, {4, 3}), zeros(t, {4}),
                                           zeros(t, {5, 4}), zeros(t, {5})},
                                          integers({0, 1}, {2}), 0, 1, zeros(t, {4}).value())
                   .loss;
             }},
            {"classify: expected labels i32[B]", [](Tape& t) {
               return nn::classifier_loss({zeros(t, {2, 3}), zeros(t, {4, 3}), zeros(t, {4}),
                                           zeros(t, {5, 4}), zeros(t, {5})},
                                          integers({0}, {1}), 0, 1)
                   .loss;
             }}}}};
}

}  // namespace skytape::test::op
