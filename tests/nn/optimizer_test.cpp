#include "nn/optimizer.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "autograd/initial_values.hpp"
#include "autograd/ops.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;

TEST_CASE("OneCycle passes through the values of the golden schedule") {
  // Six steps, two of them warm-up, max 5e-3; by hand the third value is 3.750005e-3.
  const nn::Schedule cycle{5e-3, 6, 2};
  CHECK(cycle.lr(0) == doctest::Approx(2e-4).epsilon(1e-12));
  CHECK(cycle.lr(1) == doctest::Approx(5e-3).epsilon(1e-12));
  CHECK(cycle.lr(2) == doctest::Approx(3.750005e-3).epsilon(1e-12));
  CHECK(cycle.beta1(0) == doctest::Approx(0.95));
  CHECK(cycle.beta1(1) == doctest::Approx(0.85));
  CHECK(cycle.beta1(2) == doctest::Approx(0.875));
}

TEST_CASE("OneCycle ends at max/25/1e4 and stays there") {
  const nn::Schedule cycle{1e-4, 1000, 100};
  CHECK(cycle.lr(999) == doctest::Approx(1e-4 / 25 / 1e4));
  CHECK(cycle.lr(5000) == doctest::Approx(1e-4 / 25 / 1e4));
  CHECK(cycle.beta1(999) == doctest::Approx(0.95));
}

TEST_CASE("linear warm-up and decay go by equal parts to the peak, then to nothing") {
  const nn::Schedule linear{6e-4, 101, 11, nn::Curve::linear};
  for (std::int64_t k = 0; k <= 10; ++k) {
    CHECK(linear.lr(k) == doctest::Approx(6e-4 * static_cast<double>(k + 1) / 11).epsilon(1e-12));
  }
  CHECK(linear.lr(55) == doctest::Approx(3e-4).epsilon(1e-12));  // half way down
  CHECK(linear.lr(100) == 0);
  for (const std::int64_t k : {0, 10, 55, 100}) CHECK(linear.beta1(k) == 0.9);
}

TEST_CASE("OneCycle of a run that is all warm-up never divides by zero") {
  const nn::Schedule cycle{1e-3, 2, 2};
  CHECK(cycle.lr(0) == doctest::Approx(1e-3 / 25));
  CHECK(cycle.lr(1) == doctest::Approx(1e-3));
  CHECK(cycle.lr(2) == doctest::Approx(1e-3 / 25 / 1e4));
}

TEST_CASE("the inverse square root rises for the warm-up and falls as 1 / sqrt t, from rate 0") {
  // The Long Range Arena's ListOps: 0.05 min(1, t / 1000) / sqrt(max(t, 1000)).
  const nn::Schedule schedule{0.05 / std::sqrt(1000), 5000, 1000, nn::Curve::inverse_sqrt};
  for (const std::int64_t t : {0, 1, 500, 999, 1000, 1001, 4999, 20000}) {
    const auto step = static_cast<double>(t);
    const double expected = 0.05 * std::min(1.0, step / 1000) / std::sqrt(std::max(step, 1000.0));
    CHECK(schedule.lr(t) == doctest::Approx(expected).epsilon(1e-12));
    CHECK(schedule.beta1(t) == 0.9);
  }
}

TEST_CASE("the cosine starts behind the warm-up and ends that far from zero") {
  const nn::Schedule schedule{2e-3, 1000, 100, nn::Curve::cosine};
  CHECK(schedule.lr(0) == 0);
  CHECK(schedule.lr(50) == doctest::Approx(1e-3));
  CHECK(schedule.lr(100) == doctest::Approx(2e-3));
  CHECK(schedule.lr(600) == doctest::Approx(1e-3));
  CHECK(schedule.lr(1000) == doctest::Approx(1e-3 * (1 + std::cos(0.9 * M_PI))));
  CHECK(schedule.beta1(7) == 0.9);
}

