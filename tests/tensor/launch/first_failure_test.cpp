// An exception in a parallel region reaches whoever called: without care it ends the process.
#include "tensor/launch/first_failure.hpp"

#include <atomic>

#include "attention/feature_maps/gaussian_kernel_tiles.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/tensor.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;

namespace {

constexpr int kTasks = 1000;

/// kTasks heads of one row.
attention::KernelInputs many_heads() {
  const auto zeros = [](Shape shape) { return Tensor::zeros(shape, DType::f32, Device::cpu); };
  return {zeros({kTasks, 1, 4}), zeros({kTasks, 2, 4}), zeros({kTasks, 1}), zeros({kTasks, 2})};
}

}  // namespace

TEST_CASE("the first exception of a parallel region comes out of it, and ends its tasks") {
  cpu::FirstFailure failure;
  std::atomic<int> done = 0;
#pragma omp parallel for schedule(static) num_threads(4)
  for (int task = 0; task < kTasks; ++task) {
    failure.guard([&] {
      if (task % 250 == 1) throw DataError("no room");  // the second task of each thread
      ++done;
    });
  }
  CHECK_THROWS_WITH_AS(failure.rethrow(), "no room", DataError);
  CHECK(done.load() <= 4);  // each thread has left its tasks
  CHECK_NOTHROW(cpu::FirstFailure().rethrow());
}

TEST_CASE("tiles of a kernel product hand on what a thread throws, in its scratch memory too") {
  const attention::KernelInputs in = many_heads();
  const auto fail = [] { throw DataError("no room"); };
  const auto made = [] { return 1; };
  const auto not_made = [&] {
    fail();
    return 1;
  };
  const auto ignore = [](int, auto...) {};
  const auto fail_in_task = [&](int, auto...) { fail(); };
  using attention::kernel_tiles::each_chunk;
  CHECK_THROWS_WITH_AS(each_chunk(in, not_made, ignore), "no room", DataError);
  CHECK_THROWS_WITH_AS(each_chunk(in, made, fail_in_task), "no room", DataError);
  CHECK_NOTHROW(each_chunk(in, made, ignore));
}
