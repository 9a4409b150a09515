#include "tensor/gemm/precision.hpp"

#include "tensor/core/on_device.hpp"
#include "tensor/gemm/gemm_bf16.hpp"
#include "tensor/gemm/gemm_plan.hpp"

namespace skytape {
namespace {

/// Returns the device's precision, which lasts between calls.
Precision& stored_precision(Device device) {
  static Precision per_device[2] = {Precision::fp32, Precision::fp32};
  return per_device[device == Device::cuda ? 1 : 0];
}

}  // namespace

void set_precision(Device device, Precision precision) {
  if (device == Device::cpu) {
    if (precision == Precision::tf32) {
      throw UsageError("precision: the cpu computes matrix products in fp32 or bf16, not in tf32");
    }
    const char* const why_not = tensor::why_no_bf16_on_cpu();
    if (precision == Precision::bf16 && why_not != nullptr) {
      throw UsageError(join("precision: no bf16 products on the cpu: ", why_not));
    }
  } else {
    on_cuda([](Cuda) {});  // an error in a build without CUDA
  }
  stored_precision(device) = precision;
}

Precision precision(Device device) { return stored_precision(device); }

Precision automatic_precision(Device device) {
  const bool bf16 = device == Device::cuda && on_cuda([](Cuda tag) { return has_bf16_on(tag); });
  return bf16 ? Precision::bf16 : Precision::fp32;
}

}  // namespace skytape
