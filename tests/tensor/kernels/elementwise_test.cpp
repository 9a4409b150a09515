#include "tensor/kernels/elementwise.hpp"

#include <cmath>
#include <functional>
#include <limits>

#include "tests/support/close.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;
using namespace skytape::test;
using tensor::Binary;
using tensor::Unary;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::numeric_limits<double>::quiet_NaN();

double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

struct UnaryCase {
  Unary f;
  double low, high;  // domain of the samples
  std::function<double(double)> value, slope;
};

const std::vector<UnaryCase>& unary_cases() {
  static const std::vector<UnaryCase> cases = {
      {Unary::negate, -2, 2, [](double x) { return -x; }, [](double) { return -1.0; }},
      {Unary::exp, -9, 3, [](double x) { return std::exp(x); },
       [](double x) { return std::exp(x); }},
      {Unary::log, 0.1, 9, [](double x) { return std::log(x); }, [](double x) { return 1 / x; }},
      {Unary::sqrt, 0.1, 9, [](double x) { return std::sqrt(x); },
       [](double x) { return 0.5 / std::sqrt(x); }},
      {Unary::reciprocal, 0.5, 4, [](double x) { return 1 / x; },
       [](double x) { return -1 / (x * x); }},
      {Unary::square, -2, 2, [](double x) { return x * x; }, [](double x) { return 2 * x; }},
      {Unary::relu, -2, 2, [](double x) { return x > 0 ? x : 0; },
       [](double x) { return x > 0 ? 1.0 : 0.0; }},
      {Unary::gelu, -6, 6, [](double x) { return x * normal_cdf(x); },
       [](double x) {
         return normal_cdf(x) + x * std::exp(-0.5 * x * x) / std::sqrt(2 * std::acos(-1.0));
       }},
  };
  return cases;
}

double apply(Binary f, double a, double b) {
  switch (f) {
    case Binary::add:
      return a + b;
    case Binary::subtract:
      return a - b;
    case Binary::multiply:
      return a * b;
    case Binary::divide:
      return a / b;
  }
  return kNan;
}

/// Entry of x at the position that row-major entry `index` of `shape` has after broadcasting.
double broadcast_entry(const std::vector<double>& x, const Shape& own, const Shape& shape,
                       std::int64_t index) {
  std::int64_t offset = 0, stride = 1;
  for (int back = 1; back <= shape.rank(); ++back) {
    const std::int64_t position = index % shape[-back];
    index /= shape[-back];
    if (back > own.rank()) continue;
    if (own[-back] != 1) offset += position * stride;
    stride *= own[-back];
  }
  return x[static_cast<std::size_t>(offset)];
}

void check_binary(Binary f, const Shape& sa, const Shape& sb, DType dtype, Device device) {
  const Tensor a = random_tensor(sa, dtype, device, 1);
  const Tensor b = random_tensor(sb, dtype, device, 2, 0.5, 3);
  const Tensor y = tensor::binary(f, a, b);
  CHECK(y.shape() == tensor::broadcast_shape("test", sa, sb));
  const std::vector<double> va = a.to_vector(), vb = b.to_vector();
  std::vector<double> expected;
  for (std::int64_t i = 0; i < y.numel(); ++i) {
    expected.push_back(
        apply(f, broadcast_entry(va, sa, y.shape(), i), broadcast_entry(vb, sb, y.shape(), i)));
  }
  CAPTURE(sa);
  CAPTURE(sb);
  CHECK(relative_error(y, expected) <= rounding(dtype));
}

}  // namespace

TEST_CASE("fill writes every entry in every dtype, and only those of a slice") {
  for_each_device([](Device device) {
    for (const DType dtype : {DType::f32, DType::f64, DType::i32}) {
      for (const std::int64_t n : {0, 1, 7, 100003}) {
        Tensor t = Tensor::empty({n}, dtype, device);
        t.fill(-3);
        CHECK(t.to_vector() == std::vector<double>(static_cast<std::size_t>(n), -3));
      }
      Tensor t = Tensor::zeros({3, 2}, dtype, device);
      Tensor row = t[1];
      row.fill(5);
      CHECK(t.to_vector() == std::vector<double>{0, 0, 5, 5, 0, 0});
    }
  });
}

TEST_CASE("unary functions and their derivatives follow the formulas") {
  for_each_kind([](DType dtype, Device device) {
    for (const UnaryCase& c : unary_cases()) {
      for (const Shape& shape : {Shape{}, Shape{1}, Shape{0, 3}, Shape{17, 5}, Shape{3, 10007}}) {
        const Tensor x = random_tensor(shape, dtype, device, 3, c.low, c.high);
        const Tensor dy = random_tensor(shape, dtype, device, 4);
        std::vector<double> y, dx;
        const std::vector<double> vx = x.to_vector(), vdy = dy.to_vector();
        for (std::size_t i = 0; i < vx.size(); ++i) {
          y.push_back(c.value(vx[i]));
          dx.push_back(vdy[i] * c.slope(vx[i]));
        }
        CAPTURE(static_cast<int>(c.f));
        CHECK(relative_error(tensor::unary(c.f, x), y) <= rounding(dtype));
        CHECK(relative_error(tensor::unary_backward(c.f, x, dy), dx) <= rounding(dtype));
      }
    }
  });
}

