// Choosing positions: top-k and weighted sampling.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "attention/sampling/sampling.hpp"
#include "tensor/movement/layout.hpp"
#include "tests/support/close.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/doctest.hpp"
#ifdef SKYTAPE_CUDA_SIMULATED
#include "tests/cuda_simulator/simulator.hpp"
#endif

namespace skytape::test {
namespace {

using attention::RowNumbers;
using attention::sample_with_replacement;
using attention::sample_without_replacement;
using attention::top_k;

Tensor values(const std::vector<double>& x, const Shape& shape, DType dtype = DType::f64,
              Device device = Device::cpu) {
  return Tensor::from(x, shape, dtype, device);
}

/// Share of the rows whose slot holds each of n positions.
std::vector<double> shares(const Tensor& index, std::int64_t slot, std::int64_t n) {
  std::vector<double> share(static_cast<std::size_t>(n));
  const std::vector<double> all = index.to_vector();
  for (std::int64_t row = 0; row < index.rows(); ++row) {
    const double position = all[static_cast<std::size_t>(row * index.cols() + slot)];
    share[static_cast<std::size_t>(position)] += 1.0 / static_cast<double>(index.rows());
  }
  return share;
}

const std::vector<double> kWeights = {1, 0, 3, 2, 0, 4};  // sum 10
constexpr std::int64_t kRows = 40000;                     // standard error of a share <= 0.0025
constexpr double kBand = 0.0125;                          // five of them

Tensor repeated_weights(Device device = Device::cpu) {
  return tensor::expand(values(kWeights, {1, 6}, DType::f64, device), {kRows, 6});
}

}  // namespace

TEST_CASE("top_k gives the largest entries in order, the first one on ties, NaN before all") {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const std::vector<double> x = {3, -kInf, 7, 7, NAN, 0, /**/ 1, 1, 1, 1, 1, 2};
  for_each_kind([&](DType dtype, Device device) {
    const Tensor t = values(x, {2, 6}, dtype, device);
    CHECK(top_k(t, 4).to_vector() == std::vector<double>{4, 2, 3, 0, /**/ 5, 0, 1, 2});
    CHECK(top_k(t, 6).to_vector() == std::vector<double>{4, 2, 3, 0, 5, 1, /**/ 5, 0, 1, 2, 3, 4});
    CHECK(top_k(t, 0).numel() == 0);
  });
}

TEST_CASE("top_k is the beginning of a stable sort, on rows of any length, with ties and NaN") {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for_each_kind([&](DType dtype, Device device) {
    // The last row is too long for a GPU's shared memory.
    for (const std::int64_t n : {1, 2, 31, 64, 65, 257, 1000, 2048, 20000}) {
      std::vector<double> x = random_tensor({3, n}).to_vector();
      for (std::size_t i = 0; i < x.size(); ++i) {
        if (i % 3 == 0) x[i] = std::round(x[i]);  // ties, and zeros of both signs
        if (i % 11 == 5) x[i] = NAN;
        if (i % 17 == 7) x[i] = i % 2 == 0 ? kInf : -kInf;
      }
      const Tensor t = values(x, {3, n}, dtype, device);
      const std::vector<double> all = t.to_vector();  // rounded to the dtype
      for (const std::int64_t k : {std::int64_t{1}, (n + 15) / 16, n}) {
        CAPTURE(n);
        CAPTURE(k);
        const std::vector<double> chosen = top_k(t, k).to_vector();
        for (std::int64_t row = 0; row < 3; ++row) {
          std::vector<double> expected(static_cast<std::size_t>(n));
          std::iota(expected.begin(), expected.end(), 0);
          const auto value = [&](double i) {
            const double v = all[static_cast<std::size_t>(row * n) + static_cast<std::size_t>(i)];
            return std::isnan(v) ? kInf : v;
          };
          std::stable_sort(expected.begin(), expected.end(),
                           [&](double a, double b) { return value(a) > value(b); });
          CHECK(std::equal(expected.begin(), expected.begin() + k, chosen.begin() + row * k));
        }
      }
    }
  });
}

#ifdef SKYTAPE_CUDA_SIMULATED
TEST_CASE("top_k chooses the same where blocks have the least shared memory") {
  const Tensor x = random_tensor({2, 10000}, DType::f32, Device::cpu);  // 128 KB with positions
  const cuda_simulator::ComputeCapability sm_86(8, 6);
  CHECK(top_k(x.to(Device::cuda), 100).to_vector() == top_k(x, 100).to_vector());
}
#endif

TEST_CASE("choosing more positions than there are is an error that says so") {
  const Tensor x = random_tensor({2, 5});
  CHECK(error_text([&] { (void)top_k(x, 6); }).find("cannot choose 6") != std::string::npos);
  CHECK(error_text([&] {
          (void)sample_without_replacement(x, 6, {});
        }).find("sample_without_replacement") != std::string::npos);
}

TEST_CASE("draws without replacement are different and leave zero weights to the end") {
  const Tensor index = sample_without_replacement(repeated_weights(), 6, {{7, {}}, 0, 6});
  const std::vector<double> all = index.to_vector();
  bool distinct = true, zeros_last = true;
  for (std::int64_t row = 0; row < 500; ++row) {
    const auto begin = all.begin() + row * 6;
    distinct = distinct && std::set<double>(begin, begin + 6).size() == 6;
    zeros_last = zeros_last && begin[4] == 1 && begin[5] == 4;
  }
  CHECK(distinct);
  CHECK(zeros_last);
}

TEST_CASE("draws without replacement follow the sequential law") {
  const Tensor index = sample_without_replacement(repeated_weights(), 2, {{11, {}}, 0, 6});
  const std::vector<double> first = shares(index, 0, 6), second = shares(index, 1, 6);
  for (std::size_t i = 0; i < 6; ++i) {
    CHECK(std::abs(first[i] - kWeights[i] / 10) < kBand);
    double expected = 0;  // P(second = i) = sum over first = j of p_j w_i / (10 - w_j)
    for (std::size_t j = 0; j < 6; ++j) {
      if (j != i) expected += kWeights[j] / 10 * kWeights[i] / (10 - kWeights[j]);
    }
    CHECK(std::abs(second[i] - expected) < kBand);
  }
}

TEST_CASE("draws with replacement follow the weights, each draw for itself") {
  const Tensor index = sample_with_replacement(repeated_weights(), 3, {{13, {}}, 0, 3});
  for (std::int64_t slot = 0; slot < 3; ++slot) {
    const std::vector<double> share = shares(index, slot, 6);
    for (std::size_t i = 0; i < 6; ++i) CHECK(std::abs(share[i] - kWeights[i] / 10) < kBand);
  }
  const Tensor nothing = sample_with_replacement(values({0, 0}, {1, 2}), 2, {});
  CHECK(nothing.to_vector() == std::vector<double>{0, 0});
}

TEST_CASE("a row draws the same when it is cut short or moved to another batch") {
  const Tensor weights = random_tensor({4, 9}, DType::f64, Device::cpu, 3, 0.1, 1);
  const RowNumbers numbers{{5, {}}, 0, 9};
  const Tensor whole = sample_without_replacement(weights, 9, numbers);
  const RowNumbers moved{{5, {}}, 2, 9};
  CHECK(sample_without_replacement(weights.slice(2, 4), 9, moved).to_vector() ==
        whole.slice(2, 4).to_vector());

  // Zero weights at the end, present or cut off.
  const Tensor cut = tensor::narrow(weights, 1, 0, 6);
  const Tensor padded = tensor::narrow_backward(cut, 1, 0, 9);
  CHECK(sample_without_replacement(cut, 6, numbers).to_vector() ==
        tensor::narrow(sample_without_replacement(padded, 9, numbers).to(DType::f64), 1, 0, 6)
            .to_vector());
}

TEST_CASE("sampling on CUDA draws what the CPU draws") {
  if (!cuda_or_skip()) return;
  const Tensor weights = random_tensor({5, 3000}, DType::f64, Device::cpu, 3, 0.1, 1);
  const RowNumbers numbers{{5, {}}, 0, 3000};
  CHECK(sample_without_replacement(weights.to(Device::cuda), 100, numbers).to_vector() ==
        sample_without_replacement(weights, 100, numbers).to_vector());
  CHECK(sample_with_replacement(weights.to(Device::cuda), 100, numbers).to_vector() ==
        sample_with_replacement(weights, 100, numbers).to_vector());
}

}  // namespace skytape::test
