// The iterative inverse and what is built on it.
#include "attention/inverse/iterative_inverse.hpp"

#include <cmath>

#include "attention/inverse/iterative_inverse_plan.hpp"
#include "attention/inverse/pseudo_inverse.hpp"
#include "attention/landmarks/scaled_inverse.hpp"
#include "autograd/gradcheck.hpp"
#include "autograd/ops.hpp"
#include "tensor/gemm/gemm.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/movement/layout.hpp"
#include "tensor/norm/softmax.hpp"
#include "tests/support/close.hpp"
#include "tests/support/doctest.hpp"

namespace skytape::test {
namespace {

using attention::inverse_backward;
using attention::inverse_forward;
using attention::InverseConfig;
using attention::InverseSaved;

/// Softmax matrices, as Nystromformer inverts them: [B, H, L, L], all entries positive.
Tensor softmax_matrices(const Shape& shape, DType dtype = DType::f64, std::uint64_t seed = 1) {
  return tensor::softmax(random_tensor(shape, dtype, Device::cpu, seed));
}

/// Well-conditioned matrices: 2 I plus entries in [0, 0.5 / L).
Tensor easy_matrices(const Shape& shape) {
  const double high = 0.5 / static_cast<double>(shape[-1]);
  return attention::shifted_identity(random_tensor(shape, DType::f64, Device::cpu, 3, 0, high), 1,
                                     2);
}

InverseConfig config_of(const char* start, const char* backward = "unrolled",
                        bool detach_start = false, std::int64_t steps = 6) {
  InverseConfig config;
  config.steps = steps;
  config.start = start;
  config.backward = backward;
  config.detach_start = detach_start;
  return config;
}

Tensor inverse(const Tensor& m, const InverseConfig& config) {
  InverseSaved saved;
  return inverse_forward(m, config, saved);
}

Tensor gradient(const Tensor& m, const InverseConfig& config, const Tensor& dz) {
  InverseSaved saved;
  (void)inverse_forward(m, config, saved);
  return inverse_backward(saved, dz);
}

Tensor reference_gradient(const Tensor& m, const InverseConfig& config, const Tensor& dz) {
  Tape tape;
  const Var x = tape.input(m);
  tape.backward(attention::inverse_reference(x, config), dz);
  return tape.grad(x);
}

}  // namespace

TEST_CASE("a converged iterative inverse times its matrix is the identity") {
  for (const char* start : {"official", "per_matrix"}) {
    const Tensor m = easy_matrices({2, 3, 7, 7});
    const Tensor z = inverse(m, config_of(start, "unrolled", false, 20));
    CHECK(attention::inverse_residual(m, z) < 1e-13);
  }
}

TEST_CASE("eigenvalues follow e^3 (3 + e) / 4") {
  // Diagonal matrices make the eigenvalues visible: the largest column sum is 1, so e = 1 - x^2.
  const Tensor m =
      Tensor::from(std::vector<double>{1, 0, 0, 0.3}, {1, 2, 2}, DType::f64, Device::cpu);
  double e = 1 - 0.09;
  for (std::int64_t steps = 1; steps <= 6; ++steps) {
    e = e * e * e * (3 + e) / 4;
    const Tensor z = inverse(m, config_of("per_matrix", "unrolled", false, steps));
    CHECK(1 - 0.3 * z.to_vector()[3] == doctest::Approx(e).epsilon(1e-12));
  }
}

TEST_CASE("the two starts differ on a batch and agree on one matrix") {
  const Tensor m = softmax_matrices({2, 2, 9, 9});
  CHECK(relative_error(inverse(m, config_of("official")), inverse(m, config_of("per_matrix"))) >
        1e-3);
  const Tensor one = m.reshape({4, 9, 9}).slice(0, 1);
  CHECK(relative_error(inverse(one, config_of("official")),
                       inverse(one, config_of("per_matrix"))) == 0);
}

TEST_CASE("forward and backward of the iterative inverse equal the composition of basic ops") {
  for (const std::int64_t size : {1, 2, 9, 33}) {
    const Tensor m = softmax_matrices({3, 2, size, size});
    const Tensor dz = random_tensor(m.shape(), DType::f64, Device::cpu, 5);
    for (const char* start : {"official", "per_matrix"}) {
      for (const bool constant : {false, true}) {
        const InverseConfig config = config_of(start, "unrolled", constant);
        CAPTURE(size);
        CAPTURE(start);
        CAPTURE(constant);
        Tape tape(Tape::Mode::eval);
        const Tensor expected = attention::inverse_reference(tape.input(m), config).value();
        CHECK(relative_error(inverse(m, config), expected) < 1e-11);
        CHECK(relative_error(gradient(m, config, dz), reference_gradient(m, config, dz)) < 1e-10);
      }
    }
  }
}

TEST_CASE("the unrolled gradient of few steps passes gradcheck, the start included") {
  for (const char* start : {"official", "per_matrix"}) {
    const InverseConfig config = config_of(start, "unrolled", false, 3);
    const GradcheckReport report = gradcheck(
        [&](Tape&, std::span<const Var> x) {
          InverseSaved saved;
          const Tensor z = inverse_forward(x[0].value(), config, saved);
          return record("inverse", {x[0]}, z, [saved](const Tensor& dz, Grads& g) {
            g.add(0, inverse_backward(saved, dz));
          });
        },
        {softmax_matrices({2, 2, 5, 5})});
    CHECK_MESSAGE(report.passed, report.to_string());
  }
}

TEST_CASE("with a constant start the gradient misses the start's share") {
  const Tensor m = softmax_matrices({2, 2, 5, 5});
  const Tensor dz = random_tensor(m.shape(), DType::f64, Device::cpu, 5);
  const Tensor whole = gradient(m, config_of("per_matrix"), dz);
  const Tensor without = gradient(m, config_of("per_matrix", "unrolled", true), dz);
  CHECK(relative_error(without, whole) > 1e-4);
}

TEST_CASE("once converged, implicit and constant-start gradients equal the unrolled one") {
  const Tensor m = easy_matrices({2, 2, 6, 6});
  const Tensor dz = random_tensor(m.shape(), DType::f64, Device::cpu, 5);
  const Tensor expected = gradient(m, config_of("per_matrix", "unrolled", false, 20), dz);
  CHECK(relative_error(gradient(m, config_of("per_matrix", "implicit", false, 20), dz), expected) <
        1e-10);
  CHECK(relative_error(gradient(m, config_of("per_matrix", "unrolled", true, 20), dz), expected) <
        1e-10);
  CHECK(relative_error(reference_gradient(m, config_of("per_matrix", "implicit", false, 20), dz),
                       expected) < 1e-10);
}

#ifndef NDEBUG
TEST_CASE("debug builds refuse the implicit gradient of an inverse that has not converged") {
  const Tensor m = softmax_matrices({1, 1, 9, 9});
  const std::string text =
      error_text([&] { (void)gradient(m, config_of("per_matrix", "implicit"), m); });
  CHECK(text.find("needs a converged inverse") != std::string::npos);
}
#endif

TEST_CASE("one matrix at a time and the whole batch at once give the same steps and gradients") {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const double limit = dtype == DType::f32 ? 2e-4 : 1e-11;
    const Tensor m = softmax_matrices({5, 17, 17}, dtype);
    const Tensor dz = random_tensor(m.shape(), dtype, Device::cpu, 8, -0.1, 0.1);
    attention::InverseTrace one = attention::empty_trace(tensor::transpose(m), 2);
    attention::InverseTrace all = attention::empty_trace(tensor::transpose(m), 2);
    attention::inverse_steps_on(Cpu{}, m, one);
    attention::inverse_steps_batched(m, all);
    CHECK(relative_error(one.iterates.back(), all.iterates.back()) < limit);

    Tensor dm1 = empty_like(m), dv1 = empty_like(m), dm2 = empty_like(m), dv2 = empty_like(m);
    attention::inverse_steps_backward_on(Cpu{}, m, one, dz, dm1, dv1);
    attention::inverse_steps_backward_batched(m, all, dz, dm2, dv2);
    CHECK(relative_error(dm1, dm2) < limit);
    CHECK(relative_error(dv1, dv2) < limit);
  }
}

