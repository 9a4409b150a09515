// The checker is checked: right derivatives pass, each kind of wrong one fails.
#include "autograd/gradcheck.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include "autograd/initial_values.hpp"
#include "autograd/ops.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/norm/softmax.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;

namespace {

using Vars = std::span<const Var>;

Tensor normal(const Shape& shape, std::uint64_t seed = 1) {
  return tensor::normal(shape, Random{seed, {}}, DType::f64, Device::cpu);
}

/// y = x², with the derivative that `derivative` makes of the right one.
Function square_with(const std::function<void(Tensor& dx)>& derivative) {
  return [derivative](Tape&, Vars v) {
    const Tensor x = v[0].value();
    return record("square_with", {v[0]}, tensor::multiply(x, x),
                  [x, derivative](const Tensor& dy, Grads& g) {
                    Tensor dx = tensor::affine(tensor::multiply(dy, x), 2);
                    derivative(dx);
                    g.add(0, dx);
                  });
  };
}

}  // namespace

TEST_CASE("gradcheck passes a right derivative, coordinate by coordinate and by directions") {
  for (const Shape& shape : {Shape{7}, Shape{30, 30}}) {
    const auto report = gradcheck(square_with([](Tensor&) {}), {normal(shape)});
    CHECK_MESSAGE(report.passed, report.to_string());
    CHECK(report.worst < 1e-7);
    CHECK(report.inputs[0].checked == (shape.numel() < 500 ? shape.numel() : 16));
  }
}

TEST_CASE("gradcheck fails a wrong derivative") {
  for (const Shape& shape : {Shape{7}, Shape{30, 30}}) {
    const auto fails = [&](const std::function<void(Tensor&)>& wrong) {
      const auto report = gradcheck(square_with(wrong), {normal(shape)});
      CHECK_FALSE(report.passed);
      CHECK(report.worst > 1e-6);
    };
    fails([](Tensor& dx) { dx = tensor::affine(dx, -1); });          // sign
    fails([](Tensor& dx) { dx = tensor::affine(dx, 0.5); });         // factor
    fails([](Tensor& dx) { dx.fill(0); });                           // missing
    fails([](Tensor& dx) { dx.data<double>()[3] *= 1.001; });        // one coordinate, slightly
    fails([](Tensor& dx) { dx.data<double>()[3] = std::nan(""); });  // not a number
  }
}

TEST_CASE("each of gradcheck's directions is another one: what some cannot see, others do") {
  // Two coordinates off by as much: along every second direction, their errors cancel out.
  for (const std::int64_t other : {7, 100, 450, 899}) {
    for (const double sign : {1.0, -1.0}) {
      CAPTURE(other);
      CAPTURE(sign);
      const Function f = square_with([&](Tensor& dx) {
        dx.data<double>()[3] += 0.25;
        dx.data<double>()[other] += 0.25 * sign;
      });
      const Tensor ones = Tensor::full({900}, 0.5, DType::f64, Device::cpu);
      CHECK_FALSE(gradcheck(f, {ones}).passed);
    }
  }
}

TEST_CASE("gradcheck says of an output that is not finite that it is not") {
  const Function f = [](Tape&, Vars v) {
    Tensor y = v[0].value().clone();
    y.data<double>()[2] = std::nan("");
    return record("broken", {v[0]}, y, [](const Tensor& dy, Grads& g) { g.add(0, dy); });
  };
  try {
    (void)gradcheck(f, {normal({4})});
    FAIL("no error");
  } catch (const Error& error) {
    const std::string text = error.what();
    CHECK(text.find("output is not finite: entry 2 of [4] is nan") != std::string::npos);
    CHECK(text.find("random draws") == std::string::npos);
  }
}

