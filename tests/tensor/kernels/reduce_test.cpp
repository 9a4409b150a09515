#include "tensor/kernels/reduce.hpp"

#include <cmath>
#include <limits>

#include "tests/support/close.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/doctest.hpp"

#ifdef _OPENMP
#include <omp.h>
#endif

using namespace skytape;
using namespace skytape::test;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::numeric_limits<double>::quiet_NaN();

/// Sums over the middle of [outer, n, inner] in double.
std::vector<double> naive_sum(const Tensor& x, std::int64_t outer, std::int64_t n,
                              std::int64_t inner) {
  const std::vector<double> v = x.to_vector();
  std::vector<double> y(static_cast<std::size_t>(outer * inner), 0);
  for (std::int64_t o = 0; o < outer; ++o) {
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = 0; j < inner; ++j) {
        y[static_cast<std::size_t>(o * inner + j)] +=
            v[static_cast<std::size_t>((o * n + i) * inner + j)];
      }
    }
  }
  return y;
}

struct Sizes {
  std::int64_t outer, n, inner;
};
// Below and above the chunk of n (256; 8192 in contiguous rows) and the stripe of inner (128).
const Sizes kSizes[] = {{1, 1, 1},  {3, 5, 7},     {2, 300, 3},  {1, 1000, 64}, {2, 257, 130},
                        {5, 33, 1}, {1, 20000, 1}, {2, 8193, 1}, {0, 4, 3},     {3, 0, 4},
                        {4, 0, 1},  {3, 4, 0},     {1, 66000, 2}};

}  // namespace

TEST_CASE("sum over an axis equals the naive double loop") {
  for_each_kind([](DType dtype, Device device) {
    for (const Sizes& s : kSizes) {
      // Positive entries, so that the error is measured against a sum that did not cancel.
      const Tensor x = random_tensor({s.outer, s.n, s.inner}, dtype, device, 1, 0, 1);
      const Tensor y = tensor::sum(x, 1);
      CAPTURE(x);
      CHECK(y.shape() == Shape{s.outer, s.inner});
      CHECK(relative_error(y, naive_sum(x, s.outer, s.n, s.inner)) <= rounding(dtype));
    }
  });
}

TEST_CASE("sum takes any axis of any rank, counted from either end") {
  for_each_kind([](DType dtype, Device device) {
    const Tensor x = random_tensor({2, 3, 4, 5}, dtype, device);
    CHECK(relative_error(tensor::sum(x, 0), naive_sum(x, 1, 2, 60)) <= rounding(dtype));
    CHECK(relative_error(tensor::sum(x, 1), naive_sum(x, 2, 3, 20)) <= rounding(dtype));
    CHECK(relative_error(tensor::sum(x, -1), naive_sum(x, 24, 5, 1)) <= rounding(dtype));
    CHECK(tensor::sum(x, -2).shape() == Shape{2, 3, 5});
    CHECK(relative_error(tensor::sum_all(x), naive_sum(x, 1, 120, 1)) <= rounding(dtype));
    CHECK(tensor::sum_all(x).shape() == Shape{});
  });
}

TEST_CASE("a long f32 sum keeps its digits") {
  for_each_device([](Device device) {
    const std::int64_t n = 3000000;
    const Tensor x = random_tensor({n}, DType::f32, device, 1, 0, 1);
    CHECK(relative_error(tensor::sum_all(x), naive_sum(x, 1, n, 1)) <= 1e-6);
    const Tensor columns = x.reshape({n / 3, 3});
    CHECK(relative_error(tensor::sum(columns, 0), naive_sum(x, 1, n / 3, 3)) <= 1e-6);
  });
}

#ifdef _OPENMP
TEST_CASE("sums have the same bits for every thread count") {
  const int threads = omp_get_max_threads();
  const Tensor x = random_tensor({8192, 64}, DType::f32);
  const Tensor flat = x.reshape({8192 * 64});
  std::vector<std::vector<double>> columns, totals;
  for (const int count : {1, 2, 3, 7}) {
    omp_set_num_threads(count);
    columns.push_back(tensor::sum(x, 0).to_vector());
    totals.push_back(tensor::sum_all(flat).to_vector());
  }
  omp_set_num_threads(threads);
  for (const auto& other : columns) CHECK(other == columns[0]);
  for (const auto& other : totals) CHECK(other == totals[0]);
}
#endif

