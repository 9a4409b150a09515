#include "train/bench/product_rates.hpp"

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
