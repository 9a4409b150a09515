#include "tensor/gemm/gemm.hpp"

#include <omp.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iostream>
#include <limits>
#include <vector>

#include "tensor/gemm/precision.hpp"
#include "tensor/movement/layout.hpp"
#include "tensor/random/random.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/doctest.hpp"
#ifdef SKYTAPE_CUDA_SIMULATED
#include "tests/cuda_simulator/simulator.hpp"
#endif

using namespace skytape;
using namespace skytape::tensor;

namespace {

Tensor draw(const Shape& shape, std::uint64_t key, DType dtype = DType::f64) {
  return normal(shape, Random{key, {}}, dtype, Device::cpu);
}

/// op(a) op(b) of single matrices by three loops, and the sum of absolute products (for bounds).
struct Loops {
  std::vector<double> product, magnitude;  // [m, n]
};
Loops loops(const Tensor& a, Op op_a, const Tensor& b, Op op_b) {
  const bool swap_a = op_a == Op::transpose, swap_b = op_b == Op::transpose;
  const std::int64_t m = a.size(swap_a ? 1 : 0), k = a.size(swap_a ? 0 : 1);
  const std::int64_t n = b.size(swap_b ? 0 : 1);
  const std::vector<double> x = a.to_vector(), y = b.to_vector();
  Loops result;
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0, magnitude = 0;
      for (std::int64_t l = 0; l < k; ++l) {
        const double term = x[static_cast<std::size_t>(swap_a ? l * m + i : i * k + l)] *
                            y[static_cast<std::size_t>(swap_b ? j * k + l : l * n + j)];
        sum += term;
        magnitude += std::abs(term);
      }
      result.product.push_back(sum);
      result.magnitude.push_back(magnitude);
    }
  }
  return result;
}

/// Largest |got - want| in units of epsilon * (sum of absolute products).
double error(const Tensor& got, const Loops& want) {
  const double epsilon = got.dtype() == DType::f32 ? std::numeric_limits<float>::epsilon()
                                                   : std::numeric_limits<double>::epsilon();
  const std::vector<double> values = got.to_vector();
  REQUIRE(values.size() == want.product.size());
  double worst = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double difference = std::abs(values[i] - want.product[i]);
    worst = std::max(worst, difference / (epsilon * want.magnitude[i] + 1e-300));
  }
  return worst;
}

/// The nearest numbers with 8 significant bits.
Tensor rounded_to_bf16(const Tensor& x) {
  std::vector<double> values = x.to_vector();
  for (double& value : values) {
    int exponent = 0;
    const double mantissa = std::frexp(value, &exponent);
    value = std::ldexp(std::nearbyint(std::ldexp(mantissa, 8)), exponent - 8);
  }
  return Tensor::from(values, x.shape(), x.dtype(), Device::cpu);
}

constexpr Op kOps[] = {Op::none, Op::transpose};

}  // namespace

TEST_CASE("matmul of known matrices") {
  const Tensor a = Tensor::from(std::vector<double>{1, 2, 3, 4, 5, 6}, {2, 3}, DType::f32,
                                Device::cpu);  // [2, 3]
  const Tensor b = Tensor::from(std::vector<double>{1, 0, 2, 1, 0, 3}, {3, 2}, DType::f32,
                                Device::cpu);  // [3, 2]
  CHECK(matmul(a, b).to_vector() == std::vector<double>{5, 11, 14, 23});
  CHECK(matmul(a, a, Op::none, Op::transpose).to_vector() == std::vector<double>{14, 32, 32, 77});
  CHECK(matmul(b, a, Op::transpose, Op::transpose).to_vector() ==
        std::vector<double>{5, 14, 11, 23});
}

