// Functions of f32 that a GPU has in one instruction, CUDA only.
#pragma once

#ifdef SKYTAPE_CUDA_SIMULATED
#include <tensor_core.hpp>  // of tests/cuda_simulator
#endif

namespace skytape::cuda::ptx {

#ifdef SKYTAPE_CUDA_SIMULATED
using cuda_simulator::exp2;
using cuda_simulator::reciprocal;
using cuda_simulator::reciprocal_sqrt;
#else
/// 2^x, to two units in the last place; one instruction, where expf takes about eight.
__device__ __forceinline__ float exp2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
/// 1 / x, to one unit in the last place.
__device__ __forceinline__ float reciprocal(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
/// 1 / sqrt(x), to two units in the last place.
__device__ __forceinline__ float reciprocal_sqrt(float x) {
  float result;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
#endif

}  // namespace skytape::cuda::ptx