TEST_CASE("unary functions keep NaN and infinities") {
  for_each_kind([](DType dtype, Device device) {
    // 51 entries: vector loop and remainder both see every special value.
    std::vector<double> values;
    while (values.size() < 51) values.insert(values.end(), {kNan, kInf, -kInf});
    const Tensor x = Tensor::from(values, {51}, dtype, device);
    const auto head = [&](Unary f) {
      const std::vector<double> y = tensor::unary(f, x).to_vector();
      for (std::size_t i = 3; i < y.size(); ++i) {
        CHECK(std::isnan(y[i]) == std::isnan(y[i % 3]));
        if (!std::isnan(y[i])) CHECK(y[i] == y[i % 3]);
      }
      return std::vector<double>(y.begin(), y.begin() + 3);
    };
    CHECK(relative_error(head(Unary::exp), {kNan, kInf, 0}) == 0);
    CHECK(relative_error(head(Unary::log), {kNan, kInf, kNan}) == 0);
    CHECK(relative_error(head(Unary::sqrt), {kNan, kInf, kNan}) == 0);
    CHECK(relative_error(head(Unary::relu), {kNan, kInf, 0}) == 0);
    CHECK(relative_error(head(Unary::reciprocal), {kNan, 0, 0}) == 0);
  });
}

TEST_CASE("binary operations broadcast every pattern of axes") {
  struct Pair {
    Shape a, b;
  };
  const std::vector<Pair> pairs = {
      {{5, 7}, {5, 7}},                          // same shape
      {{3, 700}, {3, 700}},                      // longer than one task
      {{}, {}},                                  // scalars
      {{5, 7}, {}},                              // scalar on either side
      {{}, {5, 7}},                              //
      {{2, 3, 7}, {7}},                          // suffix, as a bias
      {{7}, {2, 3, 7}},                          //
      {{2, 3, 7}, {2, 3, 1}},                    // rows
      {{2, 3, 1}, {2, 3, 7}},                    //
      {{4, 1}, {1, 9}},                          // outer sum
      {{2, 1, 3, 1, 2, 5}, {1, 4, 3, 2, 1, 5}},  // alternating, rank 6
      {{3, 1, 1030}, {3, 5, 1}},                 // rows longer than a task, both repeat
      {{300, 3, 2}, {300, 1, 2}},                // many short rows in one task
      {{0, 3}, {1, 3}},                          // empty
      {{1, 1}, {1}},                             // all ones
  };
  for_each_kind([&](DType dtype, Device device) {
    for (const Binary f : {Binary::add, Binary::subtract, Binary::multiply, Binary::divide}) {
      for (const Pair& pair : pairs) check_binary(f, pair.a, pair.b, dtype, device);
    }
  });
}

TEST_CASE("a broadcast shape is the larger size on each axis aligned at the end") {
  CHECK(tensor::broadcast_shape("op", {2, 1, 3}, {4, 1}) == Shape{2, 4, 3});
  CHECK(tensor::broadcast_shape("op", {0, 3}, {1, 1}) == Shape{0, 3});
  CHECK(error_text([] {
          (void)tensor::broadcast_shape("op", {2, 3}, {2});
        }) == "op: shapes do not broadcast: [2, 3] and [2]");
}

TEST_CASE("affine and accumulate scale, shift and add") {
  for_each_kind([](DType dtype, Device device) {
    for (const std::int64_t n : {0, 1, 33, 40001}) {
      const Tensor x = random_tensor({n}, dtype, device, 5);
      Tensor y = random_tensor({n}, dtype, device, 6);
      std::vector<double> scaled, sum;
      const std::vector<double> vx = x.to_vector(), vy = y.to_vector();
      for (std::size_t i = 0; i < vx.size(); ++i) {
        scaled.push_back(-1.5 * vx[i] + 0.25);
        sum.push_back(vy[i] + 0.5 * vx[i]);
      }
      CHECK(relative_error(tensor::affine(x, -1.5, 0.25), scaled) <= rounding(dtype));
      tensor::accumulate(y, x, 0.5);
      CHECK(relative_error(y, sum) <= rounding(dtype));
    }
  });
}

