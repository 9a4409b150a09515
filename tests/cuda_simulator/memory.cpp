// The simulated device's memory: what cudaMalloc and a graph's nodes give, guarded where address
// sanitizer watches, and copies.
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

#include "tensor/core/on_device.hpp"
#include "tests/cuda_simulator/simulator.hpp"
#include "tests/cuda_simulator/state.hpp"

using namespace skytape::cuda_simulator;

namespace {

constexpr std::size_t kAlignment = 256;  // of cudaMalloc's results
constexpr int kUnwritten = 0xff;         // NaN as f32 or f64, -1 as integer

}  // namespace

namespace skytape::cuda_simulator {

Device& device() {
  static Device* const instance = new Device;  // tensors may outlive main
  return *instance;
}

void Device::guard([[maybe_unused]] char* data, [[maybe_unused]] const Piece& piece) const {
#ifdef __SANITIZE_ADDRESS__
  if (piece.mapped) return;
  if (opened > 0 && piece.exists) {
    __asan_unpoison_memory_region(data, piece.bytes);
  } else {
    __asan_poison_memory_region(data, piece.bytes);
  }
#endif
}
void Device::guard_all() const {
  for (const auto& [data, piece] : pieces) guard(data, piece);
}

/// While launches are only counted, hardly more than addresses: such sizes fit no CPU's memory.
char* reserve(std::size_t bytes, bool of_graph) {
  void* data = nullptr;
  const std::size_t some = std::max<std::size_t>(bytes, 1);
  if (launches.only_counted) {
    data = ::mmap(nullptr, some, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) return nullptr;
  } else if (::posix_memalign(&data, kAlignment, some) != 0) {
    return nullptr;
  }
  device().pieces[static_cast<char*>(data)] = {bytes, of_graph, false, launches.only_counted};
  return static_cast<char*>(data);
}
void begin_to_exist(char* data) {
  Device& d = device();
  Piece& piece = d.pieces.at(data);
  piece.exists = true;
  const OpenMemory open;
  if (!piece.mapped) std::memset(data, kUnwritten, piece.bytes);
  d.used += piece.bytes;
  d.used_high = std::max(d.used_high, d.used);
}
void cease_to_exist(char* data) {
  Device& d = device();
  Piece& piece = d.pieces.at(data);
  piece.exists = false;
  d.used -= piece.bytes;
  d.guard(data, piece);
}
void release(char* data) {
  Device& d = device();
  const auto at = d.pieces.find(data);
  if (at == d.pieces.end()) return;
  const Piece piece = at->second;
  d.pieces.erase(at);
  if (piece.mapped) {
    ::munmap(data, std::max<std::size_t>(piece.bytes, 1));
    return;
  }
#ifdef __SANITIZE_ADDRESS__
  __asan_unpoison_memory_region(data, piece.bytes);
#endif
  std::free(data);
}

OpenMemory::OpenMemory() {
  if (++device().opened == 1) device().guard_all();
}
OpenMemory::~OpenMemory() {
  if (--device().opened == 0) device().guard_all();
}

MemoryLimit::MemoryLimit(std::size_t bytes) { device().limit = device().used + bytes; }
MemoryLimit::~MemoryLimit() {
  device().limit = SIZE_MAX;
  device().pooled = 0;
}

bool on_device(const void* data, std::size_t bytes) {
  const auto piece = device().piece_of(data);
  return piece != device().pieces.end() && piece->second.exists &&
         static_cast<const char*>(data) + bytes <= piece->first + piece->second.bytes;
}

}  // namespace skytape::cuda_simulator

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int) {
  return *pool = nullptr, cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr attribute, void*) {
  if (attribute == cudaMemPoolAttrUsedMemHigh) device().used_high = device().used;
  return cudaSuccess;
}
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr attribute, void* value) {
  const bool high =
      attribute == cudaMemPoolAttrUsedMemHigh || attribute == cudaMemPoolAttrReservedMemHigh;
  *static_cast<std::uint64_t*>(value) = high ? device().used_high : device().used;
  return cudaSuccess;
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, std::size_t) {
  device().pooled = 0;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  if (const cudaError_t status = unsafe("cudaMalloc"); status != cudaSuccess) return status;
  const Device& d = device();
  const bool fits = d.limit == SIZE_MAX || d.used + d.pooled + bytes <= d.limit;
  *data = fits ? reserve(bytes, false) : nullptr;
  if (*data == nullptr) return failed(cudaErrorMemoryAllocation, "out of memory");
  begin_to_exist(static_cast<char*>(*data));
  return cudaSuccess;
}
cudaError_t cudaFree(void* data) {
  if (const cudaError_t status = unsafe("cudaFree"); status != cudaSuccess) return status;
  if (data == nullptr) return cudaSuccess;
  const auto piece = device().pieces.find(static_cast<char*>(data));
  if (piece == device().pieces.end() || !piece->second.exists) {
    return failed(cudaErrorInvalidValue, "freed what is not allocated device memory");
  }
  cease_to_exist(static_cast<char*>(data));
  if (!piece->second.of_graph) release(static_cast<char*>(data));
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** data, std::size_t bytes) {
  return ::posix_memalign(data, kAlignment, std::max<std::size_t>(bytes, 1)) == 0
             ? cudaSuccess
             : failed(cudaErrorMemoryAllocation, "out of memory");
}
cudaError_t cudaFreeHost(void* data) { return std::free(data), cudaSuccess; }

