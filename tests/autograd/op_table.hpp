// The op table: one row per differentiable op, walked by every loop of op_table_test.cpp. A new op
// needs one row here and nothing else.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "autograd/gradcheck.hpp"
#include "tensor/core/tensor.hpp"

namespace skytape::test {

struct Sample {
  std::string label;
  std::vector<Tensor> inputs;  // f64 on the CPU, away from kinks; the loops convert and move them
  Function call;               // runs on whatever dtype and device its inputs have
};

struct BadUse {
  std::string expected;  // part of the message
  std::function<Var(Tape&)> call;
};

struct OpRow {
  std::string name;  // of the node, as recorded
  std::vector<Sample> samples;
  std::vector<BadUse> bad;
  double (*value)(double) = nullptr;  // of a function of one variable, from the standard library
};

[[nodiscard]] const std::vector<OpRow>& op_table();

/// The row of that name, or nullptr: what a test over recorded names asks.
[[nodiscard]] const OpRow* find_op(const std::string& name);

}  // namespace skytape::test