TEST_CASE("matmul equals three loops for all flags, dtypes and cuts") {
  // The last three are large enough to be cut into tiles, or along k.
  const std::array<std::array<std::int64_t, 3>, 7> sizes{
      {{1, 1, 1}, {3, 5, 7}, {1, 9, 4}, {33, 1, 17}, {131, 150, 129}, {259, 67, 90}, {5, 6, 4099}}};
  for (const auto& [m, n, k] : sizes) {
    for (const Op op_a : kOps) {
      for (const Op op_b : kOps) {
        for (const DType dtype : {DType::f32, DType::f64}) {
          const Tensor a = draw(op_a == Op::none ? Shape{m, k} : Shape{k, m}, 1, dtype);
          const Tensor b = draw(op_b == Op::none ? Shape{k, n} : Shape{n, k}, 2, dtype);
          const Tensor c = matmul(a, b, op_a, op_b);  // [m, n]
          CAPTURE(c);
          CAPTURE(k);
          REQUIRE(c.shape() == Shape{m, n});
          CHECK(error(c, loops(a, op_a, b, op_b)) < 8);
        }
      }
    }
  }
}

TEST_CASE("products of one to two hundred rows equal three loops") {
  // A library treats the last rows and columns of its blocks apart.
  const std::int64_t k = 19;
  for (const Op op_a : kOps) {
    for (const Op op_b : kOps) {
      for (std::int64_t m = 1; m < 200; ++m) {
        CAPTURE(m);
        for (const std::int64_t n : {3, 33}) {
          const Tensor a = draw(op_a == Op::none ? Shape{m, k} : Shape{k, m}, 1, DType::f32);
          const Tensor b = draw(op_b == Op::none ? Shape{k, n} : Shape{n, k}, 2, DType::f32);
          CHECK(error(matmul(a, b, op_a, op_b), loops(a, op_a, b, op_b)) < 8);
        }
      }
    }
  }
}

TEST_CASE("a batched product is the product of each entry, and a plain matrix serves all entries") {
  const std::int64_t m = 5, n = 7, k = 11;
  for (const Op op_a : kOps) {
    for (const Op op_b : kOps) {
      const Shape plain_a = op_a == Op::none ? Shape{m, k} : Shape{k, m};
      const Shape plain_b = op_b == Op::none ? Shape{k, n} : Shape{n, k};
      for (const int shared : {0, 1, 2}) {  // none, a, b
        const Tensor a = draw(shared == 1 ? plain_a : Shape{2, 3, plain_a[0], plain_a[1]}, 3);
        const Tensor b = draw(shared == 2 ? plain_b : Shape{2, 3, plain_b[0], plain_b[1]}, 4);
        const Tensor c = matmul(a, b, op_a, op_b);  // [2, 3, m, n]
        REQUIRE(c.shape() == Shape{2, 3, m, n});
        for (std::int64_t g = 0; g < 6; ++g) {
          const Tensor left = shared == 1 ? a : a.reshape({6, plain_a[0], plain_a[1]})[g];
          const Tensor right = shared == 2 ? b : b.reshape({6, plain_b[0], plain_b[1]})[g];
          CHECK(error(c.reshape({6, m, n})[g], loops(left, op_a, right, op_b)) < 8);
        }
      }
    }
  }
}

TEST_CASE("matmul_sum adds up the products of all entries, on every device") {
  const std::int64_t m = 5, n = 70;
  const auto check = [&](Device device, std::int64_t k) {
    for (const Op op_a : kOps) {
      for (const Op op_b : kOps) {
        const auto stack = [&](Op op, std::int64_t rows, std::int64_t cols, std::uint64_t key) {
          return draw(op == Op::none ? Shape{2, 3, rows, cols} : Shape{2, 3, cols, rows}, key);
        };
        const Tensor a = stack(op_a, m, k, 5), b = stack(op_b, k, n, 6);
        const Tensor products = matmul(a, b, op_a, op_b).reshape({6, m * n});
        std::vector<double> want(static_cast<std::size_t>(m * n), 0);
        for (std::int64_t g = 0; g < 6; ++g) {
          const std::vector<double> one = products[g].to_vector();
          for (std::size_t i = 0; i < want.size(); ++i) want[i] += one[i];
        }
        const Tensor c = matmul_sum(a.to(device), b.to(device), op_a, op_b);
        REQUIRE(c.shape() == Shape{m, n});
        const std::vector<double> got = c.to_vector();
        for (std::size_t i = 0; i < want.size(); ++i) {
          CHECK(got[i] == doctest::Approx(want[i]).epsilon(1e-13).scale(10));
        }
      }
    }
  };
  test::for_each_device([&](Device device) {
    for (const std::int64_t k : {11, 1, 1100}) check(device, k);  // the last is cut along k
  });
  const Tensor none = Tensor::zeros({0, 4, 2}, DType::f64, Device::cpu);
  CHECK(matmul_sum(none, none, Op::none, Op::transpose).to_vector() == std::vector<double>(16, 0));
  CHECK_THROWS_AS((void)matmul_sum(none, draw({4, 2}, 7), Op::none, Op::transpose), Error);
}

