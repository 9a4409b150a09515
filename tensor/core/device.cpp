#include "tensor/core/device.hpp"

namespace skytape {

// CUDA half, in storage.cu.
bool gpu_answers();
void synchronize_on(Cuda);

bool cuda_available() {
  if constexpr (kHaveCuda) {
    return gpu_answers();
  } else {
    return false;
  }
}

void synchronize(Device device) {
  if (device == Device::cpu) return;
  on_device(device, [](auto tag) {
    if constexpr (std::is_same_v<decltype(tag), Cuda>) synchronize_on(tag);
  });
}

}  // namespace skytape
