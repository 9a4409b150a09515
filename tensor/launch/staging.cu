// CUDA half of staging.cpp.
#include "tensor/launch/staging.hpp"

#include <array>

#include "tensor/launch/cuda.hpp"

namespace skytape {

/// Contents take three steps, each ordered behind the one before by an event:
///   host -> landing  on the copies' stream, once the main stream has emptied that landing;
///   landing -> place on the main stream, once the copy is there;
///   and the host writes to a buffer again once its copy is done.
struct Staging::Gpu {
  struct Lane {
    void* host = nullptr;     // pinned
    void* landing = nullptr;  // on the GPU
    cudaEvent_t copied = nullptr, emptied = nullptr;
  };
  std::array<Lane, 2> lanes;
  int next = 0;  // lane of the contents being written
  cudaStream_t copies = nullptr;

  explicit Gpu(std::size_t capacity) {
    (void)cuda::stream();  // chooses the device
    CUDA_CHECK(cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking));
    for (Lane& lane : lanes) {
      CUDA_CHECK(cudaMallocHost(&lane.host, capacity));
      CUDA_CHECK(cudaMalloc(&lane.landing, capacity));
      CUDA_CHECK(cudaEventCreateWithFlags(&lane.copied, cudaEventDisableTiming));
      CUDA_CHECK(cudaEventCreateWithFlags(&lane.emptied, cudaEventDisableTiming));
    }
  }
  ~Gpu() {
    (void)cudaStreamSynchronize(copies);
    (void)cudaStreamSynchronize(cuda::stream());
    for (const Lane& lane : lanes) {
      (void)cudaEventDestroy(lane.copied);
      (void)cudaEventDestroy(lane.emptied);
      (void)cudaFree(lane.landing);
      (void)cudaFreeHost(lane.host);
    }
    (void)cudaStreamDestroy(copies);
  }
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;
};

std::shared_ptr<Staging::Gpu> make_staging_on(Cuda, std::size_t capacity) {
  return std::make_shared<Staging::Gpu>(capacity);
}

// An event that was never recorded counts as done.
std::byte* staging_host_on(Cuda, Staging::Gpu& gpu) {
  const Staging::Gpu::Lane& lane = gpu.lanes[static_cast<std::size_t>(gpu.next)];
  CUDA_CHECK(cudaEventSynchronize(lane.copied));
  return static_cast<std::byte*>(lane.host);
}

void staging_send_on(Cuda, Staging::Gpu& gpu, std::size_t bytes, void* place) {
  const Staging::Gpu::Lane& lane = gpu.lanes[static_cast<std::size_t>(gpu.next)];
  CUDA_CHECK(cudaStreamWaitEvent(gpu.copies, lane.emptied, 0));
  CUDA_CHECK(cudaMemcpyAsync(lane.landing, lane.host, bytes, cudaMemcpyHostToDevice, gpu.copies));
  CUDA_CHECK(cudaEventRecord(lane.copied, gpu.copies));
  CUDA_CHECK(cudaStreamWaitEvent(cuda::stream(), lane.copied, 0));
  CUDA_CHECK(cudaMemcpyAsync(place, lane.landing, bytes, cudaMemcpyDeviceToDevice, cuda::stream()));
  CUDA_CHECK(cudaEventRecord(lane.emptied, cuda::stream()));
  gpu.next = 1 - gpu.next;
}

}  // namespace skytape
