#include "autograd/tape.hpp"

#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "autograd/initial_values.hpp"
#include "autograd/observers.hpp"
#include "autograd/ops.hpp"
#include "autograd/tape_print.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tests/support/check_error.hpp"
#include "tests/support/doctest.hpp"
#include "tests/support/numbers.hpp"
#ifdef SKYTAPE_CUDA_SIMULATED
#include "tests/cuda_simulator/simulator.hpp"
#endif

using namespace skytape;
using test::f64;

namespace {

using Values = std::vector<double>;

/// y = x with a closure that holds `saved` and runs `then`.
Var watched(Var x, const std::shared_ptr<int>& saved, const std::function<void()>& then = {}) {
  return record("watched", {x}, x.value(), [saved, then](const Tensor& dy, Grads& g) {
    if (then) then();
    g.add(0, dy);
  });
}

ParameterStore& packed(ParameterStore& store) {
  store.pack(DType::f64, Device::cpu, 1);
  return store;
}

}  // namespace

// ---- accumulation -------------------------------------------------------------------------------

TEST_CASE("gradients of a value that is used several times add up") {
  Tape tape;
  const Var x = tape.input(f64({2, -3}));
  tape.backward(sum_all(x * x + x + square(x)));  // d/dx = 2x + 1 + 2x
  CHECK(tape.grad(x).to_vector() == Values{9, -11});
}

TEST_CASE("a gradient that is shared between inputs is never written into") {
  Tape tape;
  const Var a = tape.input(f64({1, 1})), b = tape.input(f64({1, 1}));
  const Var c = sum_all(affine(b, 5)), d = sum_all(affine(b, 3)), e = sum_all(affine(a, 2));
  const Var f = sum_all(a + b);  // walked first: hands one tensor to a and to b
  tape.backward(c + d + e + f);
  CHECK(tape.grad(a).to_vector() == Values{3, 3});
  CHECK(tape.grad(b).to_vector() == Values{9, 9});
}

TEST_CASE("an op may hand the same tensor to both of its uses of one input") {
  Tape tape;
  const Var x = tape.input(f64({1, 2}));
  tape.backward(sum_all(x + x));
  CHECK(tape.grad(x).to_vector() == Values{2, 2});
}

TEST_CASE("the cotangent is only read") {
  const Tensor cotangent = f64({10, 20});
  Tape tape;
  const Var x = tape.input(f64({1, 2}));
  const Var y = reshape(x, {1, 2});  // its gradient is a view of the cotangent
  const Var z = reshape(y, {2});
  (void)(x + x);  // unreached
  tape.backward(z, cotangent);
  CHECK(tape.grad(x).to_vector() == Values{10, 20});
  CHECK(cotangent.to_vector() == Values{10, 20});

  Tape again;
  const Var v = again.input(f64({1, 2}));
  again.backward(v + affine(v, 2) + affine(v, 3), cotangent);
  CHECK(again.grad(v).to_vector() == Values{60, 120});
  CHECK(cotangent.to_vector() == Values{10, 20});
}

TEST_CASE("the first gradient is kept without a copy") {
  const Tensor cotangent = f64({1, 2});
  Tape tape;
  const Var x = tape.input(f64({3, 4}));
  tape.backward(watched(x, nullptr), cotangent);
  CHECK(tape.grad(x).raw() == cotangent.raw());
}

TEST_CASE("an undefined gradient means zero") {
  Tape tape;
  const Var x = tape.input(f64({1}));
  const Var y =
      record("nothing", {x}, x.value(), [](const Tensor&, Grads& g) { g.add(0, Tensor()); });
  tape.backward(y);
  CHECK_FALSE(tape.grad(x).defined());
}

TEST_CASE("a parameter that is used twice receives both gradients") {
  ParameterStore store;
  Parameter& p = store.add("p", {2}, constant_init(3));
  packed(store);
  Tape tape;
  tape.backward(sum_all(tape.parameter(p) * tape.parameter(p)));
  CHECK(p.grad.to_vector() == Values{6, 6});
  CHECK(p.has_gradient);
}