TEST_CASE("a weight gradient, few results of many rows, is as exact as any product") {
  const Tensor a = draw({4096, 24}, 8), b = draw({4096, 40}, 9);
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor x = a.to(dtype), y = b.to(dtype);
    const Loops want = loops(x, Op::transpose, y, Op::none);
    test::for_each_device([&](Device device) {
      const Tensor on_x = x.to(device), on_y = y.to(device);
      const Tensor c = matmul(on_x, on_y, Op::transpose, Op::none);
      CHECK(error(c, want) < 4);
      Tensor twice = Tensor::full({24, 40}, 1, dtype, device);
      gemm(on_x, Op::transpose, on_y, Op::none, twice, 2, 0);
      const std::vector<double> once = c.to_vector(), doubled = twice.to_vector();
      for (std::size_t i = 0; i < once.size(); ++i) CHECK(doubled[i] == 2 * once[i]);
    });
  }
#ifdef SKYTAPE_CUDA_SIMULATED
  // A GPU computes it in parts that run at once, and adds them up.
  const Tensor x = a.to(Device::cuda), y = b.to(Device::cuda);
  const cuda_simulator::LaunchesOnly only;
  (void)matmul(x, y, Op::transpose, Op::none);
  CHECK(cuda_simulator::LaunchesOnly::products() == 1);
  CHECK(cuda_simulator::LaunchesOnly::kernels() == 1);
#endif
}

TEST_CASE("gemm scales and accumulates, and beta 0 does not read c") {
  test::for_each_kind([](DType dtype, Device device) {
    for (const std::int64_t k : {3, 1025, 5000}) {  // 5000 is cut along k; a GPU cuts equal parts
      const Tensor a = draw({k, 4}, 5, dtype), b = draw({k, 6}, 6, dtype);
      const std::vector<double> product = loops(a, Op::transpose, b, Op::none).product;
      const Tensor on_a = a.to(device), on_b = b.to(device);
      Tensor c = Tensor::full({4, 6}, NAN, dtype, device);  // [4, 6]
      gemm(on_a, Op::transpose, on_b, Op::none, c, 0.5, 0);
      const std::vector<double> first = c.to_vector();
      gemm(on_a, Op::transpose, on_b, Op::none, c, 2, -3);
      const std::vector<double> second = c.to_vector();
      for (std::size_t i = 0; i < product.size(); ++i) {
        CHECK(first[i] == doctest::Approx(0.5 * product[i]).epsilon(1e-4));
        CHECK(second[i] == doctest::Approx(0.5 * product[i]).epsilon(1e-3));  // 2 - 3/2 = 1/2
      }
    }
  });
}

TEST_CASE("empty products: no inner size gives beta c, no rows or columns give nothing") {
  test::for_each_device([](Device device) {
    for (const DType dtype : {DType::f32, DType::f64}) {
      const auto zeros = [&](const Shape& shape) { return Tensor::zeros(shape, dtype, device); };
      CHECK(matmul(zeros({2, 0}), zeros({0, 3})).to_vector() == std::vector<double>(6, 0.0));
      Tensor c = Tensor::full({2, 3}, 4, dtype, device);  // [2, 3]
      gemm(zeros({2, 0}), Op::none, zeros({0, 3}), Op::none, c, 1, 0.5);
      CHECK(c.to_vector() == std::vector<double>(6, 2.0));
      c.fill(std::numeric_limits<double>::quiet_NaN());
      gemm(zeros({2, 0}), Op::none, zeros({0, 3}), Op::none, c, 1, 0);
      CHECK(c.to_vector() == std::vector<double>(6, 0.0));
      CHECK(matmul(zeros({0, 2}), zeros({2, 3})).shape() == Shape{0, 3});
      CHECK(matmul(zeros({4, 2}), zeros({2, 0})).shape() == Shape{4, 0});
      CHECK(matmul(zeros({0, 4, 2}), zeros({2, 3})).shape() == Shape{0, 4, 3});
    }
  });
}