TEST_CASE("gradcheck names the input, the index and both numbers of the worst coordinate") {
  const Function f = [](Tape&, Vars v) {
    return record("product", {v[0], v[1]}, tensor::multiply(v[0].value(), v[1].value()),
                  [a = v[0].value(), b = v[1].value()](const Tensor& dy, Grads& g) {
                    g.add(0, tensor::multiply(dy, b));
                    Tensor db = tensor::multiply(dy, a);
                    db.data<double>()[2] += 0.5;
                    g.add(1, db);
                  });
  };
  const auto report = gradcheck(f, {normal({4}), normal({4}, 2)}, {}, {"left", "right"});
  CHECK_FALSE(report.passed);
  CHECK(report.inputs[0].error < 1e-7);
  const GradcheckEntry& right = report.inputs[1];
  CHECK(right.input == "right");
  CHECK(right.index == 2);
  CHECK(right.analytic - right.numeric == doctest::Approx(0.5));
  CHECK(report.to_string().find("right") != std::string::npos);
  CHECK(report.to_string().find("FAILED") != std::string::npos);
}

TEST_CASE("the random cotangent sees a softmax derivative that ones cannot") {
  const Function f = [](Tape&, Vars v) {
    return record("softmax", {v[0]}, tensor::softmax(v[0].value()),
                  [](const Tensor& dy, Grads& g) { g.add(0, zeros_like(dy)); });
  };
  CHECK_FALSE(gradcheck(f, {normal({2, 5})}).passed);
}

TEST_CASE("gradcheck restores its inputs bit for bit, also when the function throws") {
  const Tensor x = normal({5});
  const std::vector<double> before = x.to_vector();
  CHECK(gradcheck(square_with([](Tensor&) {}), {x}).passed);
  CHECK(x.to_vector() == before);

  int calls = 0;
  const Function failing = [&calls](Tape&, Vars v) {
    ENSURE(++calls < 5, "failing: fifth call");
    return square(v[0]);
  };
  CHECK_THROWS_WITH_AS((void)gradcheck(failing, {x}), "failing: fifth call", Error);
  CHECK(x.to_vector() == before);
}

TEST_CASE("gradcheck perturbs parameters in place and leaves their gradients alone") {
  ParameterStore store;
  Parameter& w = store.add("w", {3, 4}, normal_init(1));
  Parameter& wrong = store.add("wrong", {3}, normal_init(1));
  store.pack(DType::f64, Device::cpu, 3);
  w.grad.fill(5);
  const std::vector<double> start = w.value.to_vector();
  const Function f = [&](Tape& tape, Vars v) {
    const Var halved =
        record("wrong", {tape.parameter(wrong)}, wrong.value,
               [](const Tensor& dy, Grads& g) { g.add(0, tensor::affine(dy, 0.5)); });
    return linear(v[0], tape.parameter(w), halved);
  };
  const std::vector<Parameter*> parameters = {&w, &wrong};
  const auto report = gradcheck(f, {normal({2, 4})}, {}, {"x"}, parameters);
  CHECK(report.inputs[0].error < 1e-7);
  CHECK(report.inputs[1].input == "w");
  CHECK(report.inputs[1].error < 1e-7);
  CHECK(report.inputs[1].checked == 12);
  CHECK(report.inputs[2].error > 1e-3);
  CHECK_FALSE(report.passed);
  CHECK(w.value.to_vector() == start);
  CHECK(w.grad.to_vector() == std::vector<double>(12, 5.0));
  CHECK_FALSE(w.has_gradient);
}

