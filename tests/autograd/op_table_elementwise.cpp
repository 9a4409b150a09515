// Rows of the op table: elementwise functions and reductions.
#include <cmath>
#include <utility>

#include "autograd/ops.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tests/autograd/op_samples.hpp"

namespace skytape::test::op {

namespace {

OpRow binary_row(const std::string& name, Var (*op)(Var, Var)) {
  const Function call = [op](Tape&, Vars v) { return op(v[0], v[1]); };
  return {name,
          {{"same shape", {normal({3, 5}, 1), nonzero({3, 5}, 2)}, call},
           {"bias over rows", {normal({2, 3, 5}, 3), nonzero({5}, 4)}, call},
           {"column", {normal({3, 5}, 5), nonzero({3, 1}, 6)}, call},
           {"both repeat", {normal({3, 1, 2}, 7), nonzero({1, 4, 1}, 8)}, call},
           {"left smaller", {normal({5}, 9), nonzero({7, 5}, 10)}, call},
           {"scalar", {normal({4, 3}, 11), nonzero({}, 12)}, call},
           {"long", {normal({701, 3}, 13), nonzero({3}, 14)}, call},
           {"empty", {normal({0, 3}, 15), nonzero({3}, 16)}, call},
           {"one operand twice",
            {nonzero({3}, 17)},
            [op](Tape&, Vars v) { return op(v[0], affine(v[0], 1, 0)); }}},
          {{name + ": ",
            [op](Tape& t) {
              return op(zeros(t, {2, 3}), zeros(t, {2, 4}));
            }},
           {"[2, 3]", [op](Tape& t) {
              return op(zeros(t, {2, 3}), zeros(t, {3, 2}));
            }}}};
}

OpRow unary_row(const std::string& name, Var (*op)(Var),
                Tensor (*input)(const Shape&, std::uint64_t), double (*value)(double)) {
  const Function call = [op](Tape&, Vars v) { return op(v[0]); };
  return {name,
          {{"odd", {input({3, 5, 7}, 21)}, call},
           {"scalar", {input({}, 22)}, call},
           {"long", {input({4099}, 23)}, call},
           {"empty", {input({2, 0}, 24)}, call}},
          {{"undefined", [op](Tape&) { return op(Var()); }}},
          value};
}

}  // namespace

Rows elementwise_rows() {
  return {
      binary_row("add", [](Var a, Var b) { return a + b; }),
      binary_row("subtract", [](Var a, Var b) { return a - b; }),
      binary_row("multiply", [](Var a, Var b) { return a * b; }),
      binary_row("divide", [](Var a, Var b) { return a / b; }),
      unary_row(
          "affine", [](Var x) { return affine(x, -1.7, 0.3); }, normal,
          [](double x) { return -1.7 * x + 0.3; }),
      unary_row("negate", negate, normal, [](double x) { return -x; }),
      unary_row("exp", exp, normal, std::exp),
      unary_row("log", log, positive, std::log),
      unary_row("sqrt", sqrt, positive, std::sqrt),
      unary_row("reciprocal", reciprocal, nonzero, [](double x) { return 1 / x; }),
      unary_row("square", square, normal, [](double x) { return x * x; }),
      unary_row("relu", relu, nonzero, [](double x) { return std::fmax(x, 0); }),
      unary_row("gelu", gelu, normal,
                [](double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }),
  };
}

namespace {

OpRow reduction_row(const std::string& name, Var (*op)(Var, int, bool)) {
  const auto over = [op](int axis, bool keep) -> Function {
    return [=](Tape&, Vars v) { return op(v[0], axis, keep); };
  };
  return {name,
          {{"first axis", {distinct({5, 3})}, over(0, false)},
           {"middle axis", {distinct({2, 7, 3})}, over(1, false)},
           {"middle axis kept", {distinct({2, 7, 3})}, over(1, true)},
           {"last axis", {distinct({3, 2, 5})}, over(-1, false)},
           {"last axis kept", {distinct({3, 5})}, over(-1, true)},
           {"size 1", {distinct({3, 1})}, over(1, false)},
           {"vector to scalar", {distinct({11})}, over(0, false)},
           {"empty batch", {distinct({0, 3})}, over(1, false)}},
          {{"axis 2",
            [op](Tape& t) {
              return op(zeros(t, {2, 3}), 2, false);
            }},
           {"undefined", [op](Tape&) { return op(Var(), 0, false); }}}};
}

}  // namespace

Rows reduction_rows() {
  OpRow total = reduction_row("sum", sum);
  total.samples.push_back(
      {"long columns", {normal({4099, 3}, 31)}, [](Tape&, Vars v) { return sum(v[0], 0); }});
  total.samples.push_back(
      {"empty axis", {normal({2, 0, 3}, 32)}, [](Tape&, Vars v) { return sum(v[0], 1); }});
  OpRow average = reduction_row("mean", mean);
  average.bad.push_back({"mean: axis 1", [](Tape& t) { return mean(zeros(t, {2, 0}), 1); }});
  OpRow largest = reduction_row("max", max);
  largest.bad.push_back({"max: ", [](Tape& t) { return max(zeros(t, {2, 0}), 1); }});

  const Function all = [](Tape&, Vars v) { return sum_all(v[0]); };
  const Function soft = [](Tape&, Vars v) { return softmax(v[0]); };
  const Function lse = [](Tape&, Vars v) { return logsumexp(v[0]); };
  return {std::move(total),
          std::move(average),
          std::move(largest),
          {"sum_all",
           {{"odd", {normal({3, 5}, 33)}, all},
            {"scalar", {normal({}, 34)}, all},
            {"long", {normal({9001}, 35)}, all},
            {"empty", {normal({0, 2}, 36)}, all}},
           {{"undefined", [](Tape&) { return sum_all(Var()); }}}},
          {"softmax",
           {{"odd rows", {normal({2, 3, 7}, 37)}, soft},
            {"one column", {normal({3, 1}, 38)}, soft},
            {"large values", {tensor::affine(normal({2, 5}, 39), 1, 800)}, soft},
            {"long", {normal({40, 33}, 40)}, soft},
            {"empty", {normal({0, 5}, 41)}, soft}},
           {{"undefined", [](Tape&) { return softmax(Var()); }}}},
          {"logsumexp",
           {{"odd rows", {normal({2, 3, 7}, 42)}, lse},
            {"one column", {normal({3, 1}, 43)}, lse},
            {"large values", {tensor::affine(normal({2, 5}, 44), 1, 800)}, lse},
            {"empty", {normal({0, 5}, 45)}, lse}},
           {{"undefined", [](Tape&) { return logsumexp(Var()); }}}}};
}

}  // namespace skytape::test::op
