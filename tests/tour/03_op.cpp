// An op of your own: its value, its derivative in a closure, and the proof
#include "autograd/gradcheck.hpp"
#include "autograd/ops.hpp"
#include "autograd/tape_print.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tests/support/close.hpp"
#include "tests/support/doctest.hpp"
#include "tests/tour/tour.hpp"

using namespace skytape;
using tour::say;

namespace {

// An op computes its value with functions on plain tensors, and hands record() its name, its
// inputs, the value, and the derivative: a closure that turns dy = dloss/dy into gradients of the
// inputs. What the closure captures is what the op keeps in memory until backward.

/// y = log(1 + e^x), a smooth relu. Its derivative is 1 / (1 + e^-x) = 1 - e^-y, so that y is all
/// that needs to be kept.
Var softplus(Var x) {
  const Tensor y = tensor::unary(
      tensor::Unary::log, tensor::affine(tensor::unary(tensor::Unary::exp, x.value()), 1, 1));
  return record("softplus", {x}, y, [y](const Tensor& dy, Grads& g) {
    const Tensor falling = tensor::unary(tensor::Unary::exp, tensor::affine(y, -1));  // e^-y
    g.add(0, tensor::multiply(dy, tensor::affine(falling, -1, 1)));  // dx = dy (1 - e^-y)
  });
}

/// Squared distance of rows: a, b [N, D] -> [N].
Var row_distance(Var a, Var b) {
  ENSURE(a.shape() == b.shape() && a.shape().rank() == 2,
         "row_distance: expected a and b of one shape [N, D], got a ", a.value(), ", b ",
         b.value());
  const Tensor difference = tensor::subtract(a.value(), b.value());  // [N, D]
  return record("row_distance", {a, b}, tensor::row_dot(difference, difference),
                [difference](const Tensor& dy, Grads& g) {
                  const Tensor column = dy.reshape({dy.size(0), 1});            // [N, 1]
                  const Tensor da =                                             // [N, D]
                      tensor::affine(tensor::multiply(difference, column), 2);  // 2 dy (a - b)
                  g.add(0, da);
                  if (g.needs(1)) g.add(1, tensor::affine(da, -1));  // not for a constant b
                });
}

}  // namespace

TEST_CASE("tour 3: one node instead of three") {
  Tape composed, own;
  const Tensor x = test::random_tensor({2, 3});
  const Var a = composed.input(x), b = own.input(x);
  const Var y = log(affine(exp(a), 1, 1));
  const Var z = softplus(b);
  say("log(1 + e^x) of three ops:\n\n{}\n", to_text(composed));
  say("as a separate op, which keeps y until backward, not x and 1 + e^x:\n\n{}\n", to_text(own));
  CHECK(composed.size() == 4);
  CHECK(own.size() == 2);

  const Tensor cotangent = test::random_tensor({2, 3}, DType::f64, Device::cpu, 2);
  composed.backward(y, cotangent);
  own.backward(z, cotangent);
  CHECK(test::relative_error(z.value(), y.value()) < 1e-14);
  CHECK(test::relative_error(own.grad(b), composed.grad(a)) < 1e-14);
}

TEST_CASE("tour 3: the proof") {
  const GradcheckReport one =
      gradcheck([](Tape&, std::span<const Var> v) { return softplus(v[0]); },
                {test::random_tensor({4, 3})}, {}, {"x"});
  const GradcheckReport two = gradcheck(
      [](Tape&, std::span<const Var> v) { return row_distance(v[0], v[1]); },
      {test::random_tensor({4, 3}), test::random_tensor({4, 3}, DType::f64, Device::cpu, 2)}, {},
      {"a", "b"});
  say("softplus\n{}\nrow_distance\n{}\n", one.to_string(), two.to_string());
  CHECK(one.passed);
  CHECK(two.passed);
}

TEST_CASE("tour 3: an op says what it expected") {
  Tape tape;
  const Var a = tape.input(test::random_tensor({4, 3})),
            b = tape.input(test::random_tensor({5, 3}));
  const std::string text = test::error_text([&] { (void)row_distance(a, b); });
  say("Wrong shapes end in a sentence with the op, what it expects and what came:\n");
  for (const char* part : {"row_distance: expected a and b of one shape [N, D],",
                           "got a f64[4, 3]@cpu, b f64[5, 3]@cpu"}) {
    say("  {}\n", part);
    CHECK(text.find(part) != std::string::npos);
  }
  say("\nAn op of the library stands in autograd/ops_*.cpp, its kernel in a folder of tensor/.\n"
      "A row in tests/autograd/op_table_*.cpp brings it gradcheck, f32 and CUDA.\n");
}
