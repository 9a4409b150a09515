// CUDA half of storage.cpp and device.cpp: the stream, cuBLAS, and the stream-ordered pool.
#include "tensor/storage.hpp"

#include "tensor/cuda.hpp"

namespace skytape {
namespace cuda {
namespace {

/// Created on first use; one per process, as everything runs on device 0 and one stream.
struct Context {
  cudaStream_t stream = nullptr;
  cublasHandle_t cublas = nullptr;
  cudaMemPool_t pool = nullptr;

  Context() {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
      throw Error("device cuda: no GPU answers on this machine (use --device cpu)");
    }
    CUDA_CHECK(cudaSetDevice(0));
    CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA_CHECK(cublasCreate(&cublas));
    CUDA_CHECK(cublasSetStream(cublas, stream));
    CUDA_CHECK(cublasSetMathMode(cublas, CUBLAS_PEDANTIC_MATH));  // true fp32 until asked otherwise
    CUDA_CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    std::uint64_t keep = UINT64_MAX;  // freed blocks stay in the pool
    CUDA_CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
  }
};

Context& context() {
  static Context* const instance = new Context;  // never destroyed: tensors may outlive main
  return *instance;
}

}  // namespace

cudaStream_t stream() { return context().stream; }
cublasHandle_t cublas() { return context().cublas; }

}  // namespace cuda

bool gpu_answers() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

void synchronize_on(Cuda) { CUDA_CHECK(cudaStreamSynchronize(cuda::stream())); }

void set_precision_on(Cuda, Precision precision) {
  // bf16 rounding of f32 operands has its own compute type (gemm.cu); tf32 is a math mode.
  CUDA_CHECK(cublasSetMathMode(cuda::cublas(), precision == Precision::tf32
                                                   ? CUBLAS_TF32_TENSOR_OP_MATH
                                                   : CUBLAS_PEDANTIC_MATH));
}

void* allocate_on(Cuda, std::size_t bytes) {
  void* data = nullptr;
  CUDA_CHECK(cudaMallocAsync(&data, bytes, cuda::stream()));
  return data;
}
void free_on(Cuda, void* data) { cudaFreeAsync(data, cuda::stream()); }

void trim_on(Cuda) {
  cudaMemPool_t pool = nullptr;
  CUDA_CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
  CUDA_CHECK(cudaMemPoolTrimTo(pool, 0));
}

void copy_cuda_bytes(void* target, Device target_device, const void* source, Device source_device,
                     std::size_t bytes) {
  CUDA_CHECK(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDefault, cuda::stream()));
  // Device to device stays on the stream; anything that touches the host waits.
  if (target_device == Device::cpu || source_device == Device::cpu) {
    CUDA_CHECK(cudaStreamSynchronize(cuda::stream()));
  }
}

}  // namespace skytape
