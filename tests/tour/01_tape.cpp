// The tape by hand: a line is fitted to eight points by gradient descent
#include <cmath>
#include <vector>

#include "autograd/initial_values.hpp"
#include "autograd/ops.hpp"
#include "autograd/tape_print.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tests/support/doctest.hpp"
#include "tests/tour/tour.hpp"

using namespace skytape;
using tour::say;

TEST_CASE("tour 1: linear regression by gradient descent") {
  // Eight points on the line y = 3 x - 1.
  std::vector<double> xs, ys;
  for (int i = 0; i < 8; ++i) {
    xs.push_back(-1.75 + 0.5 * i);
    ys.push_back(3 * xs.back() - 1);
  }
  const Tensor x = tour::tensor_of(xs, {8, 1}), y = tour::tensor_of(ys, {8, 1});

  // Parameters outlive the tapes. A store holds them all: values in one buffer, gradients in
  // another, which pack() allocates and fills.
  ParameterStore store;
  Parameter& w = store.add("w", {1, 1}, constant_init(0));
  Parameter& b = store.add("b", {1}, constant_init(0));
  store.pack(DType::f64, Device::cpu, /*seed=*/1);

  const double rate = 0.1;
  std::vector<double> losses;
  say("step      loss         w         b     dloss/dw   dloss/db\n");
  for (int step = 0; step <= 40; ++step) {
    // Forward: every op computes its value immediately and records itself on the tape. Each step
    // has a tape of its own.
    Tape tape;
    const Var prediction =
        linear(tape.constant(x), tape.parameter(w), tape.parameter(b));  // x Wᵀ + b: [8, 1]
    const Var error = prediction - tape.constant(y);                     // [8, 1]
    const Var loss = affine(sum_all(square(error)), 1.0 / 8);            // scalar

    // Backward: the tape is walked from its end. Each node turns dloss/d(its value) into
    // dloss/d(its inputs); what reaches a parameter is added to the parameter's grad.
    store.zero_gradients();
    tape.backward(loss);

    losses.push_back(loss.value().item());
    if (step % 10 == 0) {
      say("{:4} {:9.6f} {:9.6f} {:9.6f}    {:9.6f}  {:9.6f}\n", step, losses.back(), w.value.item(),
          b.value.item(), w.grad.item(), b.grad.item());
    }
    if (step == 0) {  // by hand: dloss/dw = 2 mean(x error), dloss/db = 2 mean(error)
      CHECK(w.grad.item() == doctest::Approx(-7.875));
      CHECK(b.grad.item() == doctest::Approx(2));
    }

    // Descent: value -= rate grad.
    tensor::accumulate(w.value, w.grad, -rate);
    tensor::accumulate(b.value, b.grad, -rate);
  }

  // The points lie evenly around zero, so w and b descend apart, and their errors shrink by
  // 1 - 2 rate mean(x²) = 0.7375 and by 1 - 2 rate = 0.8 a step. The loss is known in advance.
  for (std::size_t t = 0; t < losses.size(); ++t) {
    const double of_w = 3 * std::pow(0.7375, t), of_b = std::pow(0.8, t);
    CHECK(losses[t] / (1.3125 * of_w * of_w + of_b * of_b) == doctest::Approx(1));
  }
  say("\nThe line is y = 3 x - 1: w and b are there to three digits.\n");
  CHECK(std::abs(w.value.item() - 3) < 5e-4);
  CHECK(std::abs(b.value.item() + 1) < 5e-4);
}

TEST_CASE("tour 1: what is on the tape") {
  ParameterStore store;
  Parameter& w = store.add("w", {1, 1}, constant_init(2));
  store.pack(DType::f64, Device::cpu, /*seed=*/1);
  Tape tape;
  const Var x = tape.constant(tour::tensor_of({1, 2, 3}, {3, 1}));
  const Var line = linear(x, tape.parameter(w), Var());  // no bias: an absent input
  const Var loss = sum_all(line * line);                 // 4 + 16 + 36

  say("\nA tape with sum((w x)²): nodes in the order in which they were made, so that\n"
      "every input stands before what uses it. Walking back needs no sorting.\n\n{}",
      to_text(tape));
  CHECK(names(tape) == std::vector<std::string>{"leaf", "leaf", "linear", "multiply", "sum_all"});
  CHECK_FALSE(x.needs_grad());  // a constant: no gradient is computed for it
  CHECK(line.needs_grad());     // because w does

  // The line is used twice by "multiply", and its two gradients are added up: dloss/dline is
  // line + line. With it, dloss/dw = sum(2 w x x) = 2 · 2 · 14.
  tape.backward(loss);
  CHECK(loss.value().item() == 56);
  CHECK(w.grad.item() == 56);
  say("\nAfter backward: the loss is {}, dloss/dw is {}. Ops have released their values\n"
      "on the way, so memory shrinks during the walk.\n\n{}",
      loss.value().item(), w.grad.item(), to_text(tape));
  CHECK(to_text(tape).find("multiply   2 2     released") != std::string::npos);
}
