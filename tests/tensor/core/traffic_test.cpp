#include "tensor/core/traffic.hpp"

#include "tensor/gemm/gemm.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/optimizer.hpp"
#include "tensor/norm/softmax.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;

namespace {

Tensor ones(const Shape& shape) { return Tensor::full(shape, 1, DType::f32, Device::cpu); }

/// Returns the work of the kernels that f calls.
template <class F> std::vector<Work> launches_of(const F& f) {
  const TrafficCount count;
  f();
  return count.launches();
}

template <class F> Work launch_of(const F& f) {
  const std::vector<Work> launches = launches_of(f);
  REQUIRE(launches.size() == 1);
  return launches.front();
}

}  // namespace

TEST_CASE("every array that a kernel takes counts once, and again where it is written too") {
  const Tensor a = ones({3, 40, 7}), b = ones({3, 40, 7});
  constexpr std::int64_t kBytes = 4 * 3 * 40 * 7;
  CHECK(launch_of([&] { (void)tensor::add(a, b); }).bytes == 3 * kBytes);
  CHECK(launch_of([&] { (void)tensor::add(a, a); }).bytes == 2 * kBytes);
  CHECK(launch_of([&] { (void)tensor::affine(a, 2); }).bytes == 2 * kBytes);
  CHECK(launch_of([&] { (void)tensor::softmax(a); }).bytes == 2 * kBytes);
  CHECK(launch_of([&] { (void)tensor::softmax_backward(a, b); }).bytes == 3 * kBytes);
  CHECK(launch_of([&] { (void)a.clone(); }).bytes == 2 * kBytes);
  Tensor sum = ones({3, 40, 7});
  CHECK(launch_of([&] { tensor::accumulate(sum, a); }).bytes == 3 * kBytes);
  CHECK(launch_of([&] { sum.slice(1, 2).fill(0); }).bytes == kBytes / 3);
  CHECK(launch_of([&] { (void)tensor::add(a.slice(0, 1), a.slice(1, 2)); }).bytes == kBytes);
  const TrafficCount one;
  CHECK_THROWS_AS(TrafficCount(), Error);
}

TEST_CASE("AdamW reads four arrays and writes three of them") {
  Tensor values = ones({1000}), m = ones({1000}), v = ones({1000});
  const Tensor gradients = ones({1000});
  const Tensor hyper = Tensor::full({4}, 0.5, DType::f64, Device::cpu);
  const Work launch = launch_of(
      [&] { tensor::adamw_step(values, gradients, m, v, 0, 1000, hyper, 1, 0, 0.999, 1e-6); });
  CHECK(launch.bytes == 7 * 4000);
  CHECK_FALSE(launch.product);
}

TEST_CASE("a product counts its operands, its result and its multiply-adds") {
  const Tensor a = ones({3, 5, 7}), b = ones({3, 7, 11});
  const Work product = launch_of([&] { (void)tensor::matmul(a, b); });
  CHECK(product.bytes == 4 * (3 * 5 * 7 + 3 * 7 * 11 + 3 * 5 * 11));
  CHECK(product.multiply_adds == 3 * 5 * 7 * 11);
  CHECK(product.product);
  Tensor c = ones({3, 5, 11});
  const Work added = launch_of([&] { tensor::gemm(a, Op::none, b, Op::none, c, 1, 1); });
  CHECK(added.bytes == product.bytes + 4 * 3 * 5 * 11);  // c is read as well
}
