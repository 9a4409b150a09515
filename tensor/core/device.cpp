#include "tensor/core/device.hpp"

#include "tensor/core/on_device.hpp"
#include "tensor/core/storage_plan.hpp"

namespace skytape {

std::string cuda_fault() {
  if constexpr (kHaveCuda) {
    return cuda_fault_on(Cuda{});
  } else {
    return "this program was built without CUDA (make CUDA=1)";
  }
}

void use_gpu([[maybe_unused]] int number) {
  if constexpr (kHaveCuda) use_gpu_on(Cuda{}, number);
}

void synchronize(Device device) {
  if (device == Device::cuda) on_cuda([](Cuda tag) { synchronize_on(tag); });
}

}  // namespace skytape
