#include "tensor/norm/softmax.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/support/close.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;
using namespace skytape::test;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::numeric_limits<double>::quiet_NaN();

const Shape kShapes[] = {{1}, {7}, {3, 1}, {5, 17}, {2, 3, 130}, {2, 1500}, {0, 4}, {4, 0}};

std::vector<double> row_of(const std::vector<double>& x, std::int64_t row, std::int64_t n) {
  return {x.begin() + row * n, x.begin() + (row + 1) * n};
}

/// log sum exp of a row, in double.
double naive_logsumexp(const std::vector<double>& row) {
  if (row.empty()) return -kInf;
  const double best = *std::max_element(row.begin(), row.end());
  double total = 0;
  for (const double x : row) total += std::exp(x - best);
  return best + std::log(total);
}

/// f(row) for every row of x, one after another.
template <class F> std::vector<double> by_row(const Tensor& x, const F& f) {
  std::vector<double> result;
  const std::vector<double> values = x.to_vector();
  for (std::int64_t row = 0; row < x.rows(); ++row) {
    const std::vector<double> part = f(row, row_of(values, row, x.cols()));
    result.insert(result.end(), part.begin(), part.end());
  }
  return result;
}

std::vector<double> naive_softmax(const Tensor& x) {
  return by_row(x, [](std::int64_t, std::vector<double> row) {
    const double shift = naive_logsumexp(row);
    for (double& entry : row) entry = std::exp(entry - shift);
    return row;
  });
}

}  // namespace

TEST_CASE("softmax and logsumexp equal the naive double loop") {
  for_each_kind([](DType dtype, Device device) {
    for (const Shape& shape : kShapes) {
      const Tensor x = random_tensor(shape, dtype, device, 1, -8, 8);
      CAPTURE(shape);
      CHECK(relative_error(tensor::softmax(x), naive_softmax(x)) <= rounding(dtype));
      const Tensor y = tensor::logsumexp(x);
      CHECK(y.shape() == shape.without(-1));
      CHECK(relative_error(y, by_row(x, [](std::int64_t, const std::vector<double>& row) {
                             return std::vector<double>{naive_logsumexp(row)};
                           })) <= rounding(dtype));
    }
  });
}

TEST_CASE("softmax rows sum to one and ignore a shift, however large the entries") {
  for_each_kind([](DType dtype, Device device) {
    const std::vector<double> row = {1000, 1001, 1002, 998};
    const Tensor y = tensor::softmax(Tensor::from(row, {1, 4}, dtype, device));
    const Tensor small =
        tensor::softmax(Tensor::from(std::vector<double>{0, 1, 2, -2}, {1, 4}, dtype, device));
    CHECK(relative_error(y, small) <= rounding(dtype));
    double total = 0;
    for (const double entry : y.to_vector()) total += entry;
    CHECK(total == doctest::Approx(1).epsilon(1e-6));
  });
}

TEST_CASE("a row of -inf gives zeros, a single -inf no weight, and NaN stays visible") {
  for_each_kind([](DType dtype, Device device) {
    const std::vector<double> values = {-kInf, -kInf, 0, -kInf, 1, kNan, kNan, kNan};
    const Tensor x = Tensor::from(values, {4, 2}, dtype, device);
    CHECK(relative_error(tensor::softmax(x), {0, 0, 1, 0, kNan, kNan, kNan, kNan}) == 0);
    CHECK(relative_error(tensor::logsumexp(x), {-kInf, 0, kNan, kNan}) == 0);
    const Tensor huge = Tensor::from(std::vector<double>{1, kInf}, {2}, dtype, device);
    CHECK(tensor::logsumexp(huge).item() == kInf);
    CHECK(std::isnan(tensor::softmax(huge).to_vector()[1]));
  });
}

TEST_CASE("softmax_backward is y (dy - sum(y dy))") {
  for_each_kind([](DType dtype, Device device) {
    for (const Shape& shape : kShapes) {
      const Tensor y = tensor::softmax(random_tensor(shape, dtype, device, 1));
      const Tensor dy = random_tensor(shape, dtype, device, 2);
      const std::vector<double> g = dy.to_vector();
      const auto expected = by_row(y, [&](std::int64_t r, std::vector<double> row) {
        const std::vector<double> d = row_of(g, r, y.cols());
        double dot = 0;
        for (std::size_t i = 0; i < row.size(); ++i) dot += row[i] * d[i];
        for (std::size_t i = 0; i < row.size(); ++i) row[i] *= d[i] - dot;
        return row;
      });
      CHECK(relative_error(tensor::softmax_backward(y, dy), expected) <= rounding(dtype));
    }
  });
}

