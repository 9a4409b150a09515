// Drawing landmarks among queries and keys, and moving their rows.
#include "attention/sampling/landmarks.hpp"

#include <cmath>
#include <set>
#include <vector>

#include "tensor/kernels/elementwise.hpp"
#include "tensor/movement/gather.hpp"
#include "tensor/movement/layout.hpp"
#include "tests/support/close.hpp"
#include "tests/support/doctest.hpp"

namespace skytape::test {
namespace {

using attention::Call;
using attention::LandmarkDraw;

constexpr const char* kRules[] = {"independent", "official", "uniform"};

Call call_of(std::uint64_t key, std::int64_t first_example = 0) {
  Call call;
  call.random = Random{key, {}};
  call.first_example = first_example;
  return call;
}

Tensor mask_of(const std::vector<double>& values, std::int64_t batch) {
  const auto n = static_cast<std::int64_t>(values.size()) / batch;
  return Tensor::from(values, {batch, n}, DType::f64, Device::cpu);
}

std::vector<std::int64_t> draw(const LandmarkDraw& how, const Tensor& mask, const Call& call) {
  const std::vector<double> values = attention::draw_landmarks(how, mask, call).to_vector();
  return {values.begin(), values.end()};
}

/// A mask [2, n] with holes: example 0 has tokens at multiples of 3, example 1 all but these.
Tensor holes(std::int64_t n) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < 2 * n; ++i) values.push_back((i % n % 3 == 0) == (i < n) ? 1 : 0);
  return mask_of(values, 2);
}

}  // namespace

TEST_CASE("landmarks fall on real tokens, half on queries and half on keys") {
  const std::int64_t n = 200;
  const Tensor mask = holes(n);
  const std::vector<double> real = mask.to_vector();
  for (const char* rule : {"independent", "uniform"}) {
    const LandmarkDraw how{rule, 1, 33, 2};
    const std::vector<std::int64_t> index = draw(how, mask, call_of(7));
    REQUIRE(index.size() == 2 * 2 * 33);
    for (std::size_t i = 0; i < index.size(); ++i) {
      CHECK(index[i] >= 0);
      CHECK(index[i] < 2 * n);
      CHECK(real[i / 66 * n + index[i] % n] == 1);
      if (how.rule == "independent") CHECK((index[i] >= n) == (i % 33 >= 16));
    }
  }
}

TEST_CASE("official landmarks lie among the first m positions and share their fractions") {
  const std::int64_t n = 90;
  const Tensor mask = holes(n);  // 30 and 60 tokens
  const std::vector<std::int64_t> index = draw({"official", 2, 20, 4}, mask, call_of(7));
  REQUIRE(index.size() == 2 * 40);
  for (std::size_t slot = 0; slot < 40; ++slot) {
    const std::int64_t shift = slot >= 20 ? n : 0;
    const std::int64_t a = index[slot] - shift, b = index[40 + slot] - shift;
    CHECK(a >= 0);
    CHECK(a < 30);
    CHECK(b / 2 == a);  // floor(60 u) and floor(30 u)
  }
}

TEST_CASE("every row is drawn about equally often") {
  const std::int64_t n = 10, size = 20000;
  const Tensor mask = Tensor::full({1, n}, 1, DType::f64, Device::cpu);
  for (const char* rule : kRules) {
    std::vector<int> count(2 * n, 0);
    for (const std::int64_t i : draw({rule, 1, size, 1}, mask, call_of(3))) ++count[i];
    // Expected 1000 each; six standard deviations.
    for (const int c : count) CHECK(std::abs(c - 1000) < 6 * std::sqrt(1000.0));
  }
}

TEST_CASE("landmarks do not depend on trimming or on how a batch is split") {
  const std::int64_t n = 140, kept = 130;
  std::vector<double> values(2 * n, 0);
  for (std::int64_t i = 0; i < 90; ++i) values[i] = i % 4 != 1;
  for (std::int64_t i = 0; i < kept; ++i) values[n + i] = i % 7 != 2;
  const Tensor padded = mask_of(values, 2);
  const Tensor trimmed = tensor::narrow(padded, 1, 0, kept);
  for (const char* rule : kRules) {
    const LandmarkDraw how{rule, 2, 12, 3};
    const auto whole = draw(how, padded, call_of(5)), cut = draw(how, trimmed, call_of(5));
    REQUIRE(whole.size() == cut.size());
    for (std::size_t i = 0; i < whole.size(); ++i) {
      CHECK(cut[i] == (whole[i] < n ? whole[i] : whole[i] - n + kept));
    }
    const auto second = draw(how, padded.slice(1, 2), call_of(5, 1));
    CHECK(std::vector(whole.begin() + whole.size() / 2, whole.end()) == second);
  }
}

TEST_CASE("heads draw landmarks of their own, except by the official rule") {
  const Tensor mask = Tensor::full({1, 64}, 1, DType::f64, Device::cpu);
  for (const char* rule : kRules) {
    const LandmarkDraw how{rule, 1, 16, 2};
    const std::vector<std::int64_t> index = draw(how, mask, call_of(5));
    if (how.rule == "official") {
      CHECK(index.size() == 16);
    } else {
      REQUIRE(index.size() == 2 * 16);
      CHECK(std::vector(index.begin(), index.begin() + 16) !=
            std::vector(index.begin() + 16, index.end()));
    }
  }
}