TEST_CASE("sum_to_shape sums exactly the axes that broadcasting repeats") {
  for_each_kind([](DType dtype, Device device) {
    const Tensor x = random_tensor({2, 3, 4, 5}, dtype, device);
    const double tolerance = rounding(dtype);
    CHECK(relative_error(tensor::sum_to_shape(x, {5}), naive_sum(x, 1, 24, 5)) <= tolerance);
    CHECK(relative_error(tensor::sum_to_shape(x, {2, 3, 4, 1}), naive_sum(x, 24, 5, 1)) <=
          tolerance);
    CHECK(relative_error(tensor::sum_to_shape(x, {3, 1, 1}),
                         naive_sum(tensor::sum_to_shape(x, {3, 4, 5}), 3, 20, 1)) <= tolerance);
    CHECK(relative_error(tensor::sum_to_shape(x, {}), naive_sum(x, 1, 120, 1)) <= tolerance);
    // Two separate groups: axes 0 and 2.
    const Tensor y = tensor::sum_to_shape(x, {1, 3, 1, 5});
    CHECK(y.shape() == Shape{1, 3, 1, 5});
    CHECK(relative_error(y, tensor::sum(tensor::sum(x, 2), 0).to_vector()) <= tolerance);
    CHECK(relative_error(tensor::sum_to_shape(x, x.shape()), x) == 0);
    const Tensor ones = random_tensor({1, 3, 1}, dtype, device);
    CHECK(relative_error(tensor::sum_to_shape(ones, {3, 1}), ones.to_vector()) == 0);
  });
}

TEST_CASE("sum_to_shape of an empty tensor is zero in the target's shape") {
  for_each_kind([](DType dtype, Device device) {
    const Tensor y = tensor::sum_to_shape(Tensor::empty({0, 3}, dtype, device), {1, 3});
    CHECK(y.shape() == Shape{1, 3});
    CHECK(y.to_vector() == std::vector<double>{0, 0, 0});
  });
}

TEST_CASE("max finds the largest entry and the first of equal ones along any axis") {
  for_each_kind([](DType dtype, Device device) {
    const Tensor x = Tensor::from(std::vector<double>{1, 5, 5, -2, 7, 7, 3, -1, 3, 0, 2, 2},
                                  {2, 3, 2}, dtype, device);
    const auto [rows, row_at] = tensor::max(x, -1);
    CHECK(rows.to_vector() == std::vector<double>{5, 5, 7, 3, 3, 2});
    CHECK(row_at.to_vector() == std::vector<double>{1, 0, 0, 0, 0, 0});
    const auto [middle, middle_at] = tensor::max(x, 1);
    CHECK(middle.shape() == Shape{2, 2});
    CHECK(middle.to_vector() == std::vector<double>{7, 7, 3, 2});
    CHECK(middle_at.to_vector() == std::vector<double>{2, 2, 0, 2});
    CHECK(middle_at.dtype() == DType::i32);
  });
}

TEST_CASE("max equals the naive loop for odd and large sizes") {
  for_each_kind([](DType dtype, Device device) {
    for (const Sizes& s : {Sizes{3, 1, 1}, {2, 1500, 1}, {2, 37, 100}, {1, 500, 130}, {0, 3, 2}}) {
      std::vector<double> v = random_tensor({s.outer, s.n, s.inner}, dtype, device, 9).to_vector();
      for (std::size_t i = 0; i < v.size(); i += 2) v[i] = std::round(v[i]);  // ties
      const Tensor x = Tensor::from(v, {s.outer, s.n, s.inner}, dtype, device);
      std::vector<double> best, at;
      for (std::int64_t o = 0; o < s.outer; ++o) {
        for (std::int64_t j = 0; j < s.inner; ++j) {
          const auto entry = [&](std::int64_t i) {
            return v[static_cast<std::size_t>((o * s.n + i) * s.inner + j)];
          };
          std::int64_t first = 0;
          for (std::int64_t i = 1; i < s.n; ++i) first = entry(i) > entry(first) ? i : first;
          best.push_back(entry(first));
          at.push_back(static_cast<double>(first));
        }
      }
      const auto [y, position] = tensor::max(x, 1);
      CHECK(y.to_vector() == best);
      CHECK(position.to_vector() == at);
    }
  });
}

TEST_CASE("max of rows of -inf is their first entry, and NaN shows") {
  for_each_kind([](DType dtype, Device device) {
    const std::vector<double> values = {-kInf, -kInf, -kInf, 1, kNan, 2};
    const Tensor rows = Tensor::from(values, {2, 3}, dtype, device);
    const auto [y, at] = tensor::max(rows, 1);
    CHECK(relative_error(y, {-kInf, kNan}) == 0);
    CHECK(at.to_vector() == std::vector<double>{0, 1});
    const auto [z, z_at] = tensor::max(rows.reshape({2, 3, 1}).reshape({1, 6, 1}), 1);
    CHECK(std::isnan(z.item()));
    const auto [columns, column_at] = tensor::max(rows, 0);
    CHECK(relative_error(columns, {1, kNan, 2}) == 0);
    CHECK(column_at.to_vector() == std::vector<double>{1, 1, 1});
  });
}

