// Tells how much memory is free.
#pragma once

#include <cstdint>
#include <filesystem>

#include "tensor/core/device.hpp"

namespace skytape {

/// Bytes that this process can still take on the device. On the CPU what the system has available,
/// or less where the process's control groups or address space are limited.
[[nodiscard]] std::int64_t free_bytes(Device device);

/// Bytes that the process's control group and the groups around it leave, of version 1 or 2; the
/// largest number where none has a limit. `root` is the folder of proc and sys.
[[nodiscard]] std::int64_t left_by_groups(const std::filesystem::path& root = "/");

}  // namespace skytape
