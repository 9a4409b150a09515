#include "tensor/core/storage.hpp"

#include <cstdint>

#include "tensor/core/tensor.hpp"
#include "tests/support/close.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;
using namespace skytape::test;

TEST_CASE("live bytes rise with a tensor and fall with its last handle") {
  for_each_device([](Device device) {
    const std::int64_t before = memory_stats(device).live_bytes;
    {
      const Tensor t = Tensor::zeros({1000}, DType::f32, device);
      const Tensor other = t.slice(0, 10);
      const std::int64_t held = memory_stats(device).live_bytes - before;
      CHECK(held >= 4000);
      CHECK(held <= 4500);  // size classes cost at most 12.5 %
    }
    CHECK(memory_stats(device).live_bytes == before);
  });
}

TEST_CASE("peak bytes remember the maximum until they are reset") {
  for_each_device([](Device device) {
    reset_peak_bytes(device);
    const std::int64_t before = memory_stats(device).live_bytes;
    { const Tensor t = Tensor::zeros({1 << 16}, DType::f64, device); }
    CHECK(memory_stats(device).peak_bytes - before >= 8 << 16);
    reset_peak_bytes(device);
    CHECK(memory_stats(device).peak_bytes == memory_stats(device).live_bytes);
  });
}

TEST_CASE("cpu blocks are aligned to a cache line") {
  for (const std::int64_t size : {1, 3, 17, 1000, 65537}) {
    const Tensor t = Tensor::empty({size}, DType::f32, Device::cpu);
    CHECK(reinterpret_cast<std::uintptr_t>(t.raw()) % 64 == 0);
  }
}

#if !defined(__SANITIZE_ADDRESS__)  // under the sanitizer nothing is cached
TEST_CASE("a block of a size seen before comes from the cache, until the cache is released") {
  { const Tensor t = Tensor::empty({12345}, DType::f32, Device::cpu); }
  const std::int64_t before = memory_stats(Device::cpu).system_allocations;
  for (int i = 0; i < 3; ++i) {
    const Tensor t = Tensor::empty({12345}, DType::f32, Device::cpu);
  }
  CHECK(memory_stats(Device::cpu).system_allocations == before);
  release_cached_memory(Device::cpu);
  const Tensor t = Tensor::empty({12345}, DType::f32, Device::cpu);
  CHECK(memory_stats(Device::cpu).system_allocations == before + 1);
}

TEST_CASE(
    "a smaller request takes a free block of up to twice its size, and counts its own bytes") {
  release_cached_memory(Device::cpu);
  { const Tensor t = Tensor::empty({20000}, DType::f32, Device::cpu); }
  const MemoryStats before = memory_stats(Device::cpu);
  {
    const Tensor t = Tensor::empty({11000}, DType::f32, Device::cpu);
    CHECK(memory_stats(Device::cpu).system_allocations == before.system_allocations);
    CHECK(memory_stats(Device::cpu).live_bytes - before.live_bytes < 50000);
  }
  CHECK(memory_stats(Device::cpu).live_bytes == before.live_bytes);
  // The block goes back with its whole size; one that is far too large is left alone.
  { const Tensor t = Tensor::empty({20000}, DType::f32, Device::cpu); }
  CHECK(memory_stats(Device::cpu).system_allocations == before.system_allocations);
  const Tensor small = Tensor::empty({2000}, DType::f32, Device::cpu);
  CHECK(memory_stats(Device::cpu).system_allocations == before.system_allocations + 1);
}
#endif

TEST_CASE("a device that is not there is refused") {
  if (cuda_available()) return;
  const std::string text = error_text([] { (void)Tensor::zeros({2}, DType::f32, Device::cuda); });
  CHECK(text.find("device cuda:") == 0);
}