cudaError_t cudaMallocAsync(void** data, std::size_t bytes, cudaStream_t stream) {
  if (stream == nullptr || stream->capture == nullptr) {
    device().pooled -= std::min(device().pooled, bytes);
    return cudaMalloc(data, bytes);
  }
  char* const at = reserve(bytes, true);
  if (at == nullptr) return failed(cudaErrorMemoryAllocation, "out of memory");
  *data = at;
  stream->capture->memory.push_back(std::make_shared<Reservation>(at));
  stream->capture->live.insert(at);
  return enqueue(stream, [at] {
    begin_to_exist(at);
    return cudaSuccess;
  });
}
cudaError_t cudaFreeAsync(void* data, cudaStream_t stream) {
  if (stream == nullptr || stream->capture == nullptr) {
    Device& d = device();
    const std::size_t before = d.used;
    const cudaError_t status = cudaFree(data);
    if (d.limit != SIZE_MAX) d.pooled += before - d.used;
    return status;
  }
  char* const at = static_cast<char*>(data);
  if (stream->capture->live.erase(at) == 0) {
    return failed(cudaErrorInvalidValue,
                  "a captured free of memory that the same graph did not allocate");
  }
  return enqueue(stream, [at] {
    cease_to_exist(at);
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpyAsync(void* target, const void* source, std::size_t bytes,
                            cudaMemcpyKind kind, cudaStream_t stream) {
  return enqueue(stream, [=] {
    const auto place = [&](const void* data) {  // a piece of the device, or all of the host
      return device().piece_of(data) != device().pieces.end();
    };
    const bool from = place(source), to = place(target);
    if ((from && !on_device(source, bytes)) || (to && !on_device(target, bytes))) {
      return failed(cudaErrorInvalidValue, "a copy beyond the end of device memory");
    }
    const int direction = (from ? 2 : 0) + (to ? 1 : 0);  // as cudaMemcpyKind numbers them
    if (kind != cudaMemcpyDefault && static_cast<int>(kind) != direction)
      return failed(cudaErrorInvalidValue, "a copy in another direction than it says");
    if (launches.only_counted && direction == 3) return cudaSuccess;
    const OpenMemory open;
    const std::int64_t start_ns = global_nanoseconds();
    std::memmove(target, source, bytes);
    trace_copy(direction, start_ns);
    return cudaSuccess;
  });
}
cudaError_t cudaMemsetAsync(void* target, int value, std::size_t bytes, cudaStream_t stream) {
  return enqueue(stream, [=] {
    if (!on_device(target, bytes)) {
      return failed(cudaErrorInvalidValue, "memset beyond the end of device memory");
    }
    if (launches.only_counted) return cudaSuccess;
    const OpenMemory open;
    std::memset(target, value, bytes);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGraphMemTrim(int) { return cudaSuccess; }
cudaError_t cudaDeviceGetGraphMemAttribute(int, cudaGraphMemAttributeType, void* value) {
  std::uint64_t bytes = 0;
  for (const auto& [data, piece] : device().pieces) bytes += piece.of_graph ? piece.bytes : 0;
  return *static_cast<std::uint64_t*>(value) = bytes, cudaSuccess;
}
