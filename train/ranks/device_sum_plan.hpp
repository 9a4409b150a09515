// The CUDA half of device_sum.cpp (device_sum.cu).
#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "train/ranks/device_sum.hpp"

namespace skytape::train {

/// The id by which NCCL's ranks find each other.
using DeviceSumId = std::array<std::byte, 128>;
bool device_sum_available_on(Cuda);
DeviceSumId new_device_sum_id_on(Cuda);
std::shared_ptr<DeviceSum::Gpu> make_device_sum_on(Cuda, const DeviceSumId& id, int rank, int size);
void device_sum_on(Cuda, const DeviceSum::Gpu& gpu, Tensor& numbers);

}  // namespace skytape::train
