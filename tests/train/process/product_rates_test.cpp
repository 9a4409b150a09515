#include "train/process/product_rates.hpp"

#include <cmath>
#include <string>
#include <vector>

#include "tensor/core/on_device.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape::train;

TEST_CASE("tensor cores show in the rates of tf32 and bf16 products") {
  CHECK(why_no_tensor_cores({50'000, 300'000, 700'000}).empty());
  CHECK(why_no_tensor_cores({50'000, 100'000, 100'000}).empty());
  // The rates of bf16 under cuBLAS's pedantic mode, and of a device without tensor cores.
  CHECK(why_no_tensor_cores({50'000, 300'000, 49'000}) ==
        "bf16 products run at 0.98 times the rate of fp32, expected at least 2");
  CHECK(why_no_tensor_cores({50'000, 50'000, 60'000}) ==
        "tf32 products run at 1.00 times the rate of fp32, expected at least 2; "
        "bf16 products run at 1.20 times the rate of fp32, expected at least 2");
}

TEST_CASE("GEMM throughput that moved by more than a fifth is reported") {
  CHECK(why_not_comparable({}).empty());
  CHECK(why_not_comparable(std::vector{100.0, 119.0, 110.0}).empty());
  const std::string why = why_not_comparable(std::vector{110.0, 121.0, 100.0});
  CHECK(why.starts_with("the GEMM throughput moved between 100 and 121 GFLOP/s meanwhile"));
}

TEST_CASE("the iterative inverse is timed on CUDA, and refused where there is none") {
  if (!skytape::kHaveCuda) {
    CHECK_THROWS_AS((void)measure_inverse_ms(skytape::Precision::bf16, 1, 8, 1), skytape::Error);
    return;
  }
  if (!skytape::test::cuda_or_skip()) return;
  for (const auto precision : {skytape::Precision::tf32, skytape::Precision::bf16}) {
    const double ms = measure_inverse_ms(precision, 1, 8, 1);
    CHECK(std::isfinite(ms));
    CHECK(ms > 0);
  }
}

TEST_CASE("what kernels cost is measured on CUDA, and refused where there is none") {
  if (!skytape::kHaveCuda) {
    CHECK_THROWS_AS((void)measure_gpu_facts(), skytape::Error);
    return;
  }
  if (!skytape::test::cuda_or_skip()) return;
  const GpuFacts facts = measure_gpu_facts();
  CHECK(facts.node_ns > 0);
  CHECK((facts.dependent_node_ns > 0) == facts.why_no_dependent.empty());
  CHECK(facts.mma_tflops > 0);
#ifdef SKYTAPE_CUDA_SIMULATED
  CHECK(facts.clock_mhz == doctest::Approx(1000).epsilon(0.01));
#else
  CHECK(facts.clock_mhz > 100);
  CHECK(facts.clock_mhz < 5000);
#endif
}
