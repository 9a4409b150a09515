// Kernels that may be started early: what they take, and that nothing but waiting hands it out.
#ifdef SKYTAPE_CUDA_SIMULATED
#include <type_traits>

#include "tensor/core/tensor.hpp"
#include "tensor/launch/cuda.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;

namespace {

struct Arguments {
  float* x;
  float value;
};

void waiting_kernel(cuda::Late<Arguments> late) {
  const Arguments& in = late.wait();
  in.x[threadIdx.x] = in.value;
}

template <class L>
concept gives_its_arguments_away = requires(L late) {
  late.arguments_;
};

}  // namespace

TEST_CASE("a kernel that may be started early gets its arguments by waiting, and in no other way") {
  using Late = cuda::Late<Arguments>;
  static_assert(!gives_its_arguments_away<Late>);
  static_assert(!std::is_convertible_v<Late, Arguments> && !std::is_aggregate_v<Late>);
  static_assert(cuda::kLate<Late> && !cuda::kLate<Arguments> && !cuda::kLate<Late, int>);
  const Tensor x = Tensor::zeros({32}, DType::f32, Device::cuda);
  cuda::launch({"waiting", 1, 32}, waiting_kernel, Arguments{x.data<float>(), 3});
  CHECK(x.to_vector() == std::vector<double>(32, 3));
}
#endif
