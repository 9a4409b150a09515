// Sinkhorn normalisation: sums, absent blocks, temperature, and the derivative through its steps.
#include "attention/sinkhorn/sinkhorn.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "autograd/gradcheck.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tensor/movement/layout.hpp"
#include "tests/attention/methods_support.hpp"
#include "tests/support/close.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/doctest.hpp"

namespace skytape::test {
namespace {

/// Largest difference of an entry from one.
double distance_from_one(const Tensor& sums) {
  double worst = 0;
  for (const double x : sums.to_vector()) worst = std::max(worst, std::abs(x - 1));
  return worst;
}

Tensor all_present(std::int64_t batch, std::int64_t size) {
  return Tensor::full({batch, size}, 1, DType::f64, Device::cpu);
}

}  // namespace

TEST_CASE("columns sum to one after every step, and rows come to do so") {
  const Tensor scores =
      attention::sinkhorn_scores(random_tensor({2, 2, 7, 7}), {}, all_present(2, 7), 0.75);
  double before = 1e9;
  for (const std::int64_t steps : {1, 2, 4, 8}) {
    const Tensor matrix = attention::sinkhorn(scores, steps).matrix;
    CHECK(distance_from_one(tensor::sum(matrix, 2)) < 1e-14);
    const double rows = distance_from_one(tensor::sum(matrix, 3));
    CHECK(rows < before);
    before = rows;
  }
  const Tensor matrix = attention::sinkhorn(scores, 60).matrix;
  CHECK(distance_from_one(tensor::sum(matrix, 3)) < 1e-9);  // doubly stochastic
}

TEST_CASE("a low temperature makes a permutation") {
  // Row i wants column (2 i + 1) mod 5 a little more than the others.
  std::vector<double> wish(25);
  for (std::size_t i = 0; i < 5; ++i) wish[i * 5 + (2 * i + 1) % 5] = 0.5;
  const Tensor scores = attention::sinkhorn_scores(
      Tensor::from(wish, {1, 1, 5, 5}, DType::f64, Device::cpu), {}, all_present(1, 5), 0.02);
  const std::vector<double> matrix = attention::sinkhorn(scores, 5).matrix.to_vector();
  for (std::size_t e = 0; e < 25; ++e) {
    CHECK(matrix[e] == doctest::Approx(wish[e] > 0 ? 1 : 0).epsilon(1e-9));
  }
}

TEST_CASE("absent blocks are left to themselves, noise and all") {
  const Tensor present =
      Tensor::from(std::vector<double>{1, 0, 1, 1, 0}, {1, 5}, DType::f64, Device::cpu);
  const Tensor s = random_tensor({1, 2, 5, 5}), noise = random_tensor({1, 2, 5, 5});
  for_each_device([&](Device device) {
    const Tensor scores =
        attention::sinkhorn_scores(s.to(device), noise.to(device), present.to(device), 1);
    const std::vector<double> matrix = attention::sinkhorn(scores, 300).matrix.to_vector();
    for (std::size_t h = 0; h < 2; ++h) {
      double row = 0;
      for (std::size_t j = 0; j < 5; ++j) {
        CHECK(matrix[(h * 5 + 1) * 5 + j] == (j == 1 ? 1 : 0));
        row += matrix[(h * 5 + 2) * 5 + j];
      }
      CHECK(row == doctest::Approx(1).epsilon(1e-6));
      CHECK(matrix[(h * 5 + 2) * 5 + 4] == 0);
    }
  });
}

TEST_CASE("the gradient of the normalisation is right through one step and through many") {
  for (const std::int64_t steps : {1, 2, 5}) {
    const Function f = [&](Tape&, std::span<const Var> x) {
      const Tensor scores = x[0].value();
      const attention::SinkhornForward forward = attention::sinkhorn(scores, steps);
      return record("sinkhorn", {x[0]}, forward.matrix,
                    [scores, forward](const Tensor& dy, Grads& g) {
                      g.add(0, attention::sinkhorn_backward(scores, forward, dy));
                    });
    };
    const GradcheckReport report = gradcheck(f, {random_tensor({2, 1, 4, 4})});
    CHECK_MESSAGE(report.passed, report.to_string());
  }
}

TEST_CASE("a GPU's block takes a matrix through all steps as the CPU does") {
  if (!cuda_or_skip()) return;
  for (const std::int64_t size : {1, 5, 32, 45}) {
    for (const std::int64_t steps : {1, 3}) {
      CAPTURE(size);
      CAPTURE(steps);
      std::vector<double> there =
          random_tensor({2, size}, DType::f64, Device::cpu, 1, -0.3, 1).to_vector();
      for (double& x : there) x = x > 0 ? 1 : 0;
      const Shape shape{2, 2, size, size};
      const Tensor scores = attention::sinkhorn_scores(
          random_tensor(shape), {}, Tensor::from(there, {2, size}, DType::f64, Device::cpu), 0.5);
      const Tensor dmatrix = random_tensor(shape, DType::f64, Device::cpu, 2);
      const auto run = [&](DType dtype, Device device) {
        const Tensor s = scores.to(dtype).to(device), d = dmatrix.to(dtype).to(device);
        const attention::SinkhornForward forward = attention::sinkhorn(s, steps);
        return std::array{forward.matrix, attention::sinkhorn_backward(s, forward, d)};
      };
      const auto exact = run(DType::f64, Device::cpu);
      for (const DType dtype : {DType::f32, DType::f64}) {
        const auto plain = run(dtype, Device::cpu), got = run(dtype, Device::cuda);
        for (std::size_t i = 0; i < 2; ++i) {  // R, dS
          CHECK(relative_error(got[i], exact[i]) <=
                3 * relative_error(plain[i], exact[i]) + rounding(dtype));
        }
      }
    }
  }
}

TEST_CASE("scores that do not fit are an error that says what was expected") {
  CHECK(error_text([] {
          (void)attention::sinkhorn(random_tensor({1, 1, 3, 4}), 1);
        }).find("expected [B, H, Q, Q]") != std::string::npos);
  CHECK(error_text([] {
          (void)attention::sinkhorn_scores(random_tensor({1, 1, 3, 3}), {}, all_present(1, 4), 1);
        }).find("expected present [B, Q]") != std::string::npos);
}

TEST_CASE("noise is Gumbel's, in training alone, unless it is switched off") {
  const Spec& spec = attention::find("sinkhorn");
  const Sizes sizes{.batch = 4, .heads = 2, .n = 64, .width = 2};
  const Problem p = make_problem(spec, sizes, Padding::none);
  const auto drawn = [&](const char* gumbel, bool training) {
    const Layer layer = make_layer(spec, {{"block", "2"}, {"gumbel", gumbel}}, sizes, DType::f64);
    Call call = training_call(p.in);
    call.training = training;
    return layer.method->draw(p.in, call);
  };
  CHECK(drawn("0", true).all().empty());
  CHECK(drawn("1", false).all().empty());
  const std::vector<double> noise = drawn("1", true).get("gumbel").to_vector();
  const auto count = static_cast<double>(noise.size());
  CHECK(count == 4 * 2 * 32 * 32);
  double sum = 0, squares = 0;
  for (const double x : noise) {
    sum += x;
    squares += x * x;
  }
  const double mean = sum / count;
  CHECK(mean == doctest::Approx(0.5772).epsilon(0.1));                          // Euler's constant
  CHECK(squares / count - mean * mean == doctest::Approx(1.645).epsilon(0.1));  // pi^2 / 6
}

TEST_CASE("an example alone has no noise to draw, and asking for it is an error") {
  const Spec& spec = attention::find("sinkhorn");
  const Problem p = make_problem(spec, {}, Padding::none);
  Call call = training_call(p.in);
  call.alone = true;
  CHECK_THROWS_WITH_AS((void)make_layer(spec, {}, {}, DType::f64).method->draw(p.in, call),
                       doctest::Contains("sinkhorn: noise is training's"), Error);
}

TEST_CASE("places of a mixed block that no token has take no weight") {
  const Spec& spec = attention::find("sinkhorn");
  const Sizes sizes{.batch = 1, .heads = 2, .n = 20, .width = 3};
  Problem p = make_problem(spec, sizes, Padding::none);
  p.in.v.fill(1);
  for (std::int64_t i = 2; i < 20; ++i) p.in.mask.data<double>()[i] = 0;  // two tokens
  const Layer layer = make_layer(spec, {{"block", "5"}}, sizes, DType::f64);
  const Tensor out = tensor::narrow(at(run(layer, p, Call{}), "out"), 2, 0, 2);
  CHECK(relative_error(out, ones_like(out, out.shape())) < 1e-12);
}

}  // namespace skytape::test
