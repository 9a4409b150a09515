// The tape refuses wrong calls by errors that name the operation and what it expected.
#include <array>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "autograd/gradcheck.hpp"
#include "autograd/initial_values.hpp"
#include "autograd/ops.hpp"
#include "tests/support/check_error.hpp"
#include "tests/support/numbers.hpp"

using namespace skytape;
using test::f64;

TEST_CASE("operands on different tapes are refused by op name") {
  Tape one, other;
  const Var a = one.input(f64({1})), b = other.input(f64({1}));
  CHECK_MESSAGE_HAS(a + b, "add: input 1 is not on this tape");
  CHECK_MESSAGE_HAS(one.backward(b), "another tape");
  CHECK_MESSAGE_HAS(one.grad(b), "another tape");
}

TEST_CASE("a Var whose tape is gone is refused, also where another tape took its place") {
  std::optional<Tape> tape(std::in_place);
  const Var left = tape->input(f64({1}));
  tape.emplace();  // where the first one was
  const Var other = tape->input(f64({1}));
  CHECK_MESSAGE_HAS(left.value(), "Var: its Tape is gone");
  CHECK_MESSAGE_HAS(left.needs_grad(), "its Tape is gone");
  CHECK_MESSAGE_HAS(exp(left), "its Tape is gone");
  CHECK_MESSAGE_HAS(other + left, "its Tape is gone");
  CHECK_MESSAGE_HAS(tape->backward(left), "its Tape is gone");
  CHECK_MESSAGE_HAS(tape->grad(left), "its Tape is gone");
  tape.reset();
  CHECK_MESSAGE_HAS(other.value(), "its Tape is gone");
}

TEST_CASE("among thousands of tapes, one that is gone is noticed") {
  std::deque<Tape> tapes;
  std::vector<Var> vars;
  for (int i = 0; i < 5000; ++i) vars.push_back(tapes.emplace_back().input(f64({1})));
  tapes.pop_back();
  tapes.pop_front();
  CHECK_MESSAGE_HAS(vars.front().value(), "its Tape is gone");
  CHECK_MESSAGE_HAS(vars.back().value(), "its Tape is gone");
  for (std::size_t i = 1; i + 1 < vars.size(); ++i) REQUIRE(vars[i].value().numel() == 1);
}

TEST_CASE("operands of mixed dtype are refused by op name") {
  Tape tape;
  const Var a = tape.input(f64({1})), b = tape.input(f64({1}).to(DType::f32));
  CHECK_MESSAGE_HAS(a * b, "multiply: ");
  CHECK_MESSAGE_HAS(record("own", {a, b}, a.value(), {}), "own: dtype or device of input 1");
}

TEST_CASE("leaves are floating point") {
  Tape tape;
  const Tensor ids = Tensor::zeros({2}, DType::i32, Device::cpu);
  CHECK_MESSAGE_HAS(tape.input(ids), "Tape::input: expected an f32 or f64 tensor, got i32[2]@cpu");
  CHECK_MESSAGE_HAS(tape.constant(f64({2}).to(DType::f32).to(DType::bf16)),
                    "Tape::constant: expected an f32 or f64 tensor, got bf16[1]@cpu");
  CHECK_MESSAGE_HAS(tape.constant(ids), "Tape::constant: ");
  CHECK_MESSAGE_HAS(tape.input(Tensor()), "undefined tensor");
  ParameterStore store;
  CHECK_MESSAGE_HAS(tape.parameter(store.add("late", {1}, constant_init(0))), "parameter late");
}

TEST_CASE("an undefined Var is refused") {
  Tape tape;
  CHECK_MESSAGE_HAS(Var().value(), "undefined");
  CHECK_MESSAGE_HAS(tape.backward(Var()), "undefined");
  CHECK_MESSAGE_HAS(record("own", {Var(), Var()}, f64({1}), {}), "own: every input is undefined");
  CHECK_FALSE(Var().needs_grad());
}

TEST_CASE("a gradient of the wrong shape is refused by op and input") {
  Tape tape;
  const Var x = tape.input(f64({1, 2}));
  const Var y = record("wrong", {x}, x.value(), [](const Tensor&, Grads& g) {
    g.add(0, f64({1, 2, 3}));
  });
  CHECK_MESSAGE_HAS(tape.backward(sum_all(y)),
                    "wrong: gradient of input 0 is f64[3]@cpu, the input is f64[2]@cpu");
}

