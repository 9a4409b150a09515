#include "autograd/parameter.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "autograd/initial_values.hpp"
#include "tensor/core/storage.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;

namespace {

std::vector<double> start_of(const std::string& name, std::uint64_t seed, DType dtype,
                             const std::vector<std::string>& others) {
  ParameterStore store;
  for (const std::string& other : others) store.add(other, {3}, normal_init(1));
  Parameter& p = store.add(name, {5, 7}, normal_init(0.1));
  store.pack(dtype, Device::cpu, seed);
  return p.value.to_vector();
}

}  // namespace

TEST_CASE("every parameter starts at a 64-byte boundary, trainable ones first, zeros between") {
  for (const DType dtype : {DType::f32, DType::f64}) {
    ParameterStore store;
    store.add("a", {3}, constant_init(1));
    store.add("buffer", {5}, constant_init(2), false);
    store.add("b", {2, 9}, constant_init(3));
    store.add("empty", {0, 4}, constant_init(4));
    store.add("scalar", {}, constant_init(5));
    store.pack(dtype, Device::cpu, 1);

    double total = 0;
    for (const Parameter& p : store.parameters()) {
      CHECK(reinterpret_cast<std::uintptr_t>(p.value.raw()) % 64 == 0);
      CHECK((p.offset < store.trainable_size() || p.shape.numel() == 0) == p.trainable);
      for (const double x : p.value.to_vector()) total += x;
    }
    double flat = 0;
    for (const double x : store.values().to_vector()) flat += x;
    CHECK(flat == total);
    CHECK(total == 3 * 1 + 5 * 2 + 18 * 3 + 5);
    CHECK(store.gradients().numel() == store.trainable_size());
    CHECK(store.parameter_count() == 3 + 18 + 1);
  }
}

TEST_CASE("values and gradients are views of the flat buffers at the same offset") {
  ParameterStore store;
  store.add("a", {3}, constant_init(1));
  Parameter& b = store.add("b", {2}, constant_init(2));
  store.pack(DType::f64, Device::cpu, 1);
  const auto at = static_cast<std::size_t>(b.offset);
  store.values().data<double>()[at + 1] = 7;
  b.grad.data<double>()[0] = 8;
  CHECK(b.value.to_vector() == std::vector<double>{2, 7});
  CHECK(store.gradients().to_vector()[at] == 8);
}

TEST_CASE("adding a parameter changes no other's start") {
  const auto alone = start_of("w", 42, DType::f64, {});
  CHECK(alone == start_of("w", 42, DType::f64, {"a", "b"}));
  CHECK(alone != start_of("v", 42, DType::f64, {}));
  CHECK(alone != start_of("w", 43, DType::f64, {}));
}

TEST_CASE("f32 parameters start at the rounded f64 values") {
  const auto exact = start_of("w", 42, DType::f64, {});
  const auto rounded = start_of("w", 42, DType::f32, {});
  for (std::size_t i = 0; i < exact.size(); ++i) {
    CHECK(rounded[i] == static_cast<double>(static_cast<float>(exact[i])));
  }
}

TEST_CASE("initialisers draw from the distribution they name") {
  const Random random{5, {}};
  const auto normal = normal_init(0.25)({10000}, random).to_vector();
  const auto uniform = uniform_init(0.5)({10000}, random).to_vector();
  double mean = 0, square = 0, widest = 0;
  for (const double x : normal) {
    mean += x / 10000;
    square += x * x / 10000;
  }
  CHECK(std::abs(mean) < 0.01);  // 4 standard errors
  CHECK(std::sqrt(square) == doctest::Approx(0.25).epsilon(0.03));
  mean = 0;
  for (const double x : uniform) {
    mean += x / 10000;
    widest = std::max(widest, std::abs(x));
  }
  CHECK(std::abs(mean) < 0.012);
  CHECK(widest <= 0.5);
  CHECK(widest > 0.499);
  CHECK(constant_init(3)({2}, random).to_vector() == std::vector<double>{3, 3});
}

