// Rows of the op table: picking rows, and pieces of a network.
#include "autograd/ops.hpp"
#include "autograd/ops_heads.hpp"
#include "nn/embedding/ngrams.hpp"
#include "nn/embedding/positions.hpp"
#include "nn/layers/mlp.hpp"
#include "nn/layers/pair_features.hpp"
#include "nn/pyramid/instance_norm.hpp"
#include "nn/pyramid/unfold.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tests/autograd/op_samples.hpp"

namespace skytape::test::op {

Rows index_rows() {
  const auto pick = [](const Tensor& index) -> Function {
    return [=](Tape&, Vars v) { return gather_rows(v[0], beside(v[0], index)); };
  };
  const auto place = [](const Tensor& index, std::int64_t n) -> Function {
    return [=](Tape&, Vars v) { return scatter_rows(v[0], beside(v[0], index), n); };
  };
  const auto look_up = [](const Tensor& ids) -> Function {
    return [=](Tape&, Vars v) { return embedding(v[0], beside(v[0], ids)); };
  };
  const Tensor repeated = integers({2, 0, 2, 4}, {4});              // [d], an index twice
  const Tensor per_batch = integers({2, 0, 1, 3, 3, 3}, {2, 3});    // [B, d]
  const Tensor per_head = integers({0, 1, 2, 2, 1, 1}, {2, 1, 3});  // [B, H, d]
  const Tensor wrong = integers({0, 5}, {2});
  return {{"gather_rows",
           {{"repeated", {normal({5, 3}, 131)}, pick(repeated)},
            {"per batch", {normal({2, 3, 4, 5}, 132)}, pick(per_batch)},
            {"per head", {normal({2, 1, 3, 2}, 133)}, pick(per_head)},
            {"one list", {normal({2, 3, 5, 2}, 134)}, pick(repeated)},
            {"none", {normal({5, 3}, 135)}, pick(integers({}, {0}))}},
           {{"gather_rows: ",
             [wrong](Tape& t) {
               return gather_rows(zeros(t, {5, 3}), wrong);
             }},
            {"gather_rows: ",
             [per_batch](Tape& t) {
               return gather_rows(zeros(t, {3, 5, 3}), per_batch);
             }}}},
          {"scatter_rows",
           {{"repeated", {normal({4, 3}, 136)}, place(repeated, 5)},
            {"per batch", {normal({2, 3, 3, 5}, 137)}, place(per_batch, 4)},
            {"per head", {normal({2, 1, 3, 2}, 138)}, place(per_head, 3)},
            {"none", {normal({0, 3}, 139)}, place(integers({}, {0}), 5)}},
           {{"scatter_rows: ", [wrong](Tape& t) { return scatter_rows(zeros(t, {2}), wrong, 5); }},
            {"scatter_add_rows: ",
             [wrong](Tape& t) {
               return scatter_rows(zeros(t, {2, 3}), wrong, 5);
             }}}},
          {"embedding",
           {{"repeated", {normal({5, 3}, 140)}, look_up(integers({4, 0, 4, 4, 1, 0}, {2, 3}))},
            {"long", {normal({7, 2}, 141)}, look_up(scrambled_ids(3001, 7))},
            {"none", {normal({5, 3}, 142)}, look_up(integers({}, {0}))}},
           {{"embedding: ",
             [](Tape& t) {
               return embedding(zeros(t, {5, 3}), integers({5}, {1}));
             }},
            {"embedding: ", [](Tape& t) {
               return embedding(zeros(t, {5, 3}), integers({-1}, {1}));
             }}}}};
}

Rows network_rows() {
  const Function norm = [](Tape&, Vars v) { return layer_norm(v[0], v[1], v[2]); };
  const auto drop = [](double rate) -> Function {
    return [=](Tape&, Vars v) { return dropout(v[0], dropping(rate)); };
  };
  const auto mlp = [](double rate, double factor) -> Function {
    return [=](Tape&, Vars v) {
      return nn::mlp({v[0], v[1], v[2], v[3], v[4], v[5], v[6]}, factor, dropping(rate),
                     dropping(rate));
    };
  };
  const auto mlp_alone = [](double rate) -> Function {  // of what no norm gave
    return [=](Tape&, Vars v) {
      return nn::mlp({v[0], Var(), Var(), v[1], v[2], v[3], v[4]}, 1, dropping(rate),
                     dropping(rate));
    };
  };
  const auto mlp_inputs = [](const Shape& x, std::int64_t f) -> std::vector<Tensor> {
    const std::int64_t e = x[2];
    return {normal(x, 190),   normal({e}, 191),    normal({e}, 192), normal({f, e}, 193),
            normal({f}, 194), normal({e, f}, 195), normal({e}, 196)};
  };
  const auto merge = [](double rate) -> Function {
    return [=](Tape&, Vars v) { return merge_heads(v[0], v[1], v[2], v[3], dropping(rate)); };
  };
  const auto merge_inputs = [](const Shape& a, std::int64_t e) -> std::vector<Tensor> {
    return {normal({a[0], a[2], e}, 197), normal(a, 198), normal({e, a[1] * a[3]}, 199),
            normal({e}, 200)};
  };
  const auto loss = [](const Tensor& labels) -> Function {
    return [=](Tape&, Vars v) { return cross_entropy(v[0], beside(v[0], labels)); };
  };
  const auto losses = [](const Tensor& labels) -> Function {
    return [=](Tape&, Vars v) { return cross_entropy_rows(v[0], beside(v[0], labels)); };
  };
  const auto hide = [](const Tensor& m, double scale) -> Function {
    return [=](Tape&, Vars v) { return mask_rows(v[0], beside(v[0], m), scale); };
  };
  const auto turn = [](std::int64_t positions) -> Function {
    return [=](Tape&, Vars v) {
      const Tensor angles = nn::rotary_angles(10)({positions, v[0].size(3)}, {});
      return nn::rotary(v[0], beside(v[0], angles));
    };
  };
  const auto add_at = [](const Tensor& slots) -> Function {
    return [=](Tape&, Vars v) { return nn::add_rows_at(v[0], v[1], beside(v[0], slots)); };
  };
  const Tensor slots = integers({0, 3, 3, 1, 2, 2, 2, 0, 3, 1, 0, 2}, {2, 2, 3});  // [G, B, N]
  const auto windows = [](const nn::Windows& of) -> Function {
    return [=](Tape&, Vars v) { return nn::unfold(v[0], of); };
  };
  const Function instances = [](Tape&, Vars v) { return nn::instance_norm(v[0], v[1], v[2]); };
  const auto centre = [](Tape& t, Vars v) {
    return nn::centred(
        v[0], t.constant(beside(v[0], Tensor::from(std::vector<double>{1, 2, 3, 4, 5, 10}, {6},
                                                   DType::f64, Device::cpu))));
  };
  return {
      {"layer_norm",
       {{"odd", {normal({2, 3, 7}, 151), normal({7}, 152), normal({7}, 153)}, norm},
        {"one row", {normal({5}, 154), normal({5}, 155), normal({5}, 156)}, norm},
        {"long", {normal({523, 5}, 157), normal({5}, 158), normal({5}, 159)}, norm},
        {"no rows", {normal({0, 5}, 160), normal({5}, 161), normal({5}, 162)}, norm}},
       {{"layer_norm: ",
         [](Tape& t) {
           return layer_norm(zeros(t, {2, 3}), zeros(t, {4}), zeros(t, {3}));
         }}}},
      {"dropout",
       {{"odd", {normal({2, 5, 3}, 163)}, drop(0.3)},
        {"over several chunks", {normal({1, 131, 3}, 164)}, drop(0.5)},
        {"rate 0", {normal({2, 5, 3}, 165)}, drop(0)},
        {"empty", {normal({0, 5, 3}, 166)}, drop(0.3)}},
       {{"dropout: ",
         [](Tape& t) {
           return dropout(zeros(t, {1, 2, 3}), dropping(1));
         }}}},
      {"mlp",
       {{"odd", mlp_inputs({2, 5, 3}, 7), mlp(0.3, 1)},
        {"sizes of a kernel", mlp_inputs({1, 9, 16}, 32), mlp(0.3, 2)},
        {"rate 0", mlp_inputs({2, 3, 5}, 4), mlp(0, 1)},
        {"no tokens", mlp_inputs({2, 0, 3}, 2), mlp(0.3, 1)},
        {"no norm",
         {normal({2, 5, 3}, 221), normal({7, 3}, 222), normal({7}, 223), normal({3, 7}, 224),
          normal({3}, 225)},
         mlp_alone(0.3)}},
       {{"mlp: expected x [B, N, E]",
         [](Tape& t) {
           const Var e = zeros(t, {3});
           return nn::mlp(
               {zeros(t, {2, 3}), e, e, zeros(t, {4, 3}), zeros(t, {4}), zeros(t, {3, 4}), e}, 1,
               {}, {});
         }},
        {"mlp: expected the norm's weight and bias",
         [](Tape& t) {
           const Var e = zeros(t, {3});
           return nn::mlp({zeros(t, {1, 2, 3}), zeros(t, {4}), e, zeros(t, {4, 3}), zeros(t, {4}),
                           zeros(t, {3, 4}), e},
                          1, {}, {});
         }},
        {"mlp: expected the last bias",
         [](Tape& t) {
           const Var e = zeros(t, {3});
           return nn::mlp({zeros(t, {1, 2, 3}), e, e, zeros(t, {4, 3}), zeros(t, {4}),
                           zeros(t, {3, 4}), zeros(t, {4})},
                          1, {}, {});
         }},
        {"mlp: expected weights [F, E], [E, F]",
         [](Tape& t) {
           const Var e = zeros(t, {3});
           return nn::mlp(
               {zeros(t, {1, 2, 3}), e, e, zeros(t, {4, 3}), zeros(t, {4}), zeros(t, {4, 3}), e}, 1,
               {}, {});
         }}}},
      {"merge_heads",
       {{"odd", merge_inputs({2, 3, 5, 1}, 4), merge(0.3)},
        {"sizes of a kernel", merge_inputs({1, 2, 9, 4}, 16), merge(0.3)},
        {"rate 0", merge_inputs({2, 1, 3, 2}, 5), merge(0)},
        {"no tokens", merge_inputs({2, 2, 0, 3}, 2), merge(0.3)}},
       {{"merge_heads: expected [B, N, E] and a [B, H, N, D]",
         [](Tape& t) {
           return merge_heads(zeros(t, {1, 2, 3}), zeros(t, {1, 2, 3, 4}), zeros(t, {3, 8}),
                              zeros(t, {3}), {});
         }},
        {"merge_heads: expected a weight [E, H D]",
         [](Tape& t) {
           return merge_heads(zeros(t, {1, 2, 3}), zeros(t, {1, 2, 2, 4}), zeros(t, {8, 3}),
                              zeros(t, {3}), {});
         }},
        {"merge_heads: expected a bias [E]",
         [](Tape& t) {
           return merge_heads(zeros(t, {1, 2, 3}), zeros(t, {1, 2, 2, 4}), zeros(t, {3, 8}),
                              zeros(t, {8}), {});
         }}}},
      {"cross_entropy",
       {{"odd", {normal({3, 5}, 181)}, loss(integers({4, 0, 2}, {3}))},
        {"one class", {normal({2, 1}, 182)}, loss(integers({0, 0}, {2}))},
        {"large values",
         {tensor::affine(normal({2, 3}, 183), 3, 500)},
         loss(integers({2, 1}, {2}))}},
       {{"cross_entropy: ",
         [](Tape& t) {
           return cross_entropy(zeros(t, {2, 3}), integers({0}, {1}));
         }},
        {"cross_entropy: ",
         [](Tape& t) {
           return cross_entropy(zeros(t, {1, 3}), integers({3}, {1}));
         }},
        {"cross_entropy: ",
         [](Tape& t) {
           return cross_entropy(zeros(t, {0, 3}), integers({}, {0}));
         }}}},
      {"cross_entropy_rows",
       {{"odd", {normal({3, 5}, 187)}, losses(integers({4, 0, 2}, {3}))},
        {"one class", {normal({2, 1}, 188)}, losses(integers({0, 0}, {2}))},
        {"empty", {normal({0, 3}, 189)}, losses(integers({}, {0}))}},
       {{"cross_entropy: ",
         [](Tape& t) {
           return cross_entropy_rows(zeros(t, {2, 3}), integers({0}, {1}));
         }}}},
      {"mask_rows",
       {{"heads", {normal({2, 3, 5, 2}, 184)}, hide(mask(5, {5, 3}), 0.25)},
        {"no heads", {normal({2, 5, 3}, 185)}, hide(mask(5, {0, 4}), 1)},
        {"empty", {normal({0, 5, 3}, 186)}, hide(mask(5, {}), 1)}},
       {{"mask_rows: ",
         [](Tape& t) {
           return mask_rows(zeros(t, {2, 3}), mask(3, {1, 2}));
         }},
        {"mask_rows: ",
         [](Tape& t) {
           return mask_rows(zeros(t, {2, 4, 3}), mask(3, {1, 2}));
         }}}},
      {"rotary",
       {{"heads", {normal({2, 3, 5, 6}, 187)}, turn(5)},
        {"trimmed", {normal({2, 1, 3, 2}, 188)}, turn(9)},
        {"long", {normal({1, 2, 523, 8}, 189)}, turn(600)},
        {"empty", {normal({0, 2, 5, 4}, 190)}, turn(5)}},
       {{"rotary: expected x [B, H, N, D] with an even D",
         [](Tape& t) {
           return nn::rotary(zeros(t, {1, 1, 2, 3}), normal({2, 3}, 191));
         }},
        {"rotary: ",
         [](Tape& t) {
           return nn::rotary(zeros(t, {1, 1, 4, 2}), normal({3, 2}, 192));
         }}}},
      {"add_rows_at",
       {{"repeated", {normal({2, 3, 5}, 193), normal({4, 5}, 194)}, add_at(slots)},
        {"one length",
         {normal({1, 3, 2}, 195), normal({5, 2}, 196)},
         add_at(integers({4, 0, 4}, {1, 1, 3}))},
        {"none", {normal({0, 3, 5}, 197), normal({4, 5}, 198)}, add_at(integers({}, {2, 0, 3}))}},
       {{"add_rows_at: expected x [B, N, E], table [S, E] and slots i32[G, B, N]",
         [slots](Tape& t) {
           return nn::add_rows_at(zeros(t, {2, 4, 5}), zeros(t, {4, 5}), slots);
         }},
        {"add_rows_at: index 3",
         [slots](Tape& t) {
           return nn::add_rows_at(zeros(t, {2, 3, 5}), zeros(t, {3, 5}), slots);
         }}}},
      {"centred",  // its mean is a constant here: what goes there is no gradient
       {{"odd", {normal({3, 5}, 207)}, centre},
        {"one row", {normal({1, 5}, 208)}, centre},
        {"no rows", {normal({0, 5}, 209)}, centre}},
       {{"centred: expected x [B, E] and a mean [E + 1]",
         [](Tape& t) {
           return nn::centred(zeros(t, {2, 5}), zeros(t, {5}));
         }}}},
      {"unfold",
       {{"odd", {normal({2, 15, 3}, 211)}, windows({5, 3, 1})},
        {"every second place", {normal({2, 28, 3}, 212)}, windows({7, 3, 2})},
        {"one place", {normal({2, 20, 5}, 213)}, windows({4, 1, 2})},
        {"windows larger than the picture", {normal({1, 6, 2}, 214)}, windows({3, 7, 1})},
        {"empty", {normal({0, 6, 2}, 215)}, windows({3, 3, 2})}},
       {{"unfold: expected an odd side and a stride of at least 1, got 2 and 1",
         [](Tape& t) {
           return nn::unfold(zeros(t, {1, 6, 2}), {3, 2, 1});
         }},
        {"unfold: expected x [B, N, E] with rows of 4 places",
         [](Tape& t) {
           return nn::unfold(zeros(t, {1, 6, 2}), {4, 3, 1});
         }}}},
      {"instance_norm",
       {{"odd", {normal({2, 7, 3}, 216), normal({3}, 217), normal({3}, 218)}, instances},
        {"one picture", {normal({1, 523, 2}, 219), normal({2}, 220), normal({2}, 221)}, instances},
        {"empty", {normal({0, 5, 4}, 222), normal({4}, 223), normal({4}, 224)}, instances}},
       {{"instance_norm: expected x [B, N, E] with places, weight and bias [E]", [](Tape& t) {
           return nn::instance_norm(zeros(t, {2, 4, 3}), zeros(t, {4}), zeros(t, {3}));
         }}}}};
}

}  // namespace skytape::test::op