namespace {

/// One Adam update of a scalar, as the papers state it (Loshchilov & Hutter 2019, algorithm 2).
double adamw_scalar(double theta, double gradient, double& m, double& v, double lr, double beta1,
                    int t, const nn::AdamWConfig& config) {
  if (config.clip_value > 0) {
    gradient = std::min(std::max(gradient, -config.clip_value), config.clip_value);
  }
  theta *= 1 - lr * config.weight_decay;
  m = beta1 * m + (1 - beta1) * gradient;
  v = config.beta2 * v + (1 - config.beta2) * gradient * gradient;
  return theta - lr / (1 - std::pow(beta1, t)) * m /
                     (std::sqrt(v) / std::sqrt(1 - std::pow(config.beta2, t)) + config.epsilon);
}

}  // namespace

TEST_CASE(
    "AdamW follows the scalar formula, clips, decays, and leaves untouched parameters alone") {
  ParameterStore store;
  Parameter& a = store.add("a", {3}, constant_init(0.5));
  Parameter& untouched = store.add("untouched", {5}, constant_init(2));
  Parameter& b = store.add("b", {2}, constant_init(-1));
  store.pack(DType::f64, Device::cpu, 1);
  const nn::AdamWConfig config{0.999, 1e-6, 0.01, 1.0};
  const nn::Schedule schedule{5e-3, 6, 2};
  nn::AdamW optimizer(store, config, schedule);

  double theta = 0.5, m = 0, v = 0;
  for (int t = 1; t <= 3; ++t) {
    store.zero_gradients();
    a.grad.fill(3.0 * t);  // beyond the clip
    b.grad.fill(-0.25);
    a.has_gradient = b.has_gradient = true;
    theta =
        adamw_scalar(theta, 3.0 * t, m, v, schedule.lr(t - 1), schedule.beta1(t - 1), t, config);
    optimizer.step();
    CHECK(a.value.to_vector()[1] == doctest::Approx(theta).epsilon(1e-13));
  }
  CHECK(untouched.value.to_vector() == std::vector<double>(5, 2.0));
  CHECK(b.value.to_vector()[0] != doctest::Approx(-1));
  CHECK(optimizer.steps_done() == 3);
}

TEST_CASE("a parameter that no gradient reached stays, however many entries it has") {
  // One, two and three times what parameters are aligned to, and one more or less than that.
  for (const std::int64_t entries : {1, 7, 8, 9, 15, 16, 17, 24}) {
    CAPTURE(entries);
    ParameterStore store;
    Parameter& before = store.add("before", {8}, constant_init(0.5));
    Parameter& untouched = store.add("untouched", {entries}, constant_init(2));
    Parameter& behind = store.add("behind", {3}, constant_init(-1));
    store.pack(DType::f64, Device::cpu, 1);
    nn::AdamW optimizer(store, {0.999, 1e-6, 0.01, 1.0}, {5e-3, 6, 2});
    before.grad.fill(0.3);
    behind.grad.fill(-0.2);
    before.has_gradient = behind.has_gradient = true;
    optimizer.step();
    CHECK(untouched.value.to_vector() == std::vector<double>(entries, 2.0));
    CHECK(before.value.to_vector()[7] < 0.5);
    CHECK(behind.value.to_vector()[2] > -1);
  }
}

TEST_CASE("AdamW leaves running averages to the store, and a warm-up has two steps at least") {
  ParameterStore store;
  Parameter& weight = store.add("weight", {3}, constant_init(0.5));
  Parameter& average = store.add_average("average", {3}, constant_init(4), 0.75);
  store.pack(DType::f64, Device::cpu, 1);
  nn::AdamW optimizer(store, {0.999, 1e-6, 0.01, 1.0}, {5e-3, 6, 2});
  for (Parameter* const p : {&weight, &average}) {
    p->grad.fill(0.3);
    p->has_gradient = true;
  }
  optimizer.step();
  CHECK(weight.value.to_vector()[2] < 0.5);
  CHECK(average.value.to_vector() == std::vector<double>(3, 4.0));
  CHECK_THROWS_WITH_AS((void)nn::AdamW(store, {}, {5e-3, 6, 1}),
                       doctest::Contains("warmup must be at least 2 steps, got 1"), Error);
}