TEST_CASE(
    "a packed store keeps no block of its initial values, which are wider than those of f32") {
  ParameterStore store;
  const Shape shape{1000, 1001};
  store.add("table", shape, normal_init(1));
  store.pack(DType::f32, Device::cpu, 1);
  const std::int64_t before = memory_stats(Device::cpu).system_allocations;
  const Tensor as_large = Tensor::empty(shape, DType::f64, Device::cpu);
  CHECK(memory_stats(Device::cpu).system_allocations == before + 1);
}

TEST_CASE("references and find stay valid while parameters are added") {
  ParameterStore store;
  Parameter& first = store.add("p0", {1}, constant_init(0));
  for (int i = 1; i < 200; ++i) store.add(join("p", i), {1}, constant_init(i));
  CHECK(store.find("p0") == &first);
  CHECK(store.find("p199") == &store.parameters().back());
  CHECK(store.find("q") == nullptr);
}

TEST_CASE("the store refuses names twice, late parameters and foreign initialisers") {
  ParameterStore store;
  store.add("w", {2}, constant_init(0));
  CHECK_THROWS_WITH_AS(store.add("w", {2}, constant_init(0)), doctest::Contains("'w' is empty"),
                       Error);
  CHECK_THROWS_WITH_AS(store.add("none", {2}, nullptr), doctest::Contains("none"), Error);
  CHECK_THROWS_WITH_AS(store.zero_gradients(), doctest::Contains("pack"), Error);
  CHECK_THROWS_AS(store.pack(DType::i32, Device::cpu, 1), Error);
  store.pack(DType::f32, Device::cpu, 1);
  CHECK_THROWS_WITH_AS(store.add("late", {2}, constant_init(0)), doctest::Contains("late"), Error);
  CHECK_THROWS_WITH_AS(store.pack(DType::f32, Device::cpu, 1), doctest::Contains("twice"), Error);

  ParameterStore foreign;
  foreign.add("bad", {2}, [](const Shape&, const Random&) {
    return Tensor::zeros({3}, DType::f64, Device::cpu);
  });
  CHECK_THROWS_WITH_AS(foreign.pack(DType::f32, Device::cpu, 1),
                       doctest::Contains("the initialiser of bad must return f64[2]@cpu"), Error);
}

TEST_CASE("a store without parameters packs") {
  ParameterStore store;
  store.pack(DType::f32, Device::cpu, 1);
  CHECK(store.packed());
  CHECK(store.trainable_size() == 0);
  CHECK_NOTHROW(store.zero_gradients());
}

TEST_CASE(
    "averages lie between trainable parameters and buffers, with sums in place of gradients") {
  ParameterStore store;
  const Parameter& buffer = store.add("buffer", {5}, constant_init(2), false);
  const Parameter& average = store.add_average("average", {3}, constant_init(4), 0.75);
  const Parameter& a = store.add("a", {2}, constant_init(1));
  store.pack(DType::f64, Device::cpu, 1);
  CHECK(a.offset < average.offset);
  CHECK(average.offset == store.trainable_size());
  CHECK(average.offset < buffer.offset);
  CHECK(store.gradients().numel() == buffer.offset);
  CHECK(average.grad.shape() == Shape({3}));
  CHECK_FALSE(average.trainable);
  CHECK(store.parameter_count() == 2);
}

TEST_CASE("an average moves toward the sums of a step where a backward pass reached it") {
  ParameterStore store;
  Parameter& reached = store.add_average("reached", {2}, constant_init(4), 0.75);
  Parameter& left = store.add_average("left", {2}, constant_init(4), 0.75);
  store.pack(DType::f64, Device::cpu, 1);
  reached.grad.fill(8);
  reached.has_gradient = true;
  store.update_averages();
  CHECK(reached.value.to_vector() == std::vector<double>{5, 5});  // 0.75 * 4 + 0.25 * 8
  CHECK(left.value.to_vector() == std::vector<double>{4, 4});
  for (const double decay : {0, 1}) {
    CHECK_THROWS_WITH_AS((void)ParameterStore().add_average("x", {1}, constant_init(0), decay),
                         doctest::Contains("x: expected a decay between 0 and 1"), Error);
  }
}
