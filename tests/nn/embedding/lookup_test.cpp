// Looking up and adding the vectors of a token and its place as one op, against an op for each
// step.
#include "nn/embedding/lookup.hpp"

#include <cmath>

#include "autograd/ops.hpp"
#include "tests/support/both_ways.hpp"
#ifdef SKYTAPE_CUDA_SIMULATED
#include "tests/cuda_simulator/simulator.hpp"
#endif

using namespace skytape;
using namespace skytape::test;

namespace {

struct Sizes {
  std::int64_t B, N, E, V, S;
  std::int64_t nominal;
};

// Element numbers that begin with a chunk in every sequence, trimmed or not, and ones that do not.
const Sizes kSizes[] = {{3, 45, 64, 20, 64, 48}, {2, 64, 64, 300, 64, 64},
                        {1, 1, 1, 1, 1, 0},      {3, 50, 16, 7, 50, 56},
                        {2, 5, 7, 4, 9, 8},      {2, 33, 130, 900, 40, 33},
                        {3, 9, 256, 30, 12, 9},  {2, 7, 4, 900, 7, 32}};

Tensor indices(const Sizes& s, std::int64_t n, Device device) {
  std::vector<std::int32_t> all;
  for (std::int64_t i = 0; i < s.B * s.N; ++i) {
    all.push_back(static_cast<std::int32_t>(i * 7919 % 101 % n));
  }
  return Tensor::from(all, {s.B, s.N}, DType::i32, device);
}

enum class Second { none, by_position, by_place };

Var looked_up(const Sizes& s, const std::vector<Var>& v, Way way, Second second, double rate) {
  const Device device = v[0].value().device();
  const Tensor ids = indices(s, s.V, device), places = indices(s, s.S, device);
  const Dropout dropout{rate, {11, {}}, 6, s.nominal};
  if (way == Way::fused) {
    return nn::look_up(v[0], second == Second::none ? Var() : v[1],
                       {ids, second == Second::by_place ? places : Tensor(), dropout}) +
           affine(sum_all(v[1]), 0);
  }
  Var x = embedding(v[0], ids);
  if (second == Second::by_position) x = x + narrow(v[1], 0, 0, s.N);
  if (second == Second::by_place) x = x + embedding(v[1], places);
  return skytape::dropout(x, dropout) + affine(sum_all(v[1]), 0);
}

}  // namespace

TEST_CASE("a fused look-up equals an op for each step, at every precision") {
  for (const Sizes& s : kSizes) {
    for (const Second second : {Second::none, Second::by_position, Second::by_place}) {
      for (const double rate : {0.0, 0.3}) {
        CAPTURE(s.N);
        CAPTURE(s.E);
        CAPTURE(static_cast<int>(second));
        CAPTURE(rate);
        const std::vector<Tensor> inputs = {random_tensor({s.V, s.E}, DType::f64, Device::cpu, 1),
                                            random_tensor({s.S, s.E}, DType::f64, Device::cpu, 2)};
        check_both_ways(inputs, 50, [&](const std::vector<Var>& v, Way way) {
          return looked_up(s, v, way, second, rate);
        });
      }
    }
  }
}

TEST_CASE("a model looks up tokens and places in one op unless it adds more") {
  nn::ModelConfig config;
  config.vocabulary = 5;
  config.classes = 3;
  config.nominal_length = 8;
  for_each_device([&](Device device) {
    CHECK(records("look_up", device, config));
    nn::ModelConfig other = config;
    other.both_ends = true;
    CHECK_FALSE(records("look_up", device, other));
    other.positions = nn::Positions::none;
    CHECK(records("look_up", device, other));
    other = config;
    other.ngrams = 2;
    other.ngram_rows = 16;
    CHECK_FALSE(records("look_up", device, other));
    other = config;
    other.norm = nn::Norm::post;
    CHECK_FALSE(records("look_up", device, other));
  });
}

TEST_CASE("on a GPU an id or a place out of range gives a row of NaN, and backward leaves it out") {
  if (!cuda_or_skip()) return;
  constexpr std::int64_t kV = 5, kS = 6;
  const std::vector<std::int32_t> ids = {4, -1, 5, 0}, places = {5, 0, 1, -3};
  const auto on_gpu = [](const std::vector<std::int32_t>& values) {
    return Tensor::from(values, {2, 2}, DType::i32, Device::cuda);
  };
  for (const std::int64_t e : {4, 7}) {  // in fours, and one by one
    for (const bool by_place : {false, true}) {
      const auto one = [e](std::int64_t rows) {
        return Tensor::full({rows, e}, 1, DType::f32, Device::cuda);
      };
      Tape tape;
      const Var table = tape.input(one(kV)), second = tape.input(one(kS));
      const Var x = nn::look_up(
          table, second, {on_gpu(ids), by_place ? on_gpu(places) : Tensor(), {0.0, {}, 0, 0}});
      const std::vector<double> values = x.value().to_vector();
      for (std::size_t i = 0; i < values.size(); ++i) {
        const std::size_t row = i / static_cast<std::size_t>(e);
        const bool out = row == 1 || row == 2 || (by_place && row == 3);
        CHECK(std::isnan(values[i]) == out);
        if (!out) CHECK(values[i] == 2);
      }
      tape.backward(x, Tensor::full(x.shape(), 1, DType::f32, Device::cuda));
      const std::vector<double> sums = tape.grad(table).to_vector();
      for (std::size_t i = 0; i < sums.size(); ++i) {
        const std::size_t row = i / static_cast<std::size_t>(e);
        CHECK(sums[i] == (row == 0 || row == 4 ? 1 : 0));
      }
    }
  }
}

#ifdef SKYTAPE_CUDA_SIMULATED
TEST_CASE("on CUDA tokens and positions are one kernel forward and two backward") {
  using cuda_simulator::LaunchesOnly;
  constexpr std::int64_t kB = 32, kN = 2048, kE = 64, kV = 20;
  const LaunchesOnly only;
  const Tensor ids = Tensor::empty({kB, kN}, DType::i32, Device::cuda);
  Tape tape;
  const Var table = tape.input(Tensor::empty({kV, kE}, DType::f32, Device::cuda));
  const Var second = tape.input(Tensor::empty({kN, kE}, DType::f32, Device::cuda));
  const Var x = nn::look_up(table, second, {ids, {}, {0.1, {}, 0, kN}});
  CHECK(LaunchesOnly::all().size() == 1);
  tape.backward(x, Tensor::empty(x.shape(), DType::f32, Device::cuda));
  CHECK(LaunchesOnly::all().size() == 3);
}
#endif
