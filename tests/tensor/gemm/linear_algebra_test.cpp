#include "tensor/gemm/linear_algebra.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tensor/gemm/gemm.hpp"
#include "tensor/random/random.hpp"
#include "tests/support/difference.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;
using namespace skytape::tensor;

namespace {

Tensor random_matrix(std::int64_t m, std::int64_t n, std::uint64_t key) {
  return normal({m, n}, Random{key, {}}, DType::f64, Device::cpu);
}

/// diag(values) between random orthonormal columns: a [m, n] with these singular values.
Tensor with_singular_values(const std::vector<double>& values, std::int64_t m, std::int64_t n) {
  const auto k = static_cast<std::int64_t>(values.size());
  const Tensor u = leading_left_vectors(random_matrix(m, k, 1), k);
  const Tensor v = leading_left_vectors(random_matrix(n, k, 2), k);
  Tensor middle = Tensor::zeros({k, k}, DType::f64, Device::cpu);
  for (std::int64_t i = 0; i < k; ++i) middle.data<double>()[i * k + i] = values[i];
  return matmul(matmul(u, middle), v, Op::none, Op::transpose);
}

}  // namespace

TEST_CASE("the spectral norm is the SVD's largest singular value to the tolerance") {
  std::uint64_t key = 10;
  for (const auto& [m, n] : {std::pair{40, 7}, {7, 40}, {33, 33}, {1, 5}, {5, 1}, {1, 1}}) {
    const Tensor a = random_matrix(m, n, ++key);
    const double expected = singular_values(a).front();
    CHECK(std::abs(spectral_norm(a) / expected - 1) <= 1e-10);
    CHECK(std::abs(spectral_norm(a.to(DType::f32)) / expected - 1) <= 1e-6);
  }
}

TEST_CASE("the spectral norm is right where power iteration stalls, and at extreme sizes") {
  // Two equal or nearly equal largest values, and a start that could be orthogonal to them.
  for (const double second : {3.0, 3.0 * (1 - 1e-9), 2.9}) {
    const Tensor a = with_singular_values({3, second, 1, 1e-3}, 30, 12);
    CHECK(std::abs(spectral_norm(a) / 3 - 1) <= 2e-10);
    CHECK(std::abs(spectral_norm(a, 1e-3) / 3 - 1) <= 1e-3);
  }
  Tensor a = Tensor::zeros({3, 2}, DType::f64, Device::cpu);
  CHECK(spectral_norm(a) == 0);
  CHECK(spectral_norm(Tensor::zeros({0, 4}, DType::f64, Device::cpu)) == 0);
  for (const double size : {1e200, 1e-200}) {
    a.fill(size);
    CHECK(std::abs(spectral_norm(a) / (std::sqrt(6.0) * size) - 1) <= 1e-10);
  }
  a.data<double>()[4] = std::numeric_limits<double>::infinity();
  CHECK(std::isnan(spectral_norm(a)));
}

TEST_CASE("singular values come back largest first, and the condition number is capped") {
  const std::vector<double> values = {5, 2, 0.5, 1e-3};
  CHECK(singular_values(Tensor::zeros({3, 2}, DType::f64, Device::cpu)) ==
        std::vector<double>{0, 0});
  const std::vector<double> found = singular_values(with_singular_values(values, 4, 9));
  REQUIRE(found.size() == values.size());
  for (std::size_t i = 0; i < values.size(); ++i) CHECK(std::abs(found[i] - values[i]) <= 1e-13);
  CHECK(condition_number(found) == doctest::Approx(5000));
  CHECK(condition_number({1, 0}) == std::pow(2.0, 52));
  CHECK(condition_number({0, 0}) == std::pow(2.0, 52));
}

TEST_CASE("eigenvectors of a symmetric matrix rebuild it") {
  const Tensor half = random_matrix(9, 6, 3);
  const Tensor a = matmul(half, half, Op::none, Op::transpose);  // [9, 9], rank 6
  const SymmetricEigen eigen = symmetric_eigen(a);
  REQUIRE(eigen.values.size() == 9);
  CHECK(std::is_sorted(eigen.values.rbegin(), eigen.values.rend()));
  CHECK(std::abs(eigen.values[6]) <= 1e-13);
  Tensor scaled = eigen.vectors.clone();  // V diag(values)
  for (std::int64_t i = 0; i < 81; ++i) scaled.data<double>()[i] *= eigen.values[i % 9];
  CHECK(test::largest_difference(matmul(scaled, eigen.vectors, Op::none, Op::transpose), a) <=
        1e-12);
}

TEST_CASE("projecting on the leading left vectors leaves the truncated SVD's error") {
  std::vector<double> values;
  for (int i = 0; i < 40; ++i) values.push_back(std::pow(0.8, i));
  const Tensor a = with_singular_values(values, 64, 50);
  for (const std::int64_t k : {1, 8, 20, 50}) {
    const Tensor u = leading_left_vectors(a, k);  // [64, k]
    const Tensor unit = matmul(u, u, Op::transpose);
    for (std::int64_t i = 0; i < k; ++i) {
      CHECK(std::abs(unit.data<double>()[i * k + i] - 1) <= 1e-12);
    }
    Tensor rest = a.clone();
    gemm(u, Op::none, matmul(u, a, Op::transpose), Op::none, rest, -1, 1);
    const double best = k < 40 ? values[static_cast<std::size_t>(k)] : 0;
    CHECK(std::abs(spectral_norm(rest) - best) <= 1e-6 * best + 1e-13);
  }
}

TEST_CASE("linear algebra refuses what is no finite matrix") {
  Tensor a = Tensor::zeros({2, 2}, DType::f64, Device::cpu);
  CHECK_THROWS_AS((void)spectral_norm(a.reshape({4})), Error);
  CHECK_THROWS_AS((void)spectral_norm(Tensor::zeros({2, 2}, DType::i32, Device::cpu)), Error);
  CHECK_THROWS_AS((void)symmetric_eigen(Tensor::zeros({2, 3}, DType::f64, Device::cpu)), Error);
  CHECK_THROWS_AS((void)leading_left_vectors(a, 3), Error);
  a.fill(std::nan(""));
  CHECK_THROWS_AS((void)singular_values(a), Error);
  CHECK_THROWS_AS((void)symmetric_eigen(a), Error);
}
