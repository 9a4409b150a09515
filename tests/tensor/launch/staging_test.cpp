#include "tensor/launch/staging.hpp"

#include <cstring>

#include "tensor/kernels/elementwise.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/doctest.hpp"
#ifdef SKYTAPE_CUDA_SIMULATED
#include "tests/cuda_simulator/simulator.hpp"
#endif

using namespace skytape;
using namespace skytape::test;

namespace {

/// Sends nine contents in a row, work on each behind it, and looks at the results.
void send_and_read(Device device) {
  CAPTURE(name(device));
  constexpr std::int64_t kNumbers = 1000;
  Staging staging(4 * kNumbers, device);
  const Tensor place = staging.place().view(0, {kNumbers}, DType::f32);
  std::vector<Tensor> seen;
  for (int i = 0; i < 9; ++i) {
    const std::vector<float> numbers(kNumbers, static_cast<float>(i));
    std::memcpy(staging.host(), numbers.data(), 4 * kNumbers);
    staging.send(4 * kNumbers);
    seen.push_back(tensor::affine(place, 2));
  }
  for (int i = 0; i < 9; ++i) {
    CHECK(seen[static_cast<std::size_t>(i)].to_vector() == std::vector<double>(kNumbers, 2 * i));
  }
}

}  // namespace

TEST_CASE("work sees the contents that were sent last before it, however far the host runs ahead") {
  for_each_device(send_and_read);
}

#ifdef SKYTAPE_CUDA_SIMULATED
TEST_CASE("the copies are waited for, even if their stream runs as late as it may") {
  // The engine's own streams are there before, whichever test comes first, and are not late.
  (void)Tensor::empty({1}, DType::f32, Device::cuda);
  const cuda_simulator::StreamsRunLate late;
  send_and_read(Device::cuda);
}
#endif

TEST_CASE("the place never moves, and more than it holds is refused") {
  for_each_device([](Device device) {
    Staging staging(10, device);
    const void* const place = staging.place().raw();
    CHECK(staging.place().numel() == 3);
    std::memset(staging.host(), 0, 8);
    staging.send(8);
    CHECK(staging.place().raw() == place);
    CHECK_THROWS_AS(staging.send(13), Error);
  });
}