TEST_CASE("a gradient of the wrong shape has a separate error, which a program can catch") {
  const auto wrong = [](Tape&, std::span<const Var> v) {
    return record("wrong", {v[0]}, v[0].value(), [](const Tensor&, Grads& g) {
      g.add(0, f64({1}, {1, 1}));
    });
  };
  CHECK_THROWS_AS((void)gradcheck(wrong, {f64({1}, {1})}), GradientError);
  Tape tape;
  const Var x = tape.input(f64({1}, {1}));
  CHECK_THROWS_AS(tape.backward(wrong(tape, std::vector<Var>{x})), GradientError);
  // Parameters and other tapes are as they were.
  Tape next;
  const Var again = next.input(f64({3}, {1}));
  next.backward(square(again));
  CHECK(next.grad(again).to_vector() == std::vector<double>{6});
}

TEST_CASE("rows that do not fit their table are refused, for a parameter and for an input") {
  const auto gives = [](const Var& table, const Tensor& rows) {
    return record("look_up", {table}, Tensor::zeros({1}, DType::f64, Device::cpu),
                  [rows](const Tensor&, Grads& g) {
                    g.add_rows(0, Tensor::zeros({2}, DType::i32, Device::cpu), rows);
                  });
  };
  ParameterStore store;
  Parameter& table = store.add("table", {4, 3}, constant_init(0));
  store.pack(DType::f64, Device::cpu, 1);
  const Tensor narrow = Tensor::zeros({2, 2}, DType::f64, Device::cpu);
  {
    Tape tape;
    CHECK_MESSAGE_HAS(tape.backward(gives(tape.parameter(table), narrow)),
                      "look_up: gradient of input 0 is rows f64[2, 2]@cpu at i32[2]@cpu, the input "
                      "is f64[4, 3]@cpu");
  }
  {
    Tape tape;
    const Tensor rough = Tensor::zeros({2, 3}, DType::f32, Device::cpu);
    CHECK_MESSAGE_HAS(tape.backward(gives(tape.parameter(table), rough)),
                      "look_up: gradient of input 0 is rows f32[2, 3]@cpu");
  }
  CHECK_FALSE(table.has_gradient);
  Tape tape;
  const Var input = tape.input(Tensor::zeros({4, 3}, DType::f64, Device::cpu));
  CHECK_THROWS_AS(tape.backward(gives(input, narrow)), GradientError);
}

TEST_CASE("an op without a backward function is refused where an input needs a gradient") {
  Tape tape;
  const Var x = tape.input(f64({1}, {1}));
  CHECK_MESSAGE_HAS(record("silent", {x}, x.value(), {}),
                    "silent: an input needs a gradient, and there is no backward function");
  const Var c = tape.constant(f64({1}, {1}));
  CHECK_FALSE(record("constant", {c}, c.value(), {}).needs_grad());
}

TEST_CASE("every output of an op has the dtype of its inputs") {
  Tape tape;
  const Var x = tape.input(f64({1}, {1}));
  CHECK_MESSAGE_HAS(
      tape.record_several("mixed", std::array{x},
                          {x.value(), Tensor::zeros({1}, DType::f32, Device::cpu)},
                          [](std::span<const Tensor>, Grads&) {}),
      "mixed: dtype or device of input 0 differs from the result's: f64[1]@cpu, f32[1]@cpu");
}

TEST_CASE("a gradient that backward has not computed yet is an error, not zero") {
  Tape tape;
  const Var x = tape.input(f64({3}, {1}));
  const Var y = square(x);
  CHECK_MESSAGE_HAS(tape.grad(x), "Tape::grad: Tape::backward has not ended on this tape");
  tape.backward(y);
  CHECK(tape.grad(x).to_vector() == std::vector<double>{6});
}

TEST_CASE("a gradient for an input that the op does not have is refused") {
  Tape tape;
  const Var x = tape.input(f64({1}));
  const Var y = record("wrong", {x}, x.value(), [](const Tensor& dy, Grads& g) { g.add(1, dy); });
  CHECK_MESSAGE_HAS(tape.backward(y), "wrong: backward asks for input 1 of 1");
}

TEST_CASE("backward says why it cannot start") {
  Tape tape;
  const Var x = tape.input(f64({1, 2})), c = tape.constant(f64({1}));
  const Var y = exp(x);
  CHECK_MESSAGE_HAS(tape.backward(y), "one element, got f64[2]@cpu");
  CHECK_MESSAGE_HAS(tape.backward(y, f64({1})), "cotangent f64[1]@cpu for output f64[2]@cpu");
  CHECK_MESSAGE_HAS(tape.backward(y, y.value().to(DType::f32)), "cotangent f32[2]@cpu");
  CHECK_MESSAGE_HAS(tape.backward(c), "depends on no parameter or input");
  CHECK_MESSAGE_HAS(tape.grad(y), "this is 'exp'");
  tape.backward(sum_all(y));
  CHECK_MESSAGE_HAS(tape.backward(sum_all(x)), "once per tape");
}