TEST_CASE("a large matrix alone gives what it gives among others") {
  const Tensor one = softmax_matrices({1, 512, 512}, DType::f32);  // cut into tiles
  Tensor four = Tensor::empty({4, 512, 512}, DType::f32, Device::cpu);
  for (std::int64_t g = 0; g < 4; ++g) {  // one task each
    Tensor copy = four[g];
    copy.copy_from(one[0]);
  }
  const InverseConfig config = config_of("per_matrix", "unrolled", false, 1);
  const Tensor dz = random_tensor(four.shape(), DType::f32, Device::cpu, 5, -0.1, 0.1);
  CHECK(relative_error(inverse(one, config)[0], inverse(four, config)[3]) < 1e-5);
  CHECK(relative_error(gradient(one, config, dz.slice(0, 1))[0], gradient(four, config, dz)[0]) <
        1e-4);
}

TEST_CASE("the iterative inverse refuses what is no batch of square matrices") {
  const Tensor wide = random_tensor({2, 3, 4});
  CHECK(error_text([&] { (void)inverse(wide, {}); }).find("expected square matrices") !=
        std::string::npos);
  InverseConfig config;
  CHECK(error_text([&] {
          attention::assign("skyformer", config.options(), {{"inverse_start", "both"}});
        }).find("official|per_matrix") != std::string::npos);
}

