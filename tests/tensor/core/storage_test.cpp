#include "tensor/core/storage.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>

#include "tensor/core/tensor.hpp"
#include "tests/support/close.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/doctest.hpp"
#ifdef SKYTAPE_CUDA_SIMULATED
#include "tensor/kernels/elementwise.hpp"
#include "tensor/launch/cuda.hpp"
#include "tests/cuda_simulator/simulator.hpp"
#endif

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

TEST_CASE("where the system has no memory left, cached blocks go back to it") {
  const auto take = [](std::int64_t mib) {
    (void)Tensor::empty({mib << 18}, DType::f32, Device::cpu);
  };
  release_cached_memory(Device::cpu);
  take(64);  // in the cache from now on
  std::int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_AS, &before) == 0);
  rlimit limit = before;
  limit.rlim_cur = pages * ::sysconf(_SC_PAGESIZE) + (32 << 20);
  REQUIRE(::setrlimit(RLIMIT_AS, &limit) == 0);
  const std::string fits = error_text([&] { take(80); });
  const std::string does_not = error_text([&] { take(160); });
  REQUIRE(::setrlimit(RLIMIT_AS, &before) == 0);
  CHECK(fits == "");
  CHECK(does_not.find("out of memory: could not allocate 167772160 bytes on the cpu") == 0);
}
#endif

#ifdef SKYTAPE_CUDA_SIMULATED
TEST_CASE("a GPU that is too old for the kernels is none, and the reason says so") {
  CHECK(cuda_fault() == "");
  const cuda_simulator::ComputeCapability turing(7, 5);
  CHECK(cuda_fault() == "GPU 0 has compute capability 7.5, this program needs 8.0 or newer");
}

TEST_CASE("a program without code for the GPU says which CUDA_ARCH it is to be compiled for") {
  const Tensor x = Tensor::full({3}, 2, DType::f32, Device::cuda);
  const std::string what =
      "GPU 0 has compute capability 8.6, for which this program was not compiled: make CUDA=1 "
      "CUDA_ARCH=86";
  const cuda_simulator::ComputeCapability ampere(8, 6);
  for (const cudaError_t status : {cudaErrorNoKernelImageForDevice, cudaErrorInvalidDeviceFunction,
                                   cudaErrorUnsupportedPtxVersion}) {
    const cuda_simulator::NotCompiled other(status);
    const std::string launch = error_text([&] { (void)tensor::affine(x, 2); });
    CHECK_MESSAGE(launch.find("did not start: ") != std::string::npos, launch);
    CHECK_MESSAGE(launch.find(what) != std::string::npos, launch);
    const std::string call = error_text([] { cuda::allow_shared("kernel", nullptr, 1 << 16); });
    CHECK_MESSAGE(call.find("cudaFuncSetAttribute") == 0, call);
    CHECK_MESSAGE(call.find(what) != std::string::npos, call);
  }
  CHECK(tensor::affine(x, 2).to_vector() == std::vector<double>{4, 4, 4});
}
#endif

TEST_CASE("a device that is not there is refused") {
  if (cuda_available()) return;
  const std::string text = error_text([] { (void)Tensor::zeros({2}, DType::f32, Device::cuda); });
  CHECK(text.find("device cuda:") == 0);
}