TEST_CASE("max_backward leaves out a position beyond its axis on a GPU, which is not waited for") {
  if (!cuda_or_skip()) return;
  const Tensor dy = Tensor::full({4}, 1, DType::f32, Device::cuda);
  const Tensor position =
      Tensor::from(std::vector<std::int32_t>{0, 2, -1, 1}, {4}, DType::i32, Device::cuda);
  CHECK(tensor::max_backward(dy, position, 1, 2).to_vector() ==
        std::vector<double>{1, 0, 0, 0, 0, 0, 0, 1});
}

TEST_CASE("max_backward puts each gradient where the maximum was") {
  for_each_kind([](DType dtype, Device device) {
    const Tensor x = random_tensor({3, 4, 5}, dtype, device, 11);
    for (const int axis : {0, 1, 2, -1, -3}) {
      const auto [y, position] = tensor::max(x, axis);
      const Tensor dy = random_tensor(y.shape(), dtype, device, 12);
      const Tensor dx = tensor::max_backward(dy, position, axis, x.size(axis));
      CHECK(dx.shape() == x.shape());
      // The gradient sums back to dy, and <dx, x> = <dy, y> only if it sits at the maxima.
      CHECK(relative_error(tensor::sum(dx, axis), dy) == 0);
      const auto dot = [](const Tensor& a, const Tensor& b) {
        return tensor::row_dot(a.reshape({a.numel()}), b.reshape({b.numel()})).item();
      };
      CHECK(dot(dx, x) == doctest::Approx(dot(dy, y)).epsilon(1e-5));
    }
  });
}

TEST_CASE("row_dot multiplies rows entry by entry and sums") {
  for_each_kind([](DType dtype, Device device) {
    for (const Shape& shape :
         {Shape{7}, Shape{3, 5}, Shape{2, 3, 1500}, Shape{0, 4}, Shape{4, 0}}) {
      const Tensor a = random_tensor(shape, dtype, device, 1, 0, 1);
      const Tensor b = random_tensor(shape, dtype, device, 2, 0, 1);
      std::vector<double> expected(static_cast<std::size_t>(a.rows()), 0);
      const std::vector<double> va = a.to_vector(), vb = b.to_vector();
      for (std::size_t i = 0; i < va.size(); ++i) {
        expected[i / static_cast<std::size_t>(a.cols())] += va[i] * vb[i];
      }
      const Tensor y = tensor::row_dot(a, b);
      CHECK(y.shape() == shape.without(-1));
      CHECK(relative_error(y, expected) <= rounding(dtype));
    }
  });
}

TEST_CASE("reductions name the operation, the axis and the tensor when they refuse") {
  const Tensor x = Tensor::zeros({2, 3}, DType::f32, Device::cpu);
  const Tensor i = Tensor::zeros({2}, DType::i32, Device::cpu);
  const Tensor empty = Tensor::zeros({2, 0}, DType::f32, Device::cpu);
  CHECK(error_text([&] { (void)tensor::sum(x, 2); }) == "sum: axis 2 of f32[2, 3]@cpu");
  CHECK(error_text([&] { (void)tensor::sum(i, 0); }) ==
        "sum: expected an f32 or f64 tensor, got i32[2]@cpu");
  CHECK(error_text([&] { (void)tensor::token_counts(i); }) ==
        "token_counts: expected a mask [B, N], got i32[2]@cpu");
  CHECK(error_text([&] { (void)tensor::sum_to_shape(x, {2}); }) ==
        "sum_to_shape: shapes do not broadcast: [2, 3] and [2]");
  CHECK(error_text([&] {
          (void)tensor::sum_to_shape(x, {4, 2, 3});
        }) == "sum_to_shape: [4, 2, 3] does not broadcast to f32[2, 3]@cpu");
  CHECK(error_text([&] { (void)tensor::max(empty, 1); }) ==
        "max: axis 1 of f32[2, 0]@cpu is empty");
  CHECK(error_text([&] { (void)tensor::max_backward(x, i, 0, 4); }) ==
        "max_backward: expected i32 positions like dy f32[2, 3]@cpu, got i32[2]@cpu");
  const Tensor far = Tensor::from(std::vector<std::int32_t>{0, 4}, {2}, DType::i32, Device::cpu);
  CHECK(error_text([&] {
          (void)tensor::max_backward(Tensor::zeros({2}, DType::f32, Device::cpu), far, 1, 4);
        }) == "max_backward: position 4 is outside [0, 4)");
  CHECK(error_text([&] { (void)tensor::row_dot(x, empty); }) ==
        "row_dot: expected two equal shapes [..., n], got f32[2, 3]@cpu and f32[2, 0]@cpu");
}