TEST_CASE("another step draws other landmarks") {
  const Tensor mask = Tensor::full({1, 64}, 1, DType::f32, Device::cpu);
  Call call = call_of(5);
  call.random.step = Tensor::from(std::vector<int>{1}, {1}, DType::i32, Device::cpu);
  for (const char* rule : kRules) {
    CHECK(draw({rule, 1, 16, 2}, mask, call) != draw({rule, 1, 16, 2}, mask, call_of(5)));
  }
}

TEST_CASE("a sequence without real tokens gets rows that exist") {
  const Tensor mask = Tensor::zeros({1, 9}, DType::f64, Device::cpu);
  for (const char* rule : kRules) {
    for (const std::int64_t i : draw({rule, 1, 6, 2}, mask, call_of(5))) {
      CHECK(std::set<std::int64_t>{0, 9}.count(i) == 1);
    }
  }
}

TEST_CASE("gathering landmarks equals gathering rows of the stack, scattering is its adjoint") {
  const Tensor q = random_tensor({2, 3, 7, 5}),
               k = random_tensor(q.shape(), DType::f64, Device::cpu, 2);
  const Tensor parts[] = {q, k};
  const Tensor stack = tensor::concat(parts, 2);  // [2, 3, 14, 5]
  const Tensor ones = Tensor::full({2, 7}, 1, DType::f64, Device::cpu);
  const Tensor mask = random_tensor({2, 7}, DType::f64, Device::cpu, 3, 0, 1);
  const Tensor halves[] = {tensor::mask_rows(q, mask, 0.5), tensor::mask_rows(k, mask, 0.5)};
  const Tensor hidden = tensor::concat(halves, 2);  // [2, 3, 14, 5]
  const std::vector<int> shared = {0, 13, 7, 7, 6, 0, 7, 1, 9, 13, 13, 13};
  std::vector<int> own;
  for (int i = 0; i < 2 * 3 * 6; ++i) own.push_back((i * i + 3) % 14);
  for (const Tensor& index : {Tensor::from(shared, {2, 6}, DType::i32, Device::cpu),
                              Tensor::from(own, {2, 3, 6}, DType::i32, Device::cpu)}) {
    CHECK(relative_error(attention::gather_landmarks(q, k, index, ones, 1),
                         tensor::gather_rows(stack, index)) == 0);
    CHECK(relative_error(attention::gather_landmarks(q, k, index, mask, 0.5),
                         tensor::gather_rows(hidden, index)) == 0);
    CHECK(relative_error(attention::gather_landmarks(q, k, index, {}, 0.5),
                         tensor::affine(tensor::gather_rows(stack, index), 0.5)) == 0);
    const Tensor dw = random_tensor({2, 3, 6, 5}, DType::f64, Device::cpu, 4);
    Tensor expected = stack.clone(), dq = q.clone(), dk = k.clone();
    tensor::scatter_add_rows(expected, index, dw);
    attention::scatter_landmarks({dw}, index, ones, 1, dq, dk);
    CHECK(relative_error(dq, tensor::narrow(expected, 2, 0, 7)) == 0);
    CHECK(relative_error(dk, tensor::narrow(expected, 2, 7, 14)) == 0);

    const Tensor b = random_tensor(dw.shape(), DType::f64, Device::cpu, 5),
                 c = random_tensor(dw.shape(), DType::f64, Device::cpu, 6);
    dq = zeros_like(q), dk = zeros_like(k), expected = zeros_like(stack);
    tensor::scatter_add_rows(expected, index, tensor::add(tensor::add(dw, b), c));
    attention::scatter_landmarks({dw, b, c}, index, mask, 0.5, dq, dk);
    CHECK(relative_error(dq, tensor::mask_rows(tensor::narrow(expected, 2, 0, 7), mask, 0.5)) <=
          1e-15);
    CHECK(relative_error(dk, tensor::mask_rows(tensor::narrow(expected, 2, 7, 14), mask, 0.5)) <=
          1e-15);
  }
}

TEST_CASE("a table of landmarks that does not fit is refused") {
  const Tensor q = random_tensor({1, 2, 4, 3});
  const auto table = [](const std::vector<int>& values, const Shape& shape) {
    return Tensor::from(values, shape, DType::i32, Device::cpu);
  };
  CHECK(error_text([&] {
          (void)attention::landmark_index(table({0, 8}, {1, 1, 2}), q);
        }).find("index 8 is outside [0, 8)") != std::string::npos);
  CHECK(error_text([&] {
          (void)attention::landmark_index(table({0, 1}, {2, 1, 1}), q);
        }).find("expected an index") != std::string::npos);
  CHECK(error_text([&] {
          (void)attention::landmark_index(table({0}, {1}), q);
        }).find("expected a table") != std::string::npos);
}

}  // namespace skytape::test