TEST_CASE("coordinates where a step changes a discrete choice are skipped and counted") {
  // y = x · floor(x): jumps at x = 1, where floor is the choice.
  std::uint64_t choices = 0;
  const Function f = [&choices](Tape& tape, Vars v) {
    Tensor floors = v[0].value().clone();
    choices = 0;
    for (std::int64_t i = 0; i < floors.numel(); ++i) {
      double& x = floors.data<double>()[i];
      x = std::floor(x);
      choices = choices * 31 + static_cast<std::uint64_t>(x);
    }
    return v[0] * tape.constant(floors);
  };
  GradcheckOptions options;
  const Tensor x = Tensor::from<double>({0.5, 1.0, 2.5}, {3}, DType::f64, Device::cpu);
  CHECK_FALSE(gradcheck(f, {x}, options).passed);
  options.discrete_choices = [&choices] { return choices; };
  const auto report = gradcheck(f, {x}, options);
  CHECK(report.passed);
  CHECK(report.inputs[0].checked == 2);
  CHECK(report.inputs[0].skipped == 1);

  const Tensor kink = Tensor::from<double>({1.0}, {1}, DType::f64, Device::cpu);
  CHECK_FALSE(gradcheck(f, {kink}, options).passed);  // everything skipped is not a pass
}

TEST_CASE("a choice that changes on either side of a coordinate alone is enough to skip it") {
  bool positive = false;
  const Function f = [&positive](Tape&, Vars v) {
    positive = v[0].value().to_vector()[0] > 0;
    return affine(relu(v[0]), 3);
  };
  GradcheckOptions options;
  options.discrete_choices = [&positive] { return std::uint64_t{positive}; };
  for (const double near : {-0.5, 0.5}) {  // of a step
    const Tensor x = Tensor::from<double>({near * options.step}, {1}, DType::f64, Device::cpu);
    CHECK(gradcheck(f, {x}, options).inputs[0].skipped == 1);
  }
}

TEST_CASE("gradcheck steps as far as an input is large, and weighs errors by the slope") {
  const Function f = [](Tape&, Vars v) { return square(v[0]); };
  const Tensor x = Tensor::from<double>({3e6, -2e7}, {2}, DType::f64, Device::cpu);
  const GradcheckReport report = gradcheck(f, {x});
  CHECK_MESSAGE(report.passed, report.to_string());
}

TEST_CASE("one tensor may be several inputs, each of which is perturbed alone") {
  const Function f = [](Tape&, Vars v) { return square(v[0]) * v[1]; };
  const Tensor x = normal({3});
  const GradcheckReport report = gradcheck(f, {x, x});
  CHECK_MESSAGE(report.passed, report.to_string());
}

TEST_CASE("an input the output does not depend on has gradient zero") {
  const Function first = [](Tape&, Vars v) { return square(v[0]); };
  CHECK(gradcheck(first, {normal({3}), normal({2}, 2)}).passed);
  const Function none = [](Tape& tape, Vars) { return tape.constant(normal({2})); };
  CHECK(gradcheck(none, {normal({3})}).passed);
}

TEST_CASE("gradcheck refuses f32, functions that draw anew, and names that do not fit") {
  const Function f = [](Tape&, Vars v) { return square(v[0]); };
  CHECK_THROWS_WITH_AS((void)gradcheck({}, {normal({2})}), "gradcheck: the function is empty",
                       Error);
  CHECK_THROWS_WITH_AS((void)gradcheck(f, {}),
                       "gradcheck: expected an input or a parameter to differentiate by, got none",
                       Error);
  CHECK_THROWS_WITH_AS((void)gradcheck(f, {normal({2}).to(DType::f32)}),
                       doctest::Contains("input0 is f32[2]@cpu"), Error);
  CHECK_THROWS_WITH_AS((void)gradcheck(f, {normal({2})}, {}, {"a", "b"}),
                       doctest::Contains("1 inputs, but 2 names"), Error);
  ParameterStore store;
  Parameter* const buffer = &store.add("buffer", {2}, constant_init(1), false);
  store.pack(DType::f64, Device::cpu, 1);
  CHECK_THROWS_WITH_AS((void)gradcheck(f, {normal({2})}, {}, {}, {&buffer, 1}),
                       doctest::Contains("parameter buffer is a constant buffer"), Error);
  double draw = 0;
  const Function random = [&draw](Tape&, Vars v) { return affine(v[0], 1, ++draw); };
  CHECK_THROWS_WITH_AS((void)gradcheck(random, {normal({2})}), doctest::Contains("random draws"),
                       Error);
}
