#include "nn/layers/pooling.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "autograd/gradcheck.hpp"
#include "autograd/ops.hpp"
#include "tensor/random/random.hpp"
#include "tests/support/difference.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;
using nn::Pooling;

namespace {

constexpr Pooling kEvery[] = {Pooling::nominal, Pooling::mean, Pooling::first,
                              Pooling::cls,     Pooling::max,  Pooling::attention};
constexpr std::int64_t kWidth = 3, kNominal = 12;

/// Ones for so many tokens of each sequence: [B, N].
Tensor mask_of(const std::vector<int>& tokens, std::int64_t n) {
  std::vector<double> mask;
  for (const int count : tokens) {
    for (int i = 0; i < n; ++i) mask.push_back(i < count ? 1 : 0);
  }
  return Tensor::from(mask, {std::ssize(tokens), n}, DType::f64, Device::cpu);
}

Tensor numbers(const Shape& shape, std::uint64_t seed) {
  return tensor::normal(shape, Random{seed, {}}, DType::f64, Device::cpu);
}

/// The first `n` positions of x, padded ones zero.
Var masked(Var x, const Tensor& mask) { return mask_rows(narrow(x, 1, 0, mask.size(1)), mask); }

/// A pooling of texts of its own store, whose query, if any, is no longer zero.
struct Pooled {
  ParameterStore store;
  nn::Pool pool;
  explicit Pooled(Pooling pooling) : pool(store, pooling, kWidth, kNominal) {
    store.pack(DType::f64, Device::cpu, 1);
    if (Parameter* query = store.find("model.pooling.query")) {
      query->value.copy_from(numbers({kWidth, 1}, 9));
    }
  }
  [[nodiscard]] std::vector<double> operator()(const Tensor& x, const Tensor& mask) const {
    Tape tape(Tape::Mode::eval);
    return pool(masked(tape.input(x), mask), mask).value().to_vector();
  }
};

}  // namespace

TEST_CASE("poolings are what their names say, padding left out") {
  const Tensor x = numbers({2, 8, kWidth}, 3);
  const Tensor mask = mask_of({5, 8}, 8);
  const std::vector<double> v = x.to_vector();
  const auto at = [&](std::int64_t b, std::int64_t i, std::int64_t c) {
    return v[static_cast<std::size_t>((b * 8 + i) * kWidth + c)];
  };
  const std::vector<double> query = numbers({kWidth, 1}, 9).to_vector();
  for (std::int64_t b = 0; b < 2; ++b) {
    const std::int64_t n = b == 0 ? 5 : 8;
    for (std::int64_t c = 0; c < kWidth; ++c) {
      double total = 0, most = -INFINITY, weighted = 0, weights = 0;
      for (std::int64_t i = 0; i < n; ++i) {
        double score = 0;
        for (std::int64_t e = 0; e < kWidth; ++e) {
          score += at(b, i, e) * query[static_cast<std::size_t>(e)];
        }
        const double weight = std::exp(score / std::sqrt(kWidth));
        total += at(b, i, c);
        most = std::max(most, at(b, i, c));
        weighted += weight * at(b, i, c);
        weights += weight;
      }
      const auto pooled = [&](Pooling pooling) {
        return Pooled(pooling)(x, mask)[static_cast<std::size_t>(b * kWidth + c)];
      };
      CHECK(pooled(Pooling::nominal) == doctest::Approx(total / kNominal));
      CHECK(pooled(Pooling::mean) == doctest::Approx(total / static_cast<double>(n)));
      CHECK(pooled(Pooling::first) == at(b, 0, c));
      CHECK(pooled(Pooling::cls) == at(b, 0, c));
      CHECK(pooled(Pooling::max) == most);
      CHECK(pooled(Pooling::attention) == doctest::Approx(weighted / weights));
    }
  }
}

TEST_CASE("every pooling gives zeros for a sequence of padding, and no gradient but zero") {
  for (const Pooling pooling : kEvery) {
    CAPTURE(static_cast<int>(pooling));
    const Pooled pooled(pooling);
    const Tensor mask = mask_of({0, 4}, 6);
    Tape tape;
    const Var x = tape.input(numbers({2, 6, kWidth}, 4));
    const Var y = pooled.pool(masked(x, mask), mask);
    const std::vector<double> values = y.value().to_vector();
    CHECK(std::all_of(values.begin(), values.begin() + kWidth, [](double z) { return z == 0; }));
    tape.backward(sum_all(y));
    const std::vector<double> gradient = tape.grad(x).to_vector();
    double first = 0, all = 0;
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      all += std::abs(gradient[i]);
      if (i < gradient.size() / 2) first += std::abs(gradient[i]);
    }
    CHECK(first == 0);
    CHECK(all > 0);
    CHECK(std::isfinite(all));
  }
}

TEST_CASE("every pooling of a trimmed batch is that of the padded one") {
  const Tensor x = numbers({3, kNominal, kWidth}, 5);
  for (const Pooling pooling : kEvery) {
    CAPTURE(static_cast<int>(pooling));
    const Pooled pooled(pooling);
    CHECK(test::largest_difference(pooled(x, mask_of({7, 2, 5}, kNominal)),
                                   pooled(x, mask_of({7, 2, 5}, 7))) < 1e-14);
  }
}

TEST_CASE("every pooling passes gradcheck, its query included") {
  const Tensor mask = mask_of({5, 1, 0, 6}, 6);
  for (const Pooling pooling : kEvery) {
    CAPTURE(static_cast<int>(pooling));
    Pooled pooled(pooling);
    std::vector<Parameter*> parameters;
    for (Parameter& p : pooled.store.parameters()) parameters.push_back(&p);
    const GradcheckReport report = gradcheck(
        [&](Tape&, std::span<const Var> v) { return pooled.pool(masked(v[0], mask), mask); },
        {numbers({4, 6, kWidth}, 6)}, {}, {"x"}, parameters);
    CHECK_MESSAGE(report.passed, report.to_string());
  }
}

TEST_CASE("attention pooling starts as the mean over the tokens") {
  ParameterStore store;
  const nn::Pool pool(store, Pooling::attention, kWidth, kNominal);
  store.pack(DType::f64, Device::cpu, 1);
  const Tensor x = numbers({2, 6, kWidth}, 7), mask = mask_of({4, 6}, 6);
  Tape tape(Tape::Mode::eval);
  const std::vector<double> start = pool(masked(tape.input(x), mask), mask).value().to_vector();
  CHECK(test::largest_difference(start, Pooled(Pooling::mean)(x, mask)) < 1e-14);
}
