#include "train/bench/product_rates.hpp"

#include <cmath>

#include "tests/support/devices.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape::train;

TEST_CASE("tensor cores show in the rates of tf32 and bf16 products") {
  CHECK(why_no_tensor_cores({50'000, 300'000, 700'000}).empty());
  CHECK(why_no_tensor_cores({50'000, 100'000, 100'000}).empty());
  // What cuBLAS's pedantic mode would make of bf16, and a device without tensor cores.
  CHECK(why_no_tensor_cores({50'000, 300'000, 49'000}) ==
        "bf16 products run at 0.98 times the rate of fp32, expected at least 2");
  CHECK(why_no_tensor_cores({50'000, 50'000, 60'000}) ==
        "tf32 products run at 1.00 times the rate of fp32, expected at least 2; "
        "bf16 products run at 1.20 times the rate of fp32, expected at least 2");
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