#ifdef SKYTAPE_CUDA_SIMULATED
TEST_CASE("gradients of many small parameters are added by one kernel, large ones before the end") {
  const auto kernels = [](const Shape& shape) {
    const cuda_simulator::LaunchesOnly only;
    ParameterStore store;
    for (const char* const name : {"a", "b", "c", "d", "e"}) {
      store.add(name, shape, constant_init(1));
    }
    store.pack(DType::f64, Device::cuda, 1);
    Tape tape;
    std::vector<Var> leaves;
    for (Parameter& p : store.parameters()) leaves.push_back(tape.parameter(p));
    const Tensor none = Tensor::empty({0}, DType::f64, Device::cuda);
    const Var all = tape.record("all", leaves, none, [&](const Tensor&, Grads& g) {
      for (int i = 0; i < 5; ++i) g.add(i, Tensor::empty(shape, DType::f64, Device::cuda));
    });
    const std::int64_t before = cuda_simulator::LaunchesOnly::kernels();
    tape.backward(all, none);
    return cuda_simulator::LaunchesOnly::kernels() - before;
  };
  CHECK(kernels({7}) == 1);
  CHECK(kernels({9, 1 << 14}) == 5);  // 1.2 MB each
}
#endif

TEST_CASE("gradients of many parameters reach theirs, large ones before the end") {
  for (const Shape& shape : {Shape{7}, Shape{9, 1 << 14}}) {
    ParameterStore store;
    for (const char* const name : {"a", "b", "c", "d", "e"}) {
      store.add(name, shape, constant_init(1));
    }
    packed(store);
    Tape tape;
    std::vector<Var> leaves;
    for (Parameter& p : store.parameters()) leaves.push_back(tape.parameter(p));
    const Var all = tape.record("all", leaves, f64({0}, {}), [&](const Tensor&, Grads& g) {
      for (int i = 0; i < 5; ++i) g.add(i, Tensor::full(shape, i, DType::f64, Device::cpu));
    });
    tape.backward(all);
    double i = 0;
    for (const Parameter& p : store.parameters()) {
      CHECK(p.grad.to_vector() == Values(static_cast<std::size_t>(shape.numel()), i++));
    }
  }
}

TEST_CASE("a parameter's gradient adds up over tapes until it is zeroed") {
  ParameterStore store;
  Parameter& p = store.add("p", {2}, constant_init(3));
  Parameter& unused = store.add("unused", {2}, constant_init(3));
  packed(store);
  for (int step = 0; step < 3; ++step) {
    Tape tape;
    tape.backward(sum_all(square(tape.parameter(p))), f64({0.5}, {}));
  }
  CHECK(p.grad.to_vector() == Values{9, 9});
  CHECK_FALSE(unused.has_gradient);
  store.zero_gradients();
  CHECK(p.grad.to_vector() == Values{0, 0});
  CHECK_FALSE(p.has_gradient);
}

TEST_CASE("a constant buffer and a constant receive no gradient and stop the walk") {
  ParameterStore store;
  Parameter& buffer = store.add("buffer", {2}, constant_init(3), false);
  packed(store);
  Tape tape;
  const Var x = tape.input(f64({1, 2}));
  const Var b = tape.parameter(buffer), c = tape.constant(f64({5, 7}));
  CHECK_FALSE(b.needs_grad());
  CHECK_FALSE((b * c).needs_grad());
  bool asked = false;
  const Var y = record("ask", {x, b, Var()}, x.value(), [&](const Tensor& dy, Grads& g) {
    asked = g.needs(0) && !g.needs(1) && !g.needs(2);
    g.add(0, dy);
    g.add(1, dy);  // not needed: dropped
    g.add(2, dy);  // absent: dropped
  });
  tape.backward(sum_all(y * c));
  CHECK(asked);
  CHECK(tape.grad(x).to_vector() == Values{5, 7});
}

TEST_CASE("an input leaf may be the output") {
  Tape tape;
  const Var x = tape.input(f64({4}));
  tape.backward(x);
  CHECK(tape.grad(x).to_vector() == Values{1});
}

TEST_CASE("rows reach the gradient of a table that is trained, and a constant table has none") {
  ParameterStore store;
  Parameter& table = store.add("table", {4, 1}, constant_init(0));
  Parameter& constant = store.add("constant", {4, 1}, constant_init(0), false);
  store.pack(DType::f64, Device::cpu, 1);
  for (Parameter* const p : {&table, &constant}) {
    Tape tape;
    const Var x = tape.input(f64({1}, {1}));
    const Tensor at = Tensor::from(std::vector<int>{3, 1, 3}, {3}, DType::i32, Device::cpu);
    const Var y =
        record("look_up", {x, tape.parameter(*p)}, f64({1}, {1}), [=](const Tensor& dy, Grads& g) {
          g.add(0, dy);
          g.add_rows(1, at, f64({2, 5, 4}, {3, 1}));
        });
    tape.backward(y);
  }
  CHECK(table.has_gradient);
  CHECK(table.grad.to_vector() == std::vector<double>{0, 5, 0, 6});
  CHECK_FALSE(constant.has_gradient);
}

