// CUDA half of device_sum.cpp, and the one file that includes NCCL's header.
#include "train/ranks/device_sum.hpp"

#include <cstring>
#include <exception>

#include "tensor/launch/cuda.hpp"
#include "tensor/launch/graph.hpp"
#include "train/ranks/device_sum_plan.hpp"

#ifdef SKYTAPE_HAVE_NCCL
#include <nccl.h>
#endif

namespace skytape::train {

#ifdef SKYTAPE_HAVE_NCCL

namespace {

void check(ncclResult_t status, const char* call) {
  if (status != ncclSuccess) throw Error(join(call, " failed: ", ncclGetErrorString(status)));
}

}  // namespace

static_assert(sizeof(ncclUniqueId) == sizeof(DeviceSumId));

/// Destroyed once its sums are done: NCCL waits for them. Where an error ends this rank, another
/// one may be gone, and a sum that waits for it would never be done, nor what waits for the stream.
struct DeviceSum::Gpu {
  ncclComm_t ranks = nullptr;
  ~Gpu() {
    if (ranks == nullptr) return;
    (void)(std::uncaught_exceptions() > 0 ? ncclCommAbort(ranks) : ncclCommDestroy(ranks));
  }
};

bool device_sum_available_on(Cuda) { return true; }

DeviceSumId new_device_sum_id_on(Cuda) {
  ncclUniqueId theirs;
  check(ncclGetUniqueId(&theirs), "ncclGetUniqueId");
  DeviceSumId id;
  std::memcpy(id.data(), &theirs, sizeof(theirs));
  return id;
}

std::shared_ptr<DeviceSum::Gpu> make_device_sum_on(Cuda, const DeviceSumId& id, int rank,
                                                   int size) {
  (void)cuda::stream();  // chooses the device
  ncclUniqueId theirs;
  std::memcpy(&theirs, id.data(), sizeof(theirs));
  auto gpu = std::make_shared<DeviceSum::Gpu>();
  check(ncclCommInitRank(&gpu->ranks, size, theirs, rank), "ncclCommInitRank");
  return gpu;
}

void device_sum_on(Cuda, const DeviceSum::Gpu& gpu, Tensor& numbers) {
  ENSURE(!capturing(), "DeviceSum: a CUDA graph is being captured, by this rank alone perhaps");
  float* const x = numbers.data<float>();
  check(ncclAllReduce(x, x, static_cast<std::size_t>(numbers.numel()), ncclFloat, ncclSum,
                      gpu.ranks, cuda::stream()),
        "ncclAllReduce");
}

#else

struct DeviceSum::Gpu {};

bool device_sum_available_on(Cuda) { return false; }
DeviceSumId new_device_sum_id_on(Cuda) { return {}; }
std::shared_ptr<DeviceSum::Gpu> make_device_sum_on(Cuda, const DeviceSumId&, int, int) {
  return nullptr;
}
void device_sum_on(Cuda, const DeviceSum::Gpu&, Tensor&) {}

#endif

}  // namespace skytape::train
