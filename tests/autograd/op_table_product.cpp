// Rows of the op table: matrix products and layout.
#include <vector>

#include "autograd/ops.hpp"
#include "autograd/ops_heads.hpp"
#include "tests/autograd/op_samples.hpp"

namespace skytape::test::op {
namespace {

/// Projections of x, v[0], by weight and bias in turn, with sums behind them if anything is there;
/// the result is that of one of them.
Function one_of_heads(std::int64_t heads, std::size_t which) {
  return [=](Tape&, Vars v) {
    std::vector<Projection> projections;
    for (std::size_t i = 1; i + 1 < v.size(); i += 2) projections.push_back({v[i], v[i + 1]});
    const Var sums = v.size() % 2 == 0 ? v.back() : Var();
    return project_heads(v[0], projections, heads, sums)[which];
  };
}

OpRow project_heads_row() {
  const auto at_once = [](Tape& t, const Shape& x, const Shape& w, const Shape& b,
                          std::int64_t heads) {
    const std::vector<Projection> one = {{zeros(t, w), zeros(t, b)}};
    return project_heads(zeros(t, x), one, heads)[0];
  };
  const Function without_bias = [](Tape&, Vars v) {
    const std::vector<Projection> two = {{v[1], Var()}, {v[2], Var()}};
    return project_heads(v[0], two, 3)[1];
  };
  return {
      "project_heads",
      {{"one", {normal({2, 3, 5}, 201), normal({4, 5}, 202), normal({4}, 203)}, one_of_heads(2, 0)},
       {"the first of three",
        {normal({2, 7, 3}, 204), normal({6, 3}, 205), normal({6}, 206), normal({6, 3}, 207),
         normal({6}, 208), normal({6, 3}, 209), normal({6}, 210)},
        one_of_heads(2, 0)},
       {"the last of three",
        {normal({1, 4, 3}, 211), normal({3, 3}, 212), normal({3}, 213), normal({3, 3}, 214),
         normal({3}, 215), normal({3, 3}, 216), normal({3}, 217)},
        one_of_heads(1, 2)},
       {"no bias",
        {normal({2, 5, 4}, 218), normal({3, 4}, 219), normal({3, 4}, 220)},
        without_bias},
       {"biases times sums",
        {normal({2, 7, 3}, 230), normal({6, 3}, 231), normal({6}, 232), normal({6, 3}, 233),
         normal({6}, 234), normal({2, 7, 1}, 235)},
        one_of_heads(2, 1)},
       {"long",
        {normal({1, 515, 3}, 221), normal({2, 3}, 222), normal({2}, 223)},
        one_of_heads(2, 0)},
       {"size 1",
        {normal({1, 1, 1}, 224), normal({1, 1}, 225), normal({1}, 226)},
        one_of_heads(1, 0)},
       {"no tokens",
        {normal({2, 0, 5}, 227), normal({2, 5}, 228), normal({2}, 229)},
        one_of_heads(1, 0)}},
      {{"project_heads: expected x [B, N, E]",
        [=](Tape& t) {
          return at_once(t, {2, 3}, {4, 3}, {4}, 2);
        }},
       {"project_heads: expected weights of one shape [H D, E]",
        [=](Tape& t) {
          return at_once(t, {1, 2, 3}, {4, 3}, {4}, 3);
        }},
       {"project_heads: expected bias [4]",
        [=](Tape& t) {
          return at_once(t, {1, 2, 3}, {4, 3}, {2}, 2);
        }},
       {"add_biases: expected sums [1, 2, 1]", [=](Tape& t) {
          const std::vector<Projection> one = {{zeros(t, {4, 3}), zeros(t, {4})}};
          return project_heads(zeros(t, {1, 2, 3}), one, 2, zeros(t, {1, 2}))[0];
        }}}};
}

}  // namespace

Rows product_rows() {
  const auto flags = [](Op a, Op b) -> Function {
    return [=](Tape&, Vars v) { return matmul(v[0], v[1], a, b); };
  };
  constexpr Op kNone = Op::none, kT = Op::transpose;
  const Function lin = [](Tape&, Vars v) {
    return linear(v[0], v[1], v.size() > 2 ? v[2] : Var());
  };
  return {{"matmul",
           {{"a b", {normal({3, 5}, 51), normal({5, 2}, 52)}, flags(kNone, kNone)},
            {"aT b", {normal({5, 3}, 53), normal({5, 2}, 54)}, flags(kT, kNone)},
            {"a bT", {normal({3, 5}, 55), normal({2, 5}, 56)}, flags(kNone, kT)},
            {"aT bT", {normal({5, 3}, 57), normal({2, 5}, 58)}, flags(kT, kT)},
            {"batched", {normal({2, 3, 4, 5}, 59), normal({2, 3, 5, 2}, 60)}, flags(kNone, kNone)},
            {"batched aT bT", {normal({2, 5, 3}, 61), normal({2, 2, 5}, 62)}, flags(kT, kT)},
            {"b for all", {normal({3, 4, 5}, 63), normal({5, 2}, 64)}, flags(kNone, kNone)},
            {"bT for all", {normal({3, 4, 5}, 65), normal({2, 5}, 66)}, flags(kNone, kT)},
            {"a for all", {normal({4, 5}, 67), normal({3, 5, 2}, 68)}, flags(kNone, kNone)},
            {"aT for all", {normal({5, 4}, 69), normal({3, 2, 5}, 70)}, flags(kT, kT)},
            {"size 1", {normal({1, 1}, 71), normal({1, 1}, 72)}, flags(kNone, kNone)},
            {"long", {normal({1030, 3}, 73), normal({1030, 2}, 74)}, flags(kT, kNone)},
            {"no inner", {normal({3, 0}, 75), normal({0, 2}, 76)}, flags(kNone, kNone)},
            {"no rows", {normal({0, 4}, 77), normal({4, 2}, 78)}, flags(kNone, kNone)}},
           {{"matmul: ",
             [](Tape& t) {
               return matmul(zeros(t, {2, 3}), zeros(t, {2, 4}));
             }},
            {"[2, 3]",
             [](Tape& t) {
               return matmul(zeros(t, {2, 3}), zeros(t, {2, 4}));
             }},
            {"matmul: ",
             [](Tape& t) {
               return matmul(zeros(t, {2, 4, 3}), zeros(t, {5, 3, 4}));
             }},
            {"matmul: ",
             [](Tape& t) {
               return matmul(zeros(t, {3}), zeros(t, {3, 4}));
             }}}},
          {"linear",
           {{"matrix", {normal({3, 5}, 81), normal({2, 5}, 82), normal({2}, 83)}, lin},
            {"leading axes", {normal({2, 3, 5}, 84), normal({7, 5}, 85), normal({7}, 86)}, lin},
            {"vector", {normal({5}, 87), normal({3, 5}, 88), normal({3}, 89)}, lin},
            {"no bias", {normal({4, 5}, 90), normal({3, 5}, 91)}, lin},
            {"long", {normal({515, 3}, 92), normal({2, 3}, 93), normal({2}, 94)}, lin},
            {"no rows", {normal({0, 5}, 95), normal({2, 5}, 96), normal({2}, 97)}, lin}},
           {{"linear: expected x [..., in]",
             [](Tape& t) {
               return linear(zeros(t, {2, 3}), zeros(t, {4, 5}), zeros(t, {4}));
             }},
            {"linear: expected bias [4]",
             [](Tape& t) {
               return linear(zeros(t, {2, 3}), zeros(t, {4, 3}), zeros(t, {3}));
             }}}},
          project_heads_row()};
}

Rows layout_rows() {
  const auto to_shape = [](Shape shape) -> Function {
    return [=](Tape&, Vars v) { return reshape(v[0], shape); };
  };
  const auto grow = [](Shape shape) -> Function {
    return [=](Tape&, Vars v) { return expand(v[0], shape); };
  };
  const auto join_at = [](int axis) -> Function {
    return [=](Tape&, Vars v) { return concat(v, axis); };
  };
  const auto cut = [](int axis, std::int64_t begin, std::int64_t end) -> Function {
    return [=](Tape&, Vars v) { return narrow(v[0], axis, begin, end); };
  };
  const Function flip = [](Tape&, Vars v) { return transpose(v[0]); };
  const Function heads = [](Tape&, Vars v) { return swap_middle(v[0]); };
  return {
      {"reshape",
       {{"flatten", {normal({2, 3, 5}, 101)}, to_shape({6, 5})},
        {"scalar", {normal({1, 1}, 102)}, to_shape({})},
        {"empty", {normal({0, 3}, 103)}, to_shape({3, 0})}},
       {{"reshape: ",
         [](Tape& t) {
           return reshape(zeros(t, {2, 3}), {5});
         }}}},
      {"transpose",
       {{"matrix", {normal({3, 5}, 104)}, flip},
        {"batched", {normal({2, 3, 5, 7}, 105)}, flip},
        {"row", {normal({1, 5}, 106)}, flip},
        {"empty", {normal({2, 0, 3}, 107)}, flip}},
       {{"transpose: ", [](Tape& t) { return transpose(zeros(t, {3})); }}}},
      {"swap_middle",
       {{"odd", {normal({2, 3, 5, 7}, 108)}, heads},
        {"one head", {normal({2, 3, 1, 4}, 109)}, heads},
        {"empty", {normal({0, 3, 2, 4}, 110)}, heads}},
       {{"swap_middle: ",
         [](Tape& t) {
           return swap_middle(zeros(t, {2, 3, 4}));
         }}}},
      {"concat",
       {{"first axis", {normal({2, 3}, 111), normal({5, 3}, 112)}, join_at(0)},
        {"middle axis", {normal({2, 1, 3}, 113), normal({2, 4, 3}, 114)}, join_at(1)},
        {"last axis", {normal({2, 3}, 115), normal({2, 1}, 116), normal({2, 5}, 117)}, join_at(-1)},
        {"one part", {normal({2, 3}, 118)}, join_at(1)},
        {"an empty part", {normal({2, 0}, 119), normal({2, 3}, 120)}, join_at(1)}},
       {{"f64[3, 3]@cpu",
         [](Tape& t) {
           const std::vector<Var> parts = {zeros(t, {2, 3}), zeros(t, {3, 3})};
           return concat(parts, 1);
         }},
        {"concat: expected at least one part", [](Tape&) { return concat({}, 0); }}}},
      {"narrow",
       {{"first axis", {normal({7, 3}, 121)}, cut(0, 2, 5)},
        {"middle axis", {normal({2, 5, 3}, 122)}, cut(1, 1, 4)},
        {"last axis", {normal({3, 5}, 123)}, cut(-1, 0, 2)},
        {"all", {normal({3, 5}, 124)}, cut(1, 0, 5)},
        {"nothing", {normal({3, 5}, 125)}, cut(1, 2, 2)}},
       {{"narrow: ",
         [](Tape& t) {
           return narrow(zeros(t, {2, 3}), 1, 2, 4);
         }},
        {"narrow: ",
         [](Tape& t) {
           return narrow(zeros(t, {2, 3}), 1, -1, 2);
         }}}},
      {"expand",
       {{"rows", {normal({1, 5}, 126)}, grow({3, 5})},
        {"columns", {normal({3, 1}, 127)}, grow({3, 5})},
        {"new axes", {normal({5}, 128)}, grow({2, 3, 5})},
        {"scalar", {normal({}, 129)}, grow({2, 3})},
        {"to nothing", {normal({1, 3}, 130)}, grow({0, 3})}},
       {{"expand: ", [](Tape& t) {
           return expand(zeros(t, {2, 3}), {4, 3});
         }}}}};
}

}  // namespace skytape::test::op
