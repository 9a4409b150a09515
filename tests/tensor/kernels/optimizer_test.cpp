#include "tensor/kernels/optimizer.hpp"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tensor/kernels/elementwise.hpp"
#include "tensor/random/random.hpp"
#include "tests/support/close.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;
using namespace skytape::tensor;
using namespace skytape::test;

namespace {

constexpr double kBeta2 = 0.999, kEpsilon = 1e-6;

Tensor draw(std::int64_t n, std::uint64_t key, DType dtype) {
  return normal({n}, Random{key, {}}, dtype, Device::cpu);
}

/// lr, β₁, 1 - β₁^t, √(1 - β₂^t).
Tensor hyper(double lr, double beta1, int t) {
  return Tensor::from(
      std::vector<double>{lr, beta1, 1 - std::pow(beta1, t), std::sqrt(1 - std::pow(kBeta2, t))},
      {4}, DType::f64, Device::cpu);
}

/// The update as optimizer.hpp states it, one number at a time.
struct Scalar {
  double value, m = 0, v = 0;
  void step(double g, double lr, double beta1, int t, double clip, double decay) {
    if (clip > 0) g = std::clamp(g, -clip, clip);
    value *= 1 - lr * decay;
    m = beta1 * m + (1 - beta1) * g;
    v = kBeta2 * v + (1 - kBeta2) * g * g;
    const double corrected = std::sqrt(v) / std::sqrt(1 - std::pow(kBeta2, t));
    value -= lr / (1 - std::pow(beta1, t)) * m / (corrected + kEpsilon);
  }
};

}  // namespace

TEST_CASE("three AdamW steps with cycled beta1 equal the scalar loop") {
  const double lr[] = {2e-4, 5e-3, 3.750005e-3}, beta1[] = {0.95, 0.85, 0.875};  // OneCycle's
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const std::int64_t n : {1, 255, 256, 257, 1000}) {
      for (const double clip : {0.0, 0.5}) {
        Tensor values = draw(n, 1, dtype);
        Tensor m = Tensor::zeros({n}, dtype, Device::cpu), v = m.clone();
        std::vector<Scalar> want;
        for (const double value : values.to_vector()) want.push_back({value});
        for (int t = 1; t <= 3; ++t) {
          const Tensor gradients = draw(n, static_cast<std::uint64_t>(10 + t), dtype);
          const std::vector<double> g = gradients.to_vector();
          adamw_step(values, gradients, m, v, 0, n, hyper(lr[t - 1], beta1[t - 1], t), clip, 0.01,
                     kBeta2, kEpsilon);
          CHECK(gradients.to_vector() == g);
          for (std::size_t i = 0; i < want.size(); ++i) {
            want[i].step(g[i], lr[t - 1], beta1[t - 1], t, clip, 0.01);
          }
        }
        const double tolerance = dtype == DType::f32 ? 2e-6 : 1e-13;
        const std::vector<double> got = values.to_vector(), got_m = m.to_vector();
        const std::vector<double> got_v = v.to_vector();
        for (std::size_t i = 0; i < want.size(); ++i) {
          REQUIRE(got[i] == doctest::Approx(want[i].value).epsilon(tolerance));
          REQUIRE(got_m[i] == doctest::Approx(want[i].m).epsilon(tolerance));
          REQUIRE(got_v[i] == doctest::Approx(want[i].v).epsilon(tolerance).scale(1e-3));
        }
      }
    }
  }
}

TEST_CASE("the first AdamW step moves by lr against the sign of the gradient") {
  Tensor values = Tensor::zeros({3}, DType::f64, Device::cpu);
  Tensor m = values.clone(), v = values.clone();
  const Tensor gradients =
      Tensor::from(std::vector<double>{7, -0.5, 0}, {3}, DType::f64, Device::cpu);
  adamw_step(values, gradients, m, v, 0, 3, hyper(0.1, 0.9, 1), 0, 0, kBeta2, kEpsilon);
  CHECK(values.to_vector()[0] == doctest::Approx(-0.1).epsilon(1e-5));
  CHECK(values.to_vector()[1] == doctest::Approx(0.1).epsilon(1e-5));
  CHECK(values.to_vector()[2] == 0);
}

TEST_CASE("weight decay is decoupled: without a gradient values shrink by 1 - lr wd") {
  Tensor values = Tensor::full({2}, 3, DType::f64, Device::cpu);
  Tensor m = Tensor::zeros({2}, DType::f64, Device::cpu), v = m.clone();
  adamw_step(values, m.clone(), m, v, 0, 2, hyper(0.5, 0.9, 1), 1, 0.1, kBeta2, kEpsilon);
  CHECK(values.to_vector()[0] == doctest::Approx(3 * 0.95).epsilon(1e-15));
}

