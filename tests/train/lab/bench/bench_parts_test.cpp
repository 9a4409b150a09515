#include "train/lab/bench/bench_parts.hpp"

#include <omp.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "tensor/core/error.hpp"
#include "tests/support/doctest.hpp"
#include "train/lab/bench/bench.hpp"

using namespace skytape;
using namespace skytape::train;

TEST_CASE("op times are sorted into the parts of a step, unknown ones into the rest") {
  const OpSeconds seconds = {{"attention", 0.3},   {"attention_layer", 0.1}, {"linear", 0.02},
                             {"matmul", 0.01},     {"project_heads", 0.07},  {"merge_heads", 0.04},
                             {"mlp", 0.05},        {"classify", 0.01},       {"look_up", 0.015},
                             {"norm_pool", 0.005}, {"optimiser", 0.01},      {"data", 0.03}};
  const StepParts parts = step_parts(seconds, 10);
  CHECK(parts.attention == doctest::Approx(40));
  CHECK(parts.products == doctest::Approx(20));
  CHECK(parts.rest == doctest::Approx(2));
  CHECK(parts.optimiser == doctest::Approx(1));
  CHECK(parts.data == doctest::Approx(3));
  CHECK(parts.total() == doctest::Approx(66));
}

TEST_CASE("the serial share is one thread's time alone, and unknown where it cannot be measured") {
  const int threads = omp_get_max_threads();
  const char* const waiting = std::getenv("OMP_WAIT_POLICY");
  const std::string before = waiting == nullptr ? "" : waiting;
  const auto spin = [](double seconds) {  // of this thread's processor time
    const auto now = [] {
      timespec t{};
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
      return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
    };
    for (const double end = now() + seconds; now() < end;) {
    }
  };
  const auto half_alone = [&] {
    spin(0.1);
#pragma omp parallel
    spin(0.1);
  };
  setenv("OMP_WAIT_POLICY", "passive", 1);
  omp_set_num_threads(4);
  CHECK(serial_share(half_alone).value_or(-1) == doctest::Approx(0.5).epsilon(0.1));
  omp_set_num_threads(1);
  CHECK(!serial_share(half_alone).has_value());
  omp_set_num_threads(4);
  setenv("OMP_WAIT_POLICY", "active", 1);
  CHECK(!serial_share(half_alone).has_value());
  omp_set_num_threads(threads);
  setenv("OMP_WAIT_POLICY", before.c_str(), 1);
  if (waiting == nullptr) unsetenv("OMP_WAIT_POLICY");
}

TEST_CASE("of an even number of times the median is the mean of the two in the middle") {
  using Clock = std::chrono::steady_clock;
  std::vector<double> own;  // milliseconds of each call, by its own clock
  const auto nap = [&] {
    const auto start = Clock::now();
    const std::size_t call = own.size();
    std::this_thread::sleep_for(
        std::chrono::milliseconds(std::array{1, 90, 90, 2, 45, 5}.at(call)));
    own.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  };
  BenchCase c;
  c.steps = 4;  // after two that are not timed
  const Timing timing = measure(c, nap);
  REQUIRE(own.size() == 6);
  std::sort(own.begin() + 2, own.end());
  REQUIRE(own[4] - own[3] > 20);
  CHECK(std::abs(timing.median_ms - (own[3] + own[4]) / 2) < 8);
  CHECK(std::abs(timing.min_ms - own[2]) < 8);
}

TEST_CASE("the resident memory of a case is that case's, not of what came before") {
  constexpr std::size_t kBefore = std::size_t{1} << 30;
  std::vector<char>(kBefore, 1).clear();  // touched and given back
  BenchCase c;
  c.attention = "vmean";
  c.n = 64;
  c.batch = 1;
  c.steps = 1;
  const BenchResult result = run_bench(c);
  CHECK(result.rss_bytes >= result.peak_bytes);
  CHECK(result.rss_bytes < static_cast<std::int64_t>(kBefore));
}

TEST_CASE("cases are taken in turn; each is answered once, with the rates of all its rounds") {
  std::vector<BenchCase> cases(2);
  for (BenchCase& c : cases) {
    c.attention = "vmean";
    c.n = cases[0].n == 16 ? 32 : 16;
    c.batch = 1;
    c.steps = 1;
    c.attention_alone = false;
    c.gemm_rate = true;
  }
  std::vector<std::int64_t> lengths;
  run_in_turn(cases, 2, [&](const BenchCase& c, const BenchResult& result) {
    lengths.push_back(c.n);
    CHECK(result.gemm_rates.size() == 4);  // before and after
    CHECK(result.step->median_ms > 0);
  });
  CHECK(lengths == std::vector<std::int64_t>{16, 32});
}

TEST_CASE("a size gives the model the shape of an encoder; the recipe's other settings stay") {
  BenchCase c;
  c.attention = "linformer";
  c.n = 32;
  c.batch = 1;
  c.features = 8;
  const nn::ModelConfig papers = configure(c).model;
  CHECK(papers.width == 64);
  CHECK(papers.norm == nn::Norm::pre);

  c.size = "minilm";
  c.layers = 1;
  for (const char* recipe : {"skytape", "skyformer"}) {
    c.recipe = recipe;
    const nn::ModelConfig model = configure(c).model;
    CHECK(model.layers == 1);
    CHECK(model.width == 384);
    CHECK(model.width_of_head() == 32);
    CHECK(model.ff_width == 1536);
    CHECK(model.norm == nn::Norm::post);
    CHECK(model.vocabulary == 30522);
    CHECK(model.pooling == papers.pooling);
  }
  c.steps = 1;
  c.attention_alone = false;
  CHECK(run_bench(c).parameters > 30522 * 384);

  c.layers = 0;
  c.size = "bert-base";
  CHECK(configure(c).model.layers == 12);
  CHECK(configure(c).model.width_of_head() == 64);
  c.size = "bert";
  CHECK_THROWS_WITH_AS((void)configure(c), doctest::Contains("unknown size 'bert'"), UsageError);
}

TEST_CASE("the bench splits a step into parts that are all there") {
  BenchCase c;
  c.attention = "skyformer";
  c.n = 64;
  c.batch = 2;
  c.features = 8;
  c.steps = 2;
  const BenchResult result = run_bench(c);
  REQUIRE(result.parts.has_value());
  for (const double part : {result.parts->attention, result.parts->products, result.parts->rest,
                            result.parts->optimiser, result.parts->data}) {
    CHECK(part > 0);
  }
}
