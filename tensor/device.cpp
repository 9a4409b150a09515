#include "tensor/device.hpp"

namespace skytape {

// CUDA half, in storage.cu.
bool gpu_answers();
void synchronize_on(Cuda);
void set_precision_on(Cuda, Precision precision);

namespace {

/// What a device context remembers between calls.
Precision& stored_precision(Device device) {
  static Precision per_device[2] = {Precision::fp32, Precision::fp32};
  return per_device[device == Device::cuda ? 1 : 0];
}

}  // namespace

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

void set_precision(Device device, Precision precision) {
  if (device == Device::cpu) {
    if (precision != Precision::fp32) {
      throw UsageError("precision: the cpu computes matrix products in fp32 only");
    }
  } else {
    on_device(device, [&](auto tag) {
      if constexpr (std::is_same_v<decltype(tag), Cuda>) set_precision_on(tag, precision);
    });
  }
  stored_precision(device) = precision;
}

Precision precision(Device device) { return stored_precision(device); }

}  // namespace skytape