TEST_CASE("AdamW touches its range only") {
  Tensor values = draw(600, 1, DType::f32), m = draw(600, 2, DType::f32);
  Tensor v = Tensor::full({600}, 1, DType::f32, Device::cpu);
  const Tensor before = values.clone(), m_before = m.clone();
  adamw_step(values, draw(600, 3, DType::f32), m, v, 16, 300, hyper(0.1, 0.9, 1), 1, 0, kBeta2,
             kEpsilon);
  for (const auto& [begin, end] : {std::pair<int, int>{0, 16}, {300, 600}}) {
    CHECK(values.slice(begin, end).to_vector() == before.slice(begin, end).to_vector());
    CHECK(m.slice(begin, end).to_vector() == m_before.slice(begin, end).to_vector());
    CHECK(v.slice(begin, end).to_vector() ==
          std::vector<double>(static_cast<std::size_t>(end - begin), 1.0));
  }
  CHECK(values.slice(16, 300).to_vector() != before.slice(16, 300).to_vector());
  const std::vector<double> now = values.to_vector();
  adamw_step(values, before, m, v, 40, 40, hyper(0.1, 0.9, 1), 1, 0, kBeta2, kEpsilon);
  CHECK(values.to_vector() == now);
}

TEST_CASE("AdamW on a GPU is the CPU's: in fours or one by one, for small and large models") {
  if (!cuda_or_skip()) return;
  struct Range {
    std::int64_t size, begin, end;
  };
  const std::int64_t large = (std::int64_t{1} << 21) + 513;  // warps have 512 numbers
  for (const auto [size, begin, end] :
       {Range{1, 0, 1}, {300, 0, 256}, {300, 4, 299}, {300, 3, 259}, {large + 4, 4, large + 4}}) {
    CAPTURE(size);
    CAPTURE(begin);
    const Tensor scalars = hyper(1e-3, 0.9, 2), g = draw(size, 2, DType::f32);
    Tensor x = draw(size, 1, DType::f32), m = draw(size, 3, DType::f32), v = multiply(m, m);
    Tensor on_x = x.to(Device::cuda), on_m = m.to(Device::cuda), on_v = v.to(Device::cuda);
    adamw_step(x, g, m, v, begin, end, scalars, 0.5, 0.01, kBeta2, kEpsilon);
    adamw_step(on_x, g.to(Device::cuda), on_m, on_v, begin, end, scalars.to(Device::cuda), 0.5,
               0.01, kBeta2, kEpsilon);
    CHECK(relative_error(on_x, x) <= 2 * rounding(DType::f32));
    CHECK(relative_error(on_m, m) <= 2 * rounding(DType::f32));
    CHECK(relative_error(on_v, v) <= 2 * rounding(DType::f32));
  }
}

TEST_CASE("clipping keeps NaN gradients visible and bounds infinite ones") {
  Tensor values = Tensor::zeros({3}, DType::f32, Device::cpu), m = values.clone(),
         v = values.clone();
  const double infinity = std::numeric_limits<double>::infinity();
  const Tensor gradients =
      Tensor::from(std::vector<double>{NAN, infinity, -infinity}, {3}, DType::f32, Device::cpu);
  adamw_step(values, gradients, m, v, 0, 3, hyper(0.1, 0.9, 1), 1, 0, kBeta2, kEpsilon);
  CHECK(std::isnan(values.to_vector()[0]));
  CHECK(values.to_vector()[1] == doctest::Approx(-0.1).epsilon(1e-4));
  CHECK(values.to_vector()[2] == doctest::Approx(0.1).epsilon(1e-4));
}

TEST_CASE("the bits of AdamW do not depend on the number of threads") {
  const int threads = omp_get_max_threads();
  const auto run = [](int count) {
    omp_set_num_threads(count);
    Tensor values = draw(50001, 1, DType::f32), m = draw(50001, 2, DType::f32);
    Tensor v = Tensor::full({50001}, 1, DType::f32, Device::cpu);
    adamw_step(values, draw(50001, 3, DType::f32), m, v, 0, 50001, hyper(0.1, 0.9, 5), 1, 0.01,
               kBeta2, kEpsilon);
    return values.to_vector();
  };
  CHECK(run(1) == run(3));
  omp_set_num_threads(threads);
}

TEST_CASE("AdamW refuses ranges, hyper-parameters and buffers that do not fit") {
  Tensor values = Tensor::zeros({4}, DType::f32, Device::cpu), m = values.clone(),
         v = values.clone();
  const Tensor g = values.clone();
  const Tensor good = hyper(0.1, 0.9, 1);
  const auto step = [&](std::int64_t begin, std::int64_t end, const Tensor& h, const Tensor& dx,
                        double beta2) {
    adamw_step(values, dx, m, v, begin, end, h, 1, 0, beta2, kEpsilon);
  };
  CHECK_THROWS_WITH_AS(step(0, 5, good, g, kBeta2),
                       "adamw_step: range [0, 5) of values f32[4]@cpu, gradients f32[4]@cpu, m "
                       "f32[4]@cpu, v f32[4]@cpu",
                       Error);
  CHECK_THROWS_AS(step(3, 2, good, g, kBeta2), Error);
  CHECK_THROWS_AS(step(-1, 2, good, g, kBeta2), Error);
  CHECK_THROWS_AS(step(0, 4, good, g.to(DType::f64), kBeta2), Error);
  CHECK_THROWS_AS(step(0, 4, good, g, 1.0), Error);
  CHECK_THROWS_WITH_AS(adamw_step(values, g, m, v, 0, 4, good, 1, 0, kBeta2, 0),
                       doctest::Contains("epsilon > 0"), Error);  // 0 / 0 where g was always 0
  CHECK_THROWS_WITH_AS(step(0, 4, g, g, kBeta2),
                       "adamw_step: expected hyper f64[4]@cpu, got f32[4]@cpu", Error);
}