TEST_CASE("gemm_cpu works inside larger arrays and leaves the rest alone") {
  const std::int64_t m = 3, n = 4, k = 5, lda = 9, ldb = 8, ldc = 7;
  const auto check = [&]<class T>(T) {
    const Tensor a = draw({m, lda}, 7, kDTypeOf<T>), b = draw({n, ldb}, 8, kDTypeOf<T>);
    Tensor c = Tensor::full({m, ldc}, 9, kDTypeOf<T>, Device::cpu);  // [m, ldc]
    gemm_cpu<T>(T(2), {a.data<T>(), m, k, lda}, transposed<T>({b.data<T>(), n, k, ldb}), T(1),
                {c.data<T>(), m, n, ldc});
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < ldc; ++j) {
        double want = 9;
        for (std::int64_t l = 0; l < k && j < n; ++l) {
          want += 2.0 * a.data<T>()[i * lda + l] * b.data<T>()[j * ldb + l];
        }
        CHECK(c.data<T>()[i * ldc + j] == doctest::Approx(want).epsilon(1e-5));
      }
    }
  };
  check(1.0F);
  check(1.0);
}

TEST_CASE("bf16 products are those of rounded factors, with f32 sums") {
  if (!test::cpu_bf16_or_skip()) return;
  const PrecisionScope scope(Device::cpu, Precision::bf16);
  const std::array<std::array<std::int64_t, 3>, 5> sizes{
      {{1, 1, 1}, {3, 5, 7}, {33, 1, 17}, {131, 150, 129}, {5, 6, 4099}}};
  for (const auto& [m, n, k] : sizes) {
    for (const Op op_a : kOps) {
      for (const Op op_b : kOps) {
        const Tensor a = draw(op_a == Op::none ? Shape{m, k} : Shape{k, m}, 1, DType::f32);
        const Tensor b = draw(op_b == Op::none ? Shape{k, n} : Shape{n, k}, 2, DType::f32);
        const Tensor c = matmul(a, b, op_a, op_b);  // [m, n]
        CAPTURE(c);
        CHECK(error(c, loops(rounded_to_bf16(a), op_a, rounded_to_bf16(b), op_b)) < 8);
        Tensor sum = Tensor::full({m, n}, 3, DType::f32, Device::cpu);  // [m, n]
        gemm(a, op_a, b, op_b, sum, 0.3, 2);
        CHECK(sum.to_vector()[0] == doctest::Approx(0.3 * c.to_vector()[0] + 6).epsilon(1e-5));
      }
    }
  }
  CHECK(matmul(draw({9, 4}, 3), draw({4, 9}, 4)).dtype() == DType::f64);  // f64 stays exact
  const Tensor bad = Tensor::full({2, 2}, NAN, DType::f32, Device::cpu);
  for (const double x : matmul(bad, draw({2, 2}, 5, DType::f32)).to_vector()) CHECK(std::isnan(x));
}

TEST_CASE("on CUDA a large product at bf16 is one of rounded factors, in all layouts") {
  if (!test::cuda_or_skip()) return;
  const std::int64_t m = 2056, n = 2048, k = 256;  // just large enough, and aligned
  const PrecisionScope scope(Device::cuda, Precision::bf16);
  for (const Op op_a : kOps) {
    for (const Op op_b : kOps) {
      const Tensor a = draw(op_a == Op::none ? Shape{m, k} : Shape{k, m}, 1, DType::f32);
      const Tensor b = draw(op_b == Op::none ? Shape{k, n} : Shape{n, k}, 2, DType::f32);
      const Tensor exact = matmul(rounded_to_bf16(a), rounded_to_bf16(b), op_a, op_b);
      Tensor c = Tensor::full({m, n}, 1, DType::f32, Device::cuda);  // [m, n]
      gemm(a.to(Device::cuda), op_a, b.to(Device::cuda), op_b, c, 2, 3);
      const std::vector<double> found = c.to_vector(), want = exact.to_vector();
      double worst = 0;
      for (std::size_t i = 0; i < want.size(); ++i) {
        worst = std::max(worst, std::abs(found[i] - 2 * want[i] - 3));
      }
      CHECK(worst <= 2e-4);  // of sums of 256 products of about 1; with f32 factors 0.1
    }
  }
#ifdef SKYTAPE_CUDA_SIMULATED
  using cuda_simulator::LaunchesOnly;
  const LaunchesOnly only;
  const auto somewhere = [](std::int64_t rows, std::int64_t columns) {
    return Tensor::empty({rows, columns}, DType::f32, Device::cuda);
  };
  (void)matmul(somewhere(m, k), somewhere(k, n));
  REQUIRE(LaunchesOnly::all().size() == 3);  // both are rounded, then multiplied
  CHECK(LaunchesOnly::all()[2].name == "product");
  (void)matmul(somewhere(m, k), somewhere(k, n / 2));
  CHECK(LaunchesOnly::all().size() == 4);  // too narrow
#endif
}

