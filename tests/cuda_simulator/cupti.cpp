// CUPTI of the simulated device: what ran while records were asked for.
#include "tests/cuda_simulator/cupti.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "tensor/core/error.hpp"
#include "tests/cuda_simulator/device.hpp"
#include "tests/cuda_simulator/simulator.hpp"

namespace skytape::cuda_simulator {
namespace {

struct Tracer {
  CUpti_BuffersCallbackRequestFunc request = nullptr;
  CUpti_BuffersCallbackCompleteFunc complete = nullptr;
  std::set<CUpti_ActivityKind> enabled;
  std::vector<CUpti_Activity> ran;
  TraceFault fault = TraceFault::none;
};
Tracer& tracer() {
  static Tracer* const instance = new Tracer;
  return *instance;
}

void add(CUpti_Activity record, std::int64_t start_ns) {
  if (!tracer().enabled.contains(record.kind)) return;
  record.start = static_cast<std::uint64_t>(start_ns);
  record.end = static_cast<std::uint64_t>(global_nanoseconds());
  tracer().ran.push_back(record);
}

}  // namespace

TraceFaults::TraceFaults(TraceFault fault) { tracer().fault = fault; }
TraceFaults::~TraceFaults() { tracer().fault = TraceFault::none; }

void trace_kernel(const Kernel& k, std::int64_t start_ns) {
  CUpti_Activity record{};
  record.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  record.name = k.name;
  record.gridX = static_cast<std::int32_t>(k.grid.x);
  record.gridY = static_cast<std::int32_t>(k.grid.y);
  record.gridZ = static_cast<std::int32_t>(k.grid.z);
  record.blockX = static_cast<std::int32_t>(k.block.x);
  record.blockY = static_cast<std::int32_t>(k.block.y);
  record.blockZ = static_cast<std::int32_t>(k.block.z);
  record.dynamicSharedMemory = static_cast<std::int32_t>(k.shared_bytes);
  add(record, start_ns);
}

// As the library does where few results are sums of many products.
void trace_product(bool in_parts, std::int64_t start_ns) {
  CUpti_Activity record{};
  record.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  record.gridX = record.gridY = record.gridZ = record.blockX = record.blockY = record.blockZ = 1;
  record.name = "simulated_gemm";
  add(record, start_ns);
  record.name = "simulated_splitKreduce";
  if (in_parts) add(record, global_nanoseconds());
}

void trace_copy(int direction, std::int64_t start_ns) {
  CUpti_Activity record{};
  record.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
  const bool inside = direction == cudaMemcpyDeviceToDevice;
  record.copyKind = inside ? CUPTI_ACTIVITY_MEMCPY_KIND_DTOD : std::uint8_t{1};
  add(record, start_ns);
}

}  // namespace skytape::cuda_simulator

using namespace skytape::cuda_simulator;

CUptiResult cuptiGetResultString(CUptiResult, const char** text) {
  return *text = "simulated fault", CUPTI_SUCCESS;
}
CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                           CUpti_BuffersCallbackCompleteFunc complete) {
  tracer().request = request;
  tracer().complete = complete;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  if (tracer().fault == TraceFault::refuses) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  tracer().enabled.insert(kind);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
  tracer().enabled.erase(kind);
  return CUPTI_SUCCESS;
}
// The order of records is not that of their starts.
CUptiResult cuptiActivityFlushAll(std::uint32_t) {
  std::vector<CUpti_Activity> ran;
  std::swap(ran, tracer().ran);
  if (tracer().fault == TraceFault::loses && !ran.empty()) ran.pop_back();
  while (!ran.empty()) {
    std::uint8_t* buffer = nullptr;
    std::size_t size = 0, most = 0;
    tracer().request(&buffer, &size, &most);
    std::size_t valid = 0;
    for (; valid + sizeof(CUpti_Activity) <= size && !ran.empty(); ran.pop_back()) {
      std::memcpy(buffer + valid, &ran.back(), sizeof(CUpti_Activity));
      valid += sizeof(CUpti_Activity);
    }
    tracer().complete(nullptr, 0, buffer, size, valid);
  }
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityGetNextRecord(std::uint8_t* buffer, std::size_t valid_size,
                                       CUpti_Activity** record) {
  auto* const next = *record == nullptr ? reinterpret_cast<CUpti_Activity*>(buffer) : *record + 1;
  if (reinterpret_cast<std::uint8_t*>(next + 1) > buffer + valid_size) {
    return CUPTI_ERROR_MAX_LIMIT_REACHED;
  }
  return *record = next, CUPTI_SUCCESS;
}
CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, std::uint32_t, std::size_t* dropped) {
  return *dropped = tracer().fault == TraceFault::drops ? 7 : 0, CUPTI_SUCCESS;
}
