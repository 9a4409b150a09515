// The two builds of the kernels behind layout.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/core/device.hpp"
#include "tensor/launch/strided.hpp"

namespace skytape::tensor {

// Entries are moved as bytes of `size` 4 or 8; operand a of the loop is read, b is written.
void copy_strided_on(Cpu, const StridedLoop& loop, std::size_t size, const void* from, void* to);
void copy_strided_on(Cuda, const StridedLoop& loop, std::size_t size, const void* from, void* to);
/// from: [batch, n, m] -> to: [batch, m, n].
void transpose_on(Cpu, std::int64_t batch, std::int64_t n, std::int64_t m, std::size_t size,
                  const void* from, void* to);
void transpose_on(Cuda, std::int64_t batch, std::int64_t n, std::int64_t m, std::size_t size,
                  const void* from, void* to);

}  // namespace skytape::tensor