TEST_CASE("the precision of the cpu: what it lacks is an error, and a scope ends") {
  CHECK_THROWS_WITH_AS(set_precision(Device::cpu, Precision::tf32),
                       "precision: the cpu computes matrix products in fp32 or bf16, not in tf32",
                       UsageError);
  if (!test::cpu_bf16_or_skip()) {
    CHECK_THROWS_AS(set_precision(Device::cpu, Precision::bf16), UsageError);
    return;
  }
  {
    const PrecisionScope scope(Device::cpu, Precision::bf16);
    CHECK(precision(Device::cpu) == Precision::bf16);
  }
  CHECK(precision(Device::cpu) == Precision::fp32);
}

TEST_CASE("the bits of a product do not depend on the number of threads") {
  const int threads = omp_get_max_threads();
  const auto product = [](int count, const Tensor& a, Op op_a, const Tensor& b, Op op_b) {
    omp_set_num_threads(count);
    return matmul(a, b, op_a, op_b).to_vector();
  };
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor square = draw({300, 300}, 9, dtype);
    const Tensor tall = draw({9000, 64}, 10, dtype), wide = draw({9000, 33}, 11, dtype);
    const Tensor batch = draw({5, 130, 70}, 12, dtype);
    for (const int other : {2, 3}) {
      CHECK(product(1, square, Op::none, square, Op::transpose) ==
            product(other, square, Op::none, square, Op::transpose));
      CHECK(product(1, tall, Op::transpose, wide, Op::none) ==
            product(other, tall, Op::transpose, wide, Op::none));
      CHECK(product(1, batch, Op::transpose, batch, Op::none) ==
            product(other, batch, Op::transpose, batch, Op::none));
    }
  }
  omp_set_num_threads(threads);
}

TEST_CASE("matmul says what does not fit") {
  const Tensor a = Tensor::zeros({2, 8, 64}, DType::f32, Device::cpu);
  const Tensor b = Tensor::zeros({2, 32, 8}, DType::f32, Device::cpu);
  CHECK_THROWS_WITH_AS((void)matmul(a, b),
                       "matmul: inner sizes differ: a f32[2, 8, 64]@cpu, b f32[2, 32, 8]@cpu",
                       Error);
  CHECK_THROWS_WITH_AS((void)matmul(a, Tensor::zeros({3, 64, 8}, DType::f32, Device::cpu)),
                       "matmul: leading axes differ: a f32[2, 8, 64]@cpu, b f32[3, 64, 8]@cpu",
                       Error);
  CHECK_THROWS_AS((void)matmul(a, Tensor::zeros({64}, DType::f32, Device::cpu)), Error);
  CHECK_THROWS_AS((void)matmul(a, Tensor::zeros({2, 64, 8}, DType::f64, Device::cpu)), Error);
  CHECK_THROWS_AS((void)matmul(a, Tensor()), Error);
  const Tensor i = Tensor::zeros({2, 2}, DType::i32, Device::cpu);
  CHECK_THROWS_AS((void)matmul(i, i), Error);
  Tensor c = Tensor::zeros({2, 8, 9}, DType::f32, Device::cpu);
  CHECK_THROWS_AS(gemm(a, Op::none, b, Op::transpose, c), Error);
}