// ---- memory -------------------------------------------------------------------------------------

TEST_CASE("nodes release what they saved as they are consumed") {
  Tape tape;
  auto first = std::make_shared<int>(), second = std::make_shared<int>();
  const std::weak_ptr<int> first_saved = first, second_saved = second;
  bool second_gone = false, first_held = false;
  const Var x = tape.input(f64({1}));
  const Var y = watched(x, first, [&] {
    second_gone = second_saved.expired();
    first_held = !first_saved.expired();
  });
  const Var z = watched(y, second);
  first.reset();
  second.reset();
  CHECK_FALSE(first_saved.expired());
  tape.backward(z);
  CHECK(second_gone);
  CHECK(first_held);
  CHECK(first_saved.expired());
}

TEST_CASE("nodes that the output does not depend on release their closures unused") {
  Tape tape;
  auto saved = std::make_shared<int>();
  const std::weak_ptr<int> watch = saved;
  bool ran = false;
  const Var x = tape.input(f64({1}));
  (void)watched(x, saved, [&] { ran = true; });
  saved.reset();
  tape.backward(affine(x, 2));
  CHECK(watch.expired());
  CHECK_FALSE(ran);
}

TEST_CASE("backward releases values between leaves and output, and says so when they are read") {
  Tape tape;
  const Var x = tape.input(f64({1, 2}));
  const Var y = exp(x);
  const Var z = sum_all(y);
  tape.backward(z);
  CHECK(x.value().numel() == 2);
  CHECK(z.value().numel() == 1);
  CHECK_MESSAGE_HAS(y.value(), "exp: its value was released by Tape::backward or release_since");
}

TEST_CASE("references to values survive a growing tape") {
  Tape tape;
  const Var x = tape.input(f64({1}));
  const Tensor* const before = &x.value();
  Var y = x;
  for (int i = 0; i < 1000; ++i) y = affine(y, 1, 1);
  CHECK(&x.value() == before);
  CHECK(y.value().item() == 1001);
}

TEST_CASE("in eval mode the values of a range of ops are released, but for those that are kept") {
  for (const Tape::Mode mode : {Tape::Mode::eval, Tape::Mode::train}) {
    Tape tape(mode);
    const Var x = tape.input(f64({3}, {1}));
    const Var before = square(x);
    const int first = tape.size();
    const Var inside = square(before), c = tape.constant(f64({1}, {1})), kept = inside + c;
    tape.release_since(first, std::array{kept, Var()});
    CHECK(before.value().item() == 9);
    CHECK(c.value().item() == 1);
    CHECK(kept.value().item() == 82);
    if (mode == Tape::Mode::train) {
      CHECK(inside.value().item() == 81);
    } else {
      CHECK_MESSAGE_HAS(inside.value(), "square: its value was released");
    }
    CHECK((kept + before).value().item() == 91);
  }
}

// ---- modes --------------------------------------------------------------------------------------

TEST_CASE("eval mode computes the same values and records no backward") {
  Tape tape(Tape::Mode::eval);
  auto saved = std::make_shared<int>();
  const std::weak_ptr<int> watch = saved;
  ParameterStore store;
  Parameter& p = store.add("p", {}, constant_init(3));
  packed(store);
  const Var x = tape.input(f64({2}, {}));
  const Var y = watched(x * tape.parameter(p), saved);
  saved.reset();
  CHECK(watch.expired());
  CHECK(y.value().item() == 6);
  CHECK_FALSE(y.needs_grad());
  CHECK_MESSAGE_HAS(tape.backward(y), "eval mode");
}

TEST_CASE("names lists every node in order") {
  Tape tape;
  const Var x = tape.input(f64({1, 2}));
  (void)sum_all(exp(x) * x);
  CHECK(names(tape) == std::vector<std::string>{"leaf", "exp", "multiply", "sum_all"});
}

TEST_CASE("a finite check names the first op whose output is not finite") {
  Tape tape;
  tape.observe(finite_check());
  const Var x = tape.input(f64({-1, 0}));
  const Var y = square(x);
  CHECK_THROWS_AS((void)log(y), NonFiniteError);
  CHECK_MESSAGE_HAS(log(y), "log: output f64[2]@cpu is not finite");
}

TEST_CASE("a finite check names the first op whose gradient is not finite") {
  Tape tape;
  tape.observe(finite_check());
  const Var x = tape.input(f64({1, 0}));
  const Var y = affine(sqrt(affine(x, 2)), 3);  // finite, but its slope at zero is not
  CHECK_MESSAGE_HAS(tape.backward(sum_all(y)), "sqrt: gradient f64[2]@cpu of input 0");
}

