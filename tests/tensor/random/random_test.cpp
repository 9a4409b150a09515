#include "tensor/random/random.hpp"

#include <Random123/philox.h>
#include <omp.h>

#include <cmath>
#include <iostream>
#include <numeric>
#include <set>
#include <vector>

#include "tensor/random/philox.hpp"
#include "tests/support/doctest.hpp"
#ifdef SKYTAPE_HAVE_CURAND
#include <curand.h>
#endif

using namespace skytape;
using namespace skytape::tensor;

namespace {

/// The words by Random123, whose first and second counter and key words are the low halves.
std::vector<std::uint32_t> reference_words(std::uint64_t key, std::uint64_t counter,
                                           std::uint64_t subsequence) {
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const auto high = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); };
  r123::Philox4x32 generator;
  const r123::Philox4x32::ctr_type words =
      generator({{low(counter), high(counter), low(subsequence), high(subsequence)}},
                {{low(key), high(key)}});
  return {words.begin(), words.end()};
}

Tensor step_tensor(int step) {
  return Tensor::from(std::vector<std::int32_t>{step}, {1}, DType::i32, Device::cpu);
}

constexpr std::uint64_t kKey = 0x0123456789abcdefu;

}  // namespace

TEST_CASE("philox draws the words of Random123") {
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const std::uint64_t key = i * 0x9E3779B97F4A7C15u, counter = i * i * 0xD1B54A32D192ED03u;
    const philox::Words words = philox::draw(key, counter, i << 30);
    CHECK(std::vector<std::uint32_t>(words.w, words.w + 4) ==
          reference_words(key, counter, i << 30));
  }
}

TEST_CASE("uniform gives number first + e of the sequence for every start and size") {
  for (const std::int64_t first : {0, 1, 127, 128, 515}) {
    for (const std::int64_t n : {0, 1, 3, 127, 128, 129, 700}) {
      const Random random{kKey, step_tensor(77)};
      const std::vector<double> f32 =
          uniform({n}, random, DType::f32, Device::cpu, first).to_vector();
      const std::vector<double> f64 =
          uniform({n}, random, DType::f64, Device::cpu, first).to_vector();
      CHECK(f32 == f64);
      for (std::int64_t e = 0; e < n; ++e) {
        const auto number = static_cast<std::uint64_t>(first + e);
        const std::uint32_t word = reference_words(kKey, number / 4, 77)[number % 4];
        REQUIRE(f32[static_cast<std::size_t>(e)] == static_cast<float>(word) * 0x1p-32F + 0x1p-33F);
      }
    }
  }
}

TEST_CASE("uniforms lie in (0, 1]") {
  CHECK(philox::uniform(0) > 0);
  CHECK(philox::uniform(0xffffffffu) == 1);
}

TEST_CASE("normal is Box-Muller on word pairs, sine first") {
  for (const std::int64_t first : {0, 2, 3, 130}) {
    const std::int64_t n = 301;
    const std::vector<double> got =
        normal({n}, Random{kKey, {}}, DType::f32, Device::cpu, first).to_vector();
    for (std::int64_t e = 0; e < n; ++e) {
      const auto number = static_cast<std::uint64_t>(first + e);
      const std::vector<std::uint32_t> words = reference_words(kKey, number / 4, 0);
      const std::size_t pair = number % 4 / 2 * 2;
      const double u = words[pair] * 0x1p-32 + 0x1p-33, v = words[pair + 1] * 0x1p-32 + 0x1p-33;
      const double angle = 2 * M_PI * v;
      const double want =
          std::sqrt(-2 * std::log(u)) * (number % 2 == 0 ? std::sin(angle) : std::cos(angle));
      REQUIRE(got[static_cast<std::size_t>(e)] == doctest::Approx(want).epsilon(1e-6).scale(4));
    }
  }
}

TEST_CASE("a number does not depend on how many are drawn with it, nor on the threads") {
  const Random random{kKey, {}};
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  const std::vector<double> all = normal({100000}, random, DType::f32, Device::cpu).to_vector();
  omp_set_num_threads(3);
  CHECK(normal({100000}, random, DType::f32, Device::cpu).to_vector() == all);
  omp_set_num_threads(threads);
  for (const std::int64_t first : {1, 5, 126, 99871}) {
    const std::vector<double> some =
        normal({129}, random, DType::f32, Device::cpu, first).to_vector();
    CHECK(std::equal(some.begin(), some.end(), all.begin() + first));
  }
}

TEST_CASE("normals have the moments of a standard normal") {
  const std::int64_t n = 1 << 18;
  const std::vector<double> x = normal({n}, Random{3, {}}, DType::f32, Device::cpu).to_vector();
  double sum = 0, squares = 0, fourth = 0;
  for (const double value : x) {
    sum += value;
    squares += value * value;
    fourth += value * value * value * value;
  }
  const double sigma = 1 / std::sqrt(static_cast<double>(n));  // of the mean
  CHECK(std::abs(sum / n) < 4 * sigma);
  CHECK(std::abs(squares / n - 1) < 4 * std::sqrt(2.0) * sigma);
  CHECK(std::abs(fourth / n - 3) < 4 * std::sqrt(96.0) * sigma);
}

