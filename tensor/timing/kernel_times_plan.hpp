// The CUDA half of kernel_times.cpp (kernel_times.cu).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tensor/core/device.hpp"
#include "tensor/timing/kernel_times.hpp"

namespace skytape {

KernelTrace trace_kernels_on(Cuda, const std::function<void()>& f);
std::string kernel_name_on(Cuda, const void* function);
std::vector<LaunchTime> time_launches_on(Cuda, double busy_ms, const std::function<void()>& f);
int multiprocessors_on(Cuda);

}  // namespace skytape