TEST_CASE("accumulate_all adds each source to its own target, for any number of pairs and sizes") {
  for_each_kind([](DType dtype, Device device) {
    for (const std::int64_t pairs : {0, 1, 32, 33, 70}) {
      std::vector<tensor::Addition> additions;
      std::vector<std::vector<double>> expected;
      for (std::int64_t i = 0; i < pairs; ++i) {
        const std::int64_t n = i % 5 == 3 ? 0 : 1 + i * 61;  // some empty, some of several chunks
        const Tensor target = random_tensor({n}, dtype, device, 100 + i);
        const Tensor source = random_tensor({n}, dtype, device, 200 + i);
        expected.push_back(tensor::add(target, source).to_vector());
        additions.push_back({target, source});
      }
      tensor::accumulate_all(additions);
      for (std::size_t i = 0; i < additions.size(); ++i) {
        CHECK(additions[i].target.to_vector() == expected[i]);
      }
    }
  });
}

TEST_CASE("mask_rows scales each row by its position's mask in every head") {
  for_each_kind([](DType dtype, Device device) {
    const std::int64_t b = 3, h = 2, n = 5, d = 7;
    const Tensor x = random_tensor({b, h, n, d}, dtype, device, 7);
    const Tensor mask = random_tensor({b, n}, dtype, device, 8, 0, 1);
    const std::vector<double> vx = x.to_vector(), vm = mask.to_vector();
    std::vector<double> expected;
    for (std::int64_t r = 0; r < b * h * n; ++r) {
      const std::int64_t example = r / (h * n), position = r % n;
      for (std::int64_t c = 0; c < d; ++c) {
        expected.push_back(vx[static_cast<std::size_t>(r * d + c)] * 0.5 *
                           vm[static_cast<std::size_t>(example * n + position)]);
      }
    }
    CHECK(relative_error(tensor::mask_rows(x, mask, 0.5), expected) <= rounding(dtype));
  });
}

TEST_CASE("all_finite finds one bad entry anywhere") {
  for_each_kind([](DType dtype, Device device) {
    for (const double bad : {kInf, -kInf, kNan}) {
      for (const std::int64_t at : {0, 4095, 4096, 9999}) {
        std::vector<double> values(10000, 1e30);
        values[static_cast<std::size_t>(at)] = bad;
        CHECK_FALSE(tensor::all_finite(Tensor::from(values, {10000}, dtype, device)));
      }
    }
    CHECK(tensor::all_finite(random_tensor({10000}, dtype, device)));
    CHECK(tensor::all_finite(Tensor::empty({0}, dtype, device)));
  });
}

TEST_CASE("elementwise functions name the operation and both operands when they refuse") {
  const Tensor a = Tensor::zeros({2, 3}, DType::f32, Device::cpu);
  const Tensor b = Tensor::zeros({2, 4}, DType::f32, Device::cpu);
  const Tensor c = Tensor::zeros({2, 3}, DType::f64, Device::cpu);
  Tensor i = Tensor::zeros({2, 3}, DType::i32, Device::cpu);
  CHECK(error_text([&] { (void)tensor::add(a, b); }) ==
        "add: shapes do not broadcast: [2, 3] and [2, 4]");
  CHECK(error_text([&] { (void)tensor::divide(a, c); }) ==
        "divide: operands differ in dtype or device: f32[2, 3]@cpu, f64[2, 3]@cpu");
  CHECK(error_text([&] { (void)tensor::multiply(i, i); }) ==
        "multiply: expected an f32 or f64 tensor, got i32[2, 3]@cpu");
  CHECK(error_text([&] { (void)tensor::unary(Unary::gelu, i); }) ==
        "gelu: expected an f32 or f64 tensor, got i32[2, 3]@cpu");
  CHECK(error_text([&] { (void)tensor::unary_backward(Unary::exp, a, b); }) ==
        "exp: shapes differ: x f32[2, 3]@cpu, dy f32[2, 4]@cpu");
  CHECK(error_text([&] {
          Tensor target = a.clone();
          tensor::accumulate(target, b);
        }) == "accumulate: shapes differ: target f32[2, 3]@cpu, source f32[2, 4]@cpu");
  CHECK(error_text([&] {
          std::vector<tensor::Addition> additions = {{a.clone(), a}, {a.clone(), b}};
          tensor::accumulate_all(additions);
        }) == "accumulate_all: shapes differ: target f32[2, 3]@cpu, source f32[2, 4]@cpu");
  CHECK(error_text([&] { (void)tensor::mask_rows(a, b); }) ==
        "mask_rows: expected x [B, H, N, D] and mask [B, N], got f32[2, 3]@cpu and "
        "f32[2, 4]@cpu");
  CHECK(error_text([&] { tensor::fill(i, 3e9); }) ==
        "fill: expected a value that fits i32 for i32[2, 3]@cpu, got 3e+09");
  CHECK(error_text([] { (void)tensor::affine(Tensor{}, 1); }) ==
        "affine: expected an f32 or f64 tensor, got undefined tensor");
}