TEST_CASE("step and key change every draw; an undefined step is step 0") {
  const auto draw = [](const Random& random) {
    return uniform({64}, random, DType::f32, Device::cpu).to_vector();
  };
  CHECK(draw({kKey, {}}) == draw({kKey, step_tensor(0)}));
  CHECK(draw({kKey, {}}) != draw({kKey, step_tensor(1)}));
  CHECK(draw({kKey, {}}) != draw({kKey + 1, {}}));
}

TEST_CASE("forks are distinct, repeatable and keep the step") {
  const Random root{42, step_tensor(5)};
  std::set<std::uint64_t> keys{root.key};
  for (std::uint64_t purpose = 0; purpose < 1000; ++purpose) {
    const Random child = root.fork(purpose);
    CHECK(child.step.item() == 5);
    CHECK(child.key == root.fork(purpose).key);
    keys.insert(child.key);
    keys.insert(Random{43, {}}.fork(purpose).key);
    keys.insert(child.fork(purpose).key);
    keys.insert(child.fork(0).fork(1).key);
  }
  CHECK(keys.size() == 4001);
  CHECK(fork(root, Purpose::train).key != fork(root, Purpose::evaluate).key);
  CHECK(fork(root, Purpose::train).key == root.fork(2).key);
}

TEST_CASE("flipping one bit of the key flips about half of the bits of a fork") {
  for (int bit = 0; bit < 64; ++bit) {
    int flipped = 0;
    for (std::uint64_t purpose = 0; purpose < 16; ++purpose) {
      const std::uint64_t a = Random{kKey, {}}.fork(purpose).key;
      const std::uint64_t b = Random{kKey ^ (std::uint64_t{1} << bit), {}}.fork(purpose).key;
      flipped += __builtin_popcountll(a ^ b);
    }
    CHECK(std::abs(flipped - 16 * 32) < 6 * 16);  // 6 standard deviations of 1024 fair bits
  }
}

TEST_CASE("random draws refuse a bad dtype, start and step") {
  const Random random{1, {}};
  CHECK_THROWS_WITH_AS((void)uniform({2}, random, DType::i32, Device::cpu),
                       "uniform: expected dtype f32 or f64, got i32", Error);
  CHECK_THROWS_WITH_AS((void)normal({2}, random, DType::f32, Device::cpu, -1),
                       "normal: the first number must not be negative, got -1", Error);
  const Random bad{1, Tensor::zeros({1}, DType::f32, Device::cpu)};
  CHECK_THROWS_WITH_AS((void)normal({2}, bad, DType::f32, Device::cpu),
                       "normal: the random step must be i32[1]@cpu, got f32[1]@cpu", Error);
}

#if defined(SKYTAPE_CUDA) && !defined(SKYTAPE_CUDA_SIMULATED)
TEST_CASE("words, uniforms and normals are those of cuRAND's Philox") {
#ifndef SKYTAPE_HAVE_CURAND
  std::cout << "skipped, PORTABLE=1 leaves out cuRAND's host library: cuRAND's Philox\n";
#else
  // cuRAND's host generator needs no GPU. It hands out 4 numbers of each of 2^16 subsequences in
  // turn, then the next 4 of each: group g is counter g / 2^16 of subsequence g % 2^16.
  constexpr std::size_t kSubsequences = 1 << 16, kGroups = kSubsequences + 8;
  curandGenerator_t generator = nullptr;
  REQUIRE(curandCreateGeneratorHost(&generator, CURAND_RNG_PSEUDO_PHILOX4_32_10) ==
          CURAND_STATUS_SUCCESS);
  const auto rewind = [&] {
    REQUIRE(curandSetPseudoRandomGeneratorSeed(generator, kKey) == CURAND_STATUS_SUCCESS);
    REQUIRE(curandSetGeneratorOffset(generator, 0) == CURAND_STATUS_SUCCESS);
  };
  std::vector<unsigned> words(kGroups * 4);
  std::vector<float> uniforms(kGroups * 4), normals(kGroups * 4);
  rewind();
  REQUIRE(curandGenerate(generator, words.data(), words.size()) == CURAND_STATUS_SUCCESS);
  rewind();
  REQUIRE(curandGenerateUniform(generator, uniforms.data(), uniforms.size()) ==
          CURAND_STATUS_SUCCESS);
  rewind();
  REQUIRE(curandGenerateNormal(generator, normals.data(), normals.size(), 0, 1) ==
          CURAND_STATUS_SUCCESS);
  (void)curandDestroyGenerator(generator);
  for (const std::size_t group :
       {std::size_t{0}, std::size_t{1}, std::size_t{777}, kSubsequences, kSubsequences + 5}) {
    const std::size_t counter = group / kSubsequences, subsequence = group % kSubsequences;
    const philox::Words ours = philox::draw(kKey, counter, subsequence);
    const Random random{kKey, step_tensor(static_cast<int>(subsequence))};
    const auto first = static_cast<std::int64_t>(counter * 4);
    const std::vector<double> u = uniform({4}, random, DType::f32, Device::cpu, first).to_vector();
    const std::vector<double> z = normal({4}, random, DType::f32, Device::cpu, first).to_vector();
    for (std::size_t k = 0; k < 4; ++k) {
      CHECK(ours.w[k] == words[group * 4 + k]);
      CHECK(u[k] == uniforms[group * 4 + k]);
      CHECK(z[k] == doctest::Approx(normals[group * 4 + k]).epsilon(1e-6).scale(4));
    }
  }
#endif
}
#endif
