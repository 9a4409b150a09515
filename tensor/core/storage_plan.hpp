// The CUDA half of storage.cpp, device.cpp and free_memory.cpp (launch/storage.cu).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tensor/core/device.hpp"

struct CUstream_st;  // CUDA's

namespace skytape {

namespace cuda {
CUstream_st* stream();  // as launch/cuda.hpp has it, which only nvcc can read
}

/// While one lives, no tensor gets a block of GPU memory that another one lets go of: work on
/// another stream may still use it. One at a time.
class KeptBlocks {
 public:
  KeptBlocks();
  ~KeptBlocks();
  KeptBlocks(const KeptBlocks&) = delete;
  KeptBlocks& operator=(const KeptBlocks&) = delete;
};

void* allocate_on(Cuda, std::size_t bytes);
void free_on(Cuda, void* data);
void trim_on(Cuda);
void* allocate_for_graphs_on(Cuda, std::size_t bytes);
void free_for_graphs_on(Cuda, void* data);
void copy_cuda_bytes(void* target, Device target_device, const void* source, Device source_device,
                     std::size_t bytes);

std::string cuda_fault_on(Cuda);
void use_gpu_on(Cuda, int number);
void synchronize_on(Cuda);

std::int64_t free_bytes_on(Cuda);

}  // namespace skytape
