#include "train/ranks/device_sum.hpp"

#include <span>

#include "tensor/core/error.hpp"
#include "tensor/core/on_device.hpp"
#include "train/ranks/device_sum_plan.hpp"

namespace skytape::train {

bool DeviceSum::available() {
  if constexpr (kHaveCuda) return device_sum_available_on(Cuda{});
  return false;
}

DeviceSum::DeviceSum([[maybe_unused]] const Ranks& ranks) {
  ENSURE(available(), "DeviceSum: this program was built without NCCL");
  if constexpr (kHaveCuda) {
    DeviceSumId id{};
    if (ranks.first()) id = new_device_sum_id_on(Cuda{});
    ranks.broadcast(std::span<std::byte>(id));
    gpu_ = make_device_sum_on(Cuda{}, id, ranks.rank(), ranks.size());
  }
}

void DeviceSum::submit([[maybe_unused]] Tensor& numbers) const {
  ENSURE(numbers.dtype() == DType::f32 && numbers.device() == Device::cuda,
         "DeviceSum: expected f32 numbers on the GPU, got ", numbers);
  if constexpr (kHaveCuda) device_sum_on(Cuda{}, *gpu_, numbers);
}

}  // namespace skytape::train
