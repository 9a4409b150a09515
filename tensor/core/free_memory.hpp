// Tells how much memory is free.
#pragma once

#include <cstdint>

#include "tensor/core/device.hpp"

namespace skytape {

/// Bytes that this process can still take on the device. On the CPU what the system has available,
/// or less where the process's control group or address space is limited.
[[nodiscard]] std::int64_t free_bytes(Device device);

}  // namespace skytape