TEST_CASE("logsumexp_backward is dy exp(x - y), and zero for a row of -inf") {
  for_each_kind([](DType dtype, Device device) {
    for (const Shape& shape : kShapes) {
      const Tensor x = random_tensor(shape, dtype, device, 1);
      const Tensor dy = random_tensor(shape.without(-1), dtype, device, 2);
      const std::vector<double> g = dy.to_vector();
      const auto expected = by_row(x, [&](std::int64_t r, std::vector<double> row) {
        const double y = naive_logsumexp(row);
        for (double& entry : row) entry = g[static_cast<std::size_t>(r)] * std::exp(entry - y);
        return row;
      });
      const Tensor dx = tensor::logsumexp_backward(x, tensor::logsumexp(x), dy);
      CHECK(relative_error(dx, expected) <= rounding(dtype));
    }
    const Tensor masked = Tensor::full({2, 3}, -kInf, dtype, device);
    const Tensor dx = tensor::logsumexp_backward(masked, tensor::logsumexp(masked),
                                                 Tensor::full({2}, 1, dtype, device));
    CHECK(dx.to_vector() == std::vector<double>(6, 0));
  });
}

TEST_CASE("cross entropy is the negative log probability of the label, with its gradient") {
  for_each_kind([](DType dtype, Device device) {
    for (const std::int64_t classes : {1, 2, 10, 1100}) {
      const std::int64_t examples = 5;
      const Tensor logits = random_tensor({examples, classes}, dtype, device, 3, -4, 4);
      std::vector<double> labels;
      for (std::int64_t b = 0; b < examples; ++b) labels.push_back(double(b * 7 % classes));
      const Tensor label = Tensor::from(labels, {examples}, DType::i32, device);
      std::vector<double> losses, gradient = naive_softmax(logits);
      for (std::int64_t b = 0; b < examples; ++b) {
        const auto at = static_cast<std::size_t>(b * classes) +
                        static_cast<std::size_t>(labels[static_cast<std::size_t>(b)]);
        losses.push_back(-std::log(gradient[at]));
        gradient[at] -= 1;
      }
      const auto [loss, dlogits] = tensor::cross_entropy(logits, label);
      CHECK(relative_error(loss, losses) <= rounding(dtype));
      CHECK(relative_error(dlogits, gradient) <= rounding(dtype));
    }
  });
}

TEST_CASE("cross entropy of a confident mistake is large, not infinite, and of no examples empty") {
  for_each_kind([](DType dtype, Device device) {
    const Tensor logits = Tensor::from(std::vector<double>{500, -500}, {1, 2}, dtype, device);
    const Tensor label = Tensor::from(std::vector<double>{1}, {1}, DType::i32, device);
    const auto [loss, dlogits] = tensor::cross_entropy(logits, label);
    CHECK(loss.item() == 1000);
    CHECK(dlogits.to_vector() == std::vector<double>{1, -1});
    const auto [none, dnone] = tensor::cross_entropy(Tensor::empty({0, 3}, dtype, device),
                                                     Tensor::empty({0}, DType::i32, device));
    CHECK(none.shape() == Shape{0});
    CHECK(dnone.shape() == Shape{0, 3});
  });
}

TEST_CASE("correct counts a label that is the first of the largest logits") {
  for_each_kind([](DType dtype, Device device) {
    const std::vector<double> logits = {1, 3, 2, 1, 3, 2, 3, 3, 1, 3, 3, 1, 1, kNan, 0};
    const Tensor x = Tensor::from(logits, {5, 3}, dtype, device);
    const Tensor labels = Tensor::from(std::vector<double>{1, 2, 0, 1, 0}, {5}, DType::i32, device);
    CHECK(tensor::correct(x, labels).to_vector() == std::vector<double>{1, 0, 1, 0, 0});
  });
}

TEST_CASE("softmax functions name the operation and the operands when they refuse") {
  const Tensor x = Tensor::zeros({2, 3}, DType::f32, Device::cpu);
  const Tensor scalar = Tensor::zeros({}, DType::f32, Device::cpu);
  const Tensor one = Tensor::zeros({1}, DType::i32, Device::cpu);
  const Tensor bad = Tensor::from(std::vector<double>{0, 3}, {2}, DType::i32, Device::cpu);
  CHECK(error_text([&] { (void)tensor::softmax(scalar); }) ==
        "softmax: expected an f32 or f64 tensor [..., n], got f32[]@cpu");
  CHECK(error_text([&] { (void)tensor::softmax_backward(x, scalar); }) ==
        "softmax_backward: shapes differ: y f32[2, 3]@cpu, dy f32[]@cpu");
  CHECK(error_text([&] { (void)tensor::logsumexp_backward(x, scalar, scalar); }) ==
        "logsumexp_backward: expected y and dy of shape [2] for x f32[2, 3]@cpu, got f32[]@cpu and "
        "f32[]@cpu");
  CHECK(error_text([&] { (void)tensor::cross_entropy(x, one); }) ==
        "cross_entropy: expected logits [B, C] and labels i32[B] on one device, got "
        "f32[2, 3]@cpu and i32[1]@cpu");
  CHECK(error_text([&] { (void)tensor::cross_entropy(x, bad); }) ==
        "cross_entropy: expected labels in [0, 3), got 3 for example 1");
  CHECK(error_text([&] { (void)tensor::correct(x, bad); }) ==
        "correct: expected labels in [0, 3), got 3 for example 1");
}
