// The precision of f32 matrix products, a setting of each device.
#pragma once

#include "tensor/core/device.hpp"

namespace skytape {

/// The precision of matrix products: true fp32, or with inputs rounded to tf32 or bf16.
enum class Precision { fp32, tf32, bf16 };

/// Sets the precision of f32 matrix products on the device. Throws where the device lacks it.
void set_precision(Device device, Precision precision);
[[nodiscard]] Precision precision(Device device);

/// Returns the meaning of `auto` on the device: bf16 on GPUs that have it (sm_80 and newer),
/// elsewhere fp32.
[[nodiscard]] Precision automatic_precision(Device device);

/// Another precision of the device's products for a while: the iterative inverse's are fp32.
class PrecisionScope {
 public:
  PrecisionScope(Device device, Precision inside) : device_(device), outside_(precision(device)) {
    if (inside != outside_) set_precision(device_, inside);
  }
  ~PrecisionScope() {
    if (precision(device_) != outside_) set_precision(device_, outside_);
  }
  PrecisionScope(const PrecisionScope&) = delete;
  PrecisionScope& operator=(const PrecisionScope&) = delete;

 private:
  Device device_;
  Precision outside_;
};

}  // namespace skytape
