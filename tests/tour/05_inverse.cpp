// The iterative inverse: plain products, and why its gradient is that of the steps
#include <cmath>
#include <vector>

#include "attention/inverse/iterative_inverse.hpp"
#include "autograd/ops.hpp"
#include "tensor/gemm/gemm.hpp"
#include "tests/support/close.hpp"
#include "tests/support/doctest.hpp"
#include "tests/tour/tour.hpp"

using namespace skytape;
using tour::say;

namespace {

constexpr std::int64_t kL = 6;  // rows and columns

/// One step: V <- V (13 I - X (15 I - X (7 I - X))) / 4 with X = M V. Four products; where X = I
/// the bracket is 4 I and V stays. Newton's step is V (2 I - X); this one is of third order.
Var step(Var m, Var v, Var identity) {
  const Var x = matmul(m, v);
  const Var r = affine(identity, 15) - matmul(x, affine(identity, 7) - x);
  const Var p = affine(identity, 13) - matmul(x, r);
  return affine(matmul(v, p), 0.25);
}

/// V after `steps`, from V_0 = M^T / (largest column sum): all [L, L].
Var iterate(Var m, int steps) {
  std::vector<double> unit(kL * kL, 0.0);
  for (std::int64_t i = 0; i < kL; ++i) unit[i * kL + i] = 1;
  const Var identity = m.tape().constant(tour::tensor_of(unit, {kL, kL}));
  Var v = transpose(m) * reciprocal(max(sum(m, 0), 0));
  for (int t = 0; t < steps; ++t) v = step(m, v, identity);
  return v;
}

/// Gaussian kernel of landmarks on a line. Nearby ones have similar rows, so the matrix is hard to
/// invert. Rows and columns are divided by the roots of the row sums, as Skyformer does:
/// eigenvalues then lie in (0, 1].
Tensor kernel_of_landmarks() {
  const std::vector<double> at = {0, 0.8, 2.1, 3.2, 4, 5.3};
  std::vector<double> m(kL * kL), sums(kL, 0.0);
  for (std::int64_t i = 0; i < kL * kL; ++i) {
    const double distance = at[i / kL] - at[i % kL];
    m[i] = std::exp(-0.125 * distance * distance) + (distance == 0 ? 0.1 : 0);
    sums[i / kL] += m[i];
  }
  for (std::int64_t i = 0; i < kL * kL; ++i) m[i] /= std::sqrt(sums[i / kL] * sums[i % kL]);
  return tour::tensor_of(m, {kL, kL});
}

/// Slope of sum(V C) for each entry of M, from two evaluations; C is any matrix of weights.
std::vector<double> numeric_gradient(const Tensor& m, const Tensor& c, int steps) {
  const auto moved = [&](std::int64_t entry, double h) {
    const Tensor there = m.clone();
    there.data<double>()[entry] += h;
    Tape tape(Tape::Mode::eval);
    return sum_all(iterate(tape.input(there), steps) * tape.constant(c)).value().item();
  };
  constexpr double h = 1e-6;
  std::vector<double> slopes;
  for (std::int64_t i = 0; i < m.numel(); ++i) {
    slopes.push_back((moved(i, h) - moved(i, -h)) / (2 * h));
  }
  return slopes;
}

}  // namespace

TEST_CASE("tour 5: how fast the steps converge") {
  // An eigenvalue e of I - M V becomes e³ (3 + e) / 4: near zero it falls fast, near one slowly.
  // The largest belongs to the smallest eigenvalue of M, which has to grow first, by 3.25 a step.
  const Tensor m = kernel_of_landmarks();
  say("steps   |I - M V|\n");
  std::vector<double> residuals;
  for (int steps = 0; steps <= 12; ++steps) {
    Tape tape(Tape::Mode::eval);
    residuals.push_back(attention::inverse_residual(m, iterate(tape.input(m), steps).value()));
    say("{:5}   {:.2e}{}\n", steps, residuals.back(),
        steps == 6 ? "   <- Skyformer stops here" : "");
  }
  for (std::size_t t = 1; t < 10; ++t) CHECK(residuals[t] < residuals[t - 1]);
  CHECK(residuals[6] > 0.1);
  CHECK(residuals[12] < 1e-12);
  // Once the largest e outweighs the others, the residual itself follows the rule.
  const double e = residuals[8];
  CHECK(residuals[9] / (e * e * e * (3 + e) / 4) == doctest::Approx(1).epsilon(0.01));
  say("After six steps V is no inverse yet: what belongs to small eigenvalues of M is\n"
      "still damped. The six steps are part of the model, so its gradient must be that\n"
      "of the six steps.\n\n");
}

TEST_CASE("tour 5: the gradient of six steps, unrolled and implicit") {
  const Tensor m = kernel_of_landmarks();
  const Tensor c = test::random_tensor({kL, kL});
  say("Error of two gradients against differences of the function with as many steps,\n"
      "|gradient - difference| / (1 + |difference|), the worst entry:\n\n"
      "steps   |I - M V|   unrolled   implicit\n");
  std::vector<double> unrolled_errors, implicit_errors;
  for (const int steps : {6, 8, 10, 14}) {
    // Unrolled: the tape walks back through every step, and keeps them all.
    Tape tape;
    const Var leaf = tape.input(m);
    const Var v = iterate(leaf, steps);
    const Tensor z = v.value();
    tape.backward(sum_all(v * tape.constant(c)));
    const Tensor unrolled = tape.grad(leaf);

    // Implicit: as if V were the inverse, M V = I gives dM = -Vᵀ C Vᵀ. Two products, and only V is
    // kept.
    Tensor implicit = Tensor::empty({kL, kL}, DType::f64, Device::cpu);
    tensor::gemm(tensor::matmul(z, c, Op::transpose, Op::none), Op::none, z, Op::transpose,
                 implicit, -1, 0);

    const std::vector<double> numeric = numeric_gradient(m, c, steps);
    unrolled_errors.push_back(test::relative_error(unrolled, numeric));
    implicit_errors.push_back(test::relative_error(implicit, numeric));
    say("{:5}   {:.2e}    {:.1e}    {:.1e}\n", steps, attention::inverse_residual(m, z),
        unrolled_errors.back(), implicit_errors.back());

    // The library's inverse, with the same steps in a core's cache, and its hand-written backward.
    attention::InverseConfig config;
    config.steps = steps;
    attention::InverseSaved saved;
    CHECK(test::relative_error(attention::inverse_forward(m, config, saved), z) < 1e-9);
    CHECK(test::relative_error(attention::inverse_backward(saved, c), unrolled) < 1e-9);
  }
  for (const double error : unrolled_errors) CHECK(error < 1e-6);
  CHECK(implicit_errors.front() > 0.1);
  CHECK(implicit_errors.back() < 1e-6);
  say("\nAt six steps the implicit gradient is that of another function, the exact\n"
      "inverse: of no use here. Unrolled is right at any number of steps; implicit is\n"
      "cheaper, and right where the steps have converged.\n");
}
