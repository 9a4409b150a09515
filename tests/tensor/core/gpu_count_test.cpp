// Work for a GPU, counted without one: in every program with CUDA, on any machine.
#ifdef SKYTAPE_CUDA
#include "tensor/core/gpu_count.hpp"

#include <cstddef>
#include <cstring>

#include "tensor/gemm/gemm.hpp"
#include "tensor/gemm/precision.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tensor/movement/layout.hpp"
#include "tests/support/doctest.hpp"
#ifdef SKYTAPE_CUDA_SIMULATED
#include "tensor/launch/cuda.hpp"
#endif

using namespace skytape;

namespace {

Tensor somewhere(const Shape& shape) { return Tensor::empty(shape, DType::f32, Device::cuda); }

/// Returns the kernels that f submits.
template <class F> std::vector<GpuKernel> kernels_of(const F& f) {
  const GpuCount count;
  f();
  return count.kernels();
}

}  // namespace

TEST_CASE("a GPU's kernel counts each array that it takes once, and again where it adds to it") {
  constexpr std::int64_t kBytes = 4 * 3 * 40 * 7;
  const auto kernels = kernels_of([] {
    const Tensor a = somewhere({3, 40, 7}), b = somewhere({3, 40, 7});
    Tensor sum = tensor::add(a, b);
    (void)tensor::affine(a, 2);
    tensor::accumulate(sum, a);
    (void)tensor::transpose(a);
    (void)tensor::affine(a.slice(1, 2), 2);
  });
  REQUIRE(kernels.size() == 5);
  CHECK(kernels[0].work.bytes == 3 * kBytes);
  CHECK(kernels[1].work.bytes == 2 * kBytes);
  CHECK(kernels[2].work.bytes == 3 * kBytes);
  CHECK(kernels[3].work.bytes == 2 * kBytes);
  CHECK(kernels[3].name == "transpose");
  CHECK(kernels[4].work.bytes == 2 * kBytes / 3);
  for (const GpuKernel& kernel : kernels) CHECK_FALSE(kernel.work.product);
}

TEST_CASE("a GPU's sums of many rows count their partial sums, which pass through memory") {
  const auto kernels = kernels_of([] { (void)tensor::sum(somewhere({100000, 5}), 0); });
  REQUIRE(kernels.size() > 1);
  std::int64_t bytes = 0;
  for (const GpuKernel& kernel : kernels) bytes += kernel.work.bytes;
  CHECK(bytes > 4 * 100000 * 5 + 4 * 5);
}

TEST_CASE("a GPU's products count their operations, at the precision that they have") {
  const auto counted = [](Precision precision) {
    return kernels_of([&] {
      const PrecisionScope scope(Device::cuda, precision);
      const Tensor a = somewhere({2, 30, 40}), b = somewhere({2, 40, 50});
      Tensor c = tensor::matmul(a, b);
      tensor::gemm(a, Op::none, b, Op::none, c, 1, 1);
      (void)tensor::matmul(a, somewhere({40, 50}));
    });
  };
  const auto kernels = counted(Precision::bf16);
  REQUIRE(kernels.size() == 3);
  constexpr std::int64_t kOperands = 4 * 2 * (30 * 40 + 40 * 50), kResult = 4 * 2 * 30 * 50;
  CHECK(kernels[0].work.bytes == kOperands + kResult);
  CHECK(kernels[1].work.bytes == kOperands + 2 * kResult);
  CHECK(kernels[2].work.bytes == kOperands + kResult - 4 * 40 * 50);
  for (const GpuKernel& kernel : kernels) {
    CHECK(kernel.work.multiply_adds == 2 * 30 * 40 * 50);
    CHECK(kernel.work.product);
  }
  for (const GpuKernel& kernel : counted(Precision::fp32)) CHECK_FALSE(kernel.work.product);
}

TEST_CASE("parts of a GPU's work are told apart by their ends; values on the host are zeros") {
  Tensor outlives;
  const auto kernels = kernels_of([&] {
    outlives = Tensor::full({64}, 3, DType::f32, Device::cuda);
    GpuCount::end_part("first");
    const Tensor copy = outlives.clone();
    GpuCount::end_part("second");
    CHECK(tensor::affine(copy, 2).to_vector() == std::vector<double>(64, 0));
  });
  REQUIRE(kernels.size() == 3);
  CHECK(kernels[0].part == "first");
  CHECK(kernels[1].part == "second");
  CHECK(kernels[1].name == "copy");
  CHECK(kernels[1].work.bytes == 2 * 4 * 64);
  CHECK(kernels[2].part.empty());
  CHECK_THROWS_AS(kernels_of([] { (void)GpuCount(); }), Error);
}

TEST_CASE("no memory is needed to count what fills a GPU") {
  const auto kernels = kernels_of([] {
    const Tensor a = somewhere({std::int64_t{1} << 36});
    (void)tensor::add(a, a);
  });
  REQUIRE(kernels.size() == 1);
  CHECK(kernels[0].work.bytes == 8 * (std::int64_t{1} << 36));
}

#ifdef SKYTAPE_CUDA_SIMULATED
namespace {

/// Eight bytes of an address, eight of padding.
struct alignas(16) Padded {
  const float* array;
};
void take(Padded) {}

}  // namespace

TEST_CASE("an address in the padding of a kernel's argument is no array that the kernel takes") {
  const auto kernels = kernels_of([] {
    const Tensor taken = somewhere({10}), other = somewhere({1000});
    const float* const words[2] = {taken.data<float>(), other.data<float>()};
    alignas(Padded) std::byte memory[sizeof(Padded)];
    static_assert(sizeof memory == sizeof words);
    std::memcpy(memory, words, sizeof words);
    cuda::launch({"take", 1, 1}, take, reinterpret_cast<const Padded&>(memory));
  });
  REQUIRE(kernels.size() == 1);
  CHECK(kernels[0].work.bytes == 4 * 10);
}
#endif
#endif