TEST_CASE("a finite check names a parameter that is not finite") {
  ParameterStore store;
  Parameter& p = store.add("layer.weight", {2}, constant_init(1));
  packed(store);
  p.value.data<double>()[1] = std::nan("");
  Tape tape;
  tape.observe(finite_check());
  CHECK_MESSAGE_HAS(tape.parameter(p), "parameter layer.weight");
}

TEST_CASE("an op of several outputs runs backward once, with undefined gradients of unread ones") {
  for (const bool reads_second : {true, false}) {
    Tape tape;
    const Var x = tape.input(f64({1, 2}));
    int calls = 0;
    const std::vector<Var> y = tape.record_several(
        "both", std::array{x}, {x.value(), tensor::affine(x.value(), 3), x.value()},
        [&](std::span<const Tensor> dy, Grads& g) {
          ++calls;
          CHECK(dy[0].defined());
          CHECK(dy[1].defined() == reads_second);
          CHECK_FALSE(dy[2].defined());
          g.add(0, dy[0]);
          if (dy[1].defined()) g.add(0, tensor::affine(dy[1], 3));
        });
    CHECK(y[1].value().to_vector() == std::vector<double>{3, 6});
    CHECK(names(tape) == std::vector<std::string>{"leaf", "both"});
    const Var sum = affine(y[0], 10);
    tape.backward(sum_all(reads_second ? sum + y[1] : sum));
    CHECK(calls == 1);
    CHECK(tape.grad(x).to_vector() == std::vector<double>(2, reads_second ? 13 : 10));
  }
  Tape tape;
  const Var x = tape.input(f64({1}));
  CHECK_MESSAGE_HAS(tape.record_several("none", std::array{x}, {}, {}),
                    "none: expected at least one output");
}

TEST_CASE("observers see each event in order, one after the other") {
  ParameterStore store;
  Parameter& p = store.add("p", {2}, constant_init(3));
  packed(store);
  Tape tape;
  std::string seen;
  for (const char* const who : {"a", "b"}) {
    tape.observe([&seen, who](const TapeEvent& event) {
      const char* const kinds[] = {"leaf", "output", "gradient", "backward"};
      seen += join(who, ' ', kinds[static_cast<int>(event.kind)], ' ', event.op, ' ', event.node,
                   ' ', event.index, '\n');
    });
  }
  const Var x = tape.input(f64({1, 2}));
  const Var y = x * tape.parameter(p);
  tape.backward(y, f64({1, 1}));
  std::string expected;
  for (const char* const event :
       {"leaf p 1 0", "output multiply 2 0", "gradient multiply 2 0", "gradient multiply 2 1",
        "backward multiply 2 0", "backward gradients 2 0"}) {
    expected += join("a ", event, "\nb ", event, '\n');
  }
  CHECK(seen == expected);
}

TEST_CASE("an observer that adds what waits reads gradients while backward goes on") {
  ParameterStore store;
  Parameter& early = store.add("early", {2}, constant_init(3));
  Parameter& late = store.add("late", {2}, constant_init(5));
  packed(store);
  Tape tape;
  const Var x = tape.input(f64({1, 2})) * tape.parameter(early);
  const Var y = x * tape.parameter(late);
  std::vector<std::vector<double>> seen;  // gradients of early and late, before and after adding
  tape.observe([&](const TapeEvent& event) {
    if (event.kind != TapeEvent::Kind::backward) return;
    for (const bool add : {false, true}) {
      if (add) tape.add_waiting_gradients();
      for (const Parameter* p : {&early, &late}) seen.push_back(p->grad.to_vector());
    }
  });
  tape.backward(y, f64({1, 1}));
  using Rows = std::vector<std::vector<double>>;
  CHECK(seen == Rows{{0, 0}, {0, 0}, {0, 0}, {3, 6}, {0, 0}, {3, 6}, {5, 10}, {3, 6}});
}

TEST_CASE("the time of an op is that of its forward and backward, under its name") {
  Tape tape;
  OpSeconds seconds;
  tape.observe(op_timer(seconds));
  const auto rest = [] { std::this_thread::sleep_for(std::chrono::milliseconds(4)); };
  const Var x = tape.input(f64({1, 2}));
  rest();
  const Var y = record("slow", {x}, x.value(), [&](const Tensor& dy, Grads& g) {
    rest();
    g.add(0, dy);
  });
  tape.backward(sum_all(y));
  CHECK(seconds.size() == 2);  // and the sum
  CHECK(seconds.at("slow") > 0.008);
}
