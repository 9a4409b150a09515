// Gradcheck: a right derivative, a wrong one, and how to read the report
#include "autograd/gradcheck.hpp"

#include <cmath>

#include "autograd/ops.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tests/support/doctest.hpp"
#include "tests/tour/tour.hpp"

using namespace skytape;
using tour::say;

namespace {

/// y = x² with the derivative dy · factor · x; 2 is the right factor.
Var square_with(Var x, double factor) {
  return record("square_with", {x}, tensor::multiply(x.value(), x.value()),
                [x = x.value(), factor](const Tensor& dy, Grads& g) {
                  g.add(0, tensor::affine(tensor::multiply(dy, x), factor));
                });
}

}  // namespace

TEST_CASE("tour 2: a right derivative and a wrong one") {
  const Tensor a = tour::tensor_of({0.5, -1, 2}, {3}), b = tour::tensor_of({3, 1, -2}, {3});
  // A function takes Vars and returns one. gradcheck moves every number of every input by ±h (of
  // large inputs, 16 random directions), computes the function again, and compares the slope with
  // what backward says.
  const auto f_with = [](double factor) {
    return [factor](Tape&, std::span<const Var> x) { return square_with(x[0], factor) * x[1]; };
  };

  const GradcheckReport right = gradcheck(f_with(2), {a, b}, {}, {"a", "b"});
  say("f(a, b) = a² b, with the right derivative of a²:\n\n{}\n", right.to_string());
  CHECK(right.passed);
  CHECK(right.worst < 1e-8);

  const GradcheckReport wrong = gradcheck(f_with(1), {a, b}, {}, {"a", "b"});
  say("The same, where the derivative of a² forgot its factor of 2:\n\n{}\n", wrong.to_string());
  say("How to read it: each line is one input, and its worst entry.\n"
      "  index     which entry; \"direction\" for large inputs, moved all at once\n"
      "  analytic  what backward says        numeric   (f(x + h) - f(x - h)) / 2h\n"
      "  error     |analytic - numeric| / (1 + |numeric|)\n"
      "  skipped   entries where ±h would change a choice, as in top-k\n"
      "The input \"a\" fails and \"b\" passes: the fault lies on the way to a. The analytic\n"
      "number is half of the numeric one: a factor is missing, not a term.\n\n");
  CHECK_FALSE(wrong.passed);
  CHECK(wrong.inputs[0].analytic / wrong.inputs[0].numeric == doctest::Approx(0.5));
  CHECK(wrong.inputs[1].error < 1e-8);
}

TEST_CASE("tour 2: why the cotangent is random") {
  // backward starts from dloss/df, the cotangent C: gradcheck checks the gradient of sum(f C). All
  // ones would be a poor choice: softmax sums to one whatever x is, its gradient would be zero, and
  // a backward that returns zeros would pass.
  const Tensor x = tour::tensor_of({1, 2, -1}, {3});
  Tape ones;
  const Var v = ones.input(x);
  ones.backward(sum_all(softmax(v)));
  double largest = 0;
  for (const double slope : ones.grad(v).to_vector()) largest = std::max(largest, std::abs(slope));
  say("Largest gradient of sum(softmax(x)): {:.0e}. A backward of zeros would pass.\n", largest);
  CHECK(largest < 1e-15);

  const Function zeros = [](Tape&, std::span<const Var> in) {
    return record("softmax_without_gradient", {in[0]}, softmax(in[0]).value(),
                  [](const Tensor& dy, Grads& g) { g.add(0, zeros_like(dy)); });
  };
  const GradcheckReport report = gradcheck(zeros, {x}, {}, {"x"});
  say("With gradcheck's random dloss/df the same backward has error {:.2f}.\n", report.worst);
  CHECK(report.worst > 0.05);
}

TEST_CASE("tour 2: why h is 1e-6 and numbers are f64") {
  // The error of (f(x + h) - f(x - h)) / 2h is about h² from the third derivative, and 1e-16 / h
  // from rounding. They are equal at h = 5e-6, and 1e-6 leaves room for larger third derivatives.
  // In f32 the rounding part is 1e-7 / h: at its best h = 5e-3, errors below about 1e-4 would not
  // show.
  say("\nError of the numeric slope of exp at 1:\n       h      error\n");
  const auto error_at = [](double h) {
    const double slope = (std::exp(1 + h) - std::exp(1 - h)) / (2 * h);
    say("{:8.0e}   {:.1e}\n", h, std::abs(slope - std::exp(1)));
    return std::abs(slope - std::exp(1));
  };
  CHECK(error_at(1e-2) > 1e-5);
  CHECK(error_at(1e-4) > 1e-9);
  CHECK(error_at(1e-6) < 1e-8);
  CHECK(error_at(1e-12) > 1e-6);
}