TEST_CASE("an empty batch of matrices has an empty inverse") {
  const Tensor none = Tensor::zeros({0, 2, 3, 3}, DType::f32, Device::cpu);
  InverseSaved saved;
  CHECK(inverse_forward(none, {}, saved).shape() == none.shape());
  CHECK(inverse_backward(saved, none).shape() == none.shape());
}

TEST_CASE("the scaled inverse equals the composition of basic ops and passes gradcheck") {
  const InverseConfig config = config_of("per_matrix", "unrolled", false, 4);
  const Tensor m = random_tensor({2, 2, 6, 6}, DType::f64, Device::cpu, 1, 0.1, 1);
  const Tensor p = random_tensor({2, 2, 6, 3}, DType::f64, Device::cpu, 2);
  const auto scaled = [&](Tape&, std::span<const Var> x) {
    attention::ScaledInverseSaved saved;
    const Tensor t = attention::scaled_inverse_times(x[0].value(), x[1].value(), config, saved);
    return record("scaled_inverse", {x[0], x[1]}, t, [saved](const Tensor& dt, Grads& g) {
      attention::ScaledInverseGradients d = attention::scaled_inverse_backward(saved, dt);
      g.add(0, d.dm);
      g.add(1, d.dp);
    });
  };
  Tape tape;
  const Var a = tape.input(m), b = tape.input(p);
  const Var inputs[] = {a, b};
  CHECK(relative_error(scaled(tape, inputs).value(),
                       attention::scaled_inverse_reference(a, b, config).value()) < 1e-12);
  const GradcheckReport report = gradcheck(scaled, {m, p});
  CHECK_MESSAGE(report.passed, report.to_string());
}

TEST_CASE("the pseudo-inverse of a singular symmetric matrix satisfies Penrose's conditions") {
  const Tensor factor = random_tensor({2, 6, 3});                            // rank 3
  const Tensor m = tensor::matmul(factor, factor, Op::none, Op::transpose);  // [2, 6, 6]
  const Tensor z = attention::symmetric_pseudo_inverse(m);                   // [2, 6, 6]
  CHECK(relative_error(tensor::matmul(tensor::matmul(m, z), m), m) < 1e-10);
  CHECK(relative_error(tensor::matmul(tensor::matmul(z, m), z), z) < 1e-10);
  const Tensor projector = tensor::matmul(m, z);
  CHECK(relative_error(tensor::transpose(projector), projector) < 1e-10);
}

}  // namespace skytape::test
