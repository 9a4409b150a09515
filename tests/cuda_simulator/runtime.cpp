// The CUDA runtime of the simulated device: memory, one device, streams that run at once, graphs.
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

#include "tensor/core/error.hpp"
#include "tests/cuda_simulator/device.hpp"
#include "tests/cuda_simulator/simulator.hpp"

using skytape::join;
using namespace skytape::cuda_simulator;

namespace {

using Work = std::function<cudaError_t()>;

constexpr std::size_t kAlignment = 256;  // of cudaMalloc's results
constexpr int kUnwritten = 0xff;         // NaN as f32 or f64, -1 as integer

/// A piece of device memory. A graph's own memory keeps its address between launches, but exists
/// only from its allocating to its freeing node.
struct Piece {
  std::size_t bytes = 0;
  bool of_graph = false;
  bool exists = true;
  bool mapped = false;  // pages that cost nothing until touched, neither filled nor guarded
};

struct Device {
  std::map<char*, Piece> pieces;
  int opened = 0;  // OpenMemory objects alive
  cudaError_t last = cudaSuccess;
  std::string reason;
  std::map<const void*, int> dynamic_limits;  // by kernel
  std::size_t used = 0, used_high = 0;
  std::size_t limit = SIZE_MAX;  // MemoryLimit
  std::size_t pooled = 0;        // freed into the stream-ordered pool, which keeps it

  /// The piece that holds data, or its end.
  auto piece_of(const void* data) {
    char* const at = static_cast<char*>(const_cast<void*>(data));
    auto piece = pieces.upper_bound(at);
    if (piece == pieces.begin()) return pieces.end();
    --piece;
    return at <= piece->first + piece->second.bytes ? piece : pieces.end();
  }

  void guard([[maybe_unused]] char* data, [[maybe_unused]] const Piece& piece) const {
#ifdef __SANITIZE_ADDRESS__
    if (piece.mapped) return;
    if (opened > 0 && piece.exists) {
      __asan_unpoison_memory_region(data, piece.bytes);
    } else {
      __asan_poison_memory_region(data, piece.bytes);
    }
#endif
  }
  void guard_all() const {
    for (const auto& [data, piece] : pieces) guard(data, piece);
  }
};

/// What LaunchesOnly counts.
struct Launches {
  bool only_counted = false;
  std::int64_t kernels = 0, products = 0;
  std::uint64_t largest_grid = 0;
};
Launches launches;

Device& device() {
  static Device* const instance = new Device;  // tensors may outlive main
  return *instance;
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

/// The address of memory that a graph allocates; reserved until graph and executable are gone.
struct Reservation {
  char* data;
  explicit Reservation(char* at) : data(at) {}
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  ~Reservation() {
    if (!device().pieces.at(data).exists) release(data);  // else whoever frees it does
  }
};

}  // namespace

struct CUgraph_st {
  std::vector<Work> nodes;
  std::vector<std::shared_ptr<Reservation>> memory;
  std::set<char*> live;  // allocated and not freed by the nodes so far
  bool has_executable = false;
};
struct CUgraphExec_st {
  CUgraph_st graph;
  CUgraph_st* origin;  // null once destroyed
  bool frees_on_launch;
};
struct CUstream_st {
  CUgraph_st* capture = nullptr;
  cudaStream_t origin =
      nullptr;  // of the capture, which this one joined by waiting for an event; else null
  bool unjoined = false;  // it did, and nobody waits for what it submitted last
  bool invalidated = false;
  bool late = false;  // see StreamsRunLate
  std::deque<Work>
      waiting;  // of a late stream: submitted and not yet run, or not yet a graph's node
};
struct CUevent_st {
  std::chrono::steady_clock::time_point time;
  cudaStream_t stream = nullptr;  // that it was recorded on
  CUgraph_st* capture = nullptr;  // that it was recorded in
};

namespace {

std::set<CUgraphExec_st*>& executables() {
  static auto* const all = new std::set<CUgraphExec_st*>;
  return *all;
}
std::set<CUstream_st*>& streams() {
  static auto* const all = new std::set<CUstream_st*>;
  return *all;
}

/// An error if some stream captures: the call would wait for the device.
cudaError_t no_capture(const char* call) {
  for (CUstream_st* const stream : streams()) {
    if (stream->capture == nullptr) continue;
    stream->invalidated = true;
    return failed(cudaErrorStreamCaptureUnsupported, join(call, " while a stream captures"));
  }
  return cudaSuccess;
}

thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

/// The same for calls that a thread in relaxed mode may make.
cudaError_t unsafe(const char* call) {
  return thread_mode == cudaStreamCaptureModeRelaxed ? cudaSuccess : no_capture(call);
}

bool new_streams_run_late = false;
int compute_capability = 8;  // the major number

/// Runs what a late stream still has to do: more than who waits for one of its events may rely on,
/// never less. Another stream has nothing left to do.
cudaError_t catch_up(cudaStream_t stream) {
  if (stream == nullptr || streams().count(stream) == 0) return cudaSuccess;
  cudaError_t status = cudaSuccess;
  while (!stream->waiting.empty()) {
    const Work work = std::move(stream->waiting.front());
    stream->waiting.pop_front();
    if (const cudaError_t one = work(); one != cudaSuccess) status = one;
  }
  return status;
}

/// An event of a capture: the stream joins the capture, or waits for another stream of it.
cudaError_t wait_captured(cudaStream_t stream, const CUevent_st& event) {
  const cudaStream_t from = event.stream;
  if (streams().count(from) == 0 || from->capture != event.capture) {
    return failed(cudaErrorInvalidValue, "an event of a capture that is over");
  }
  if (stream->capture == nullptr) {
    stream->capture = from->capture;
    stream->origin = from->origin == nullptr ? from : from->origin;
  }
  if (stream->capture != from->capture) {
    return failed(cudaErrorStreamCaptureIsolation, "a captured wait for another capture");
  }
  auto& nodes = stream->capture->nodes;
  std::move(from->waiting.begin(), from->waiting.end(), std::back_inserter(nodes));
  from->waiting.clear();
  from->unjoined = false;
  return cudaSuccess;
}

/// A word of a kernel's arguments that looks like an address of this process must point to device
/// memory; returns it otherwise.
const void* host_pointer(const Kernel& kernel) {
  for (const auto& [argument, bytes] : kernel.arguments) {
    for (std::size_t at = 0; at + sizeof(void*) <= bytes; at += sizeof(void*)) {
      std::uintptr_t word = 0;
      std::memcpy(&word, static_cast<const char*>(argument) + at, sizeof word);
      // Not a small 32-bit number beside padding that kept a piece of an old address.
      const bool address =
          word >= 0x500000000000u && word <= 0x7fffffffffffu && (word & 0xffffffffu) >= 0x10000u;
      const auto* const pointer = reinterpret_cast<const void*>(word);
      if (address && device().piece_of(pointer) == device().pieces.end()) return pointer;
    }
  }
  return nullptr;
}

/// What is wrong with a launch, or nothing.
std::string refusal(const Kernel& k) {
  const auto none = [](const dim3& d) { return d.x == 0 || d.y == 0 || d.z == 0; };
  if (none(k.grid) || none(k.block)) return "an empty grid or block";
  if (k.grid.x > 0x7fffffffu || k.grid.y > 65535 || k.grid.z > 65535) {
    return join("grid (", k.grid.x, ", ", k.grid.y, ", ", k.grid.z, ") is too large");
  }
  if (k.block.z > 64 || std::uint64_t{k.block.x} * k.block.y * k.block.z > 1024) {
    return join("block (", k.block.x, ", ", k.block.y, ", ", k.block.z, ") is too large");
  }
  if (k.cluster == 0 || k.cluster > kMaxCluster || k.grid.x % k.cluster != 0) {
    return join("clusters of ", k.cluster, " blocks, of a grid with ", k.grid.x, " along x");
  }
  if (k.cluster > 1 && k.block.x * k.block.y * k.block.z % kWarp != 0) {
    return "clusters of blocks that are not whole warps";
  }
  const auto limit = device().dynamic_limits.find(k.function);
  const std::size_t allowed = limit == device().dynamic_limits.end()
                                  ? kDefaultSharedBytes
                                  : static_cast<std::size_t>(limit->second);
  if (k.shared_bytes > allowed) {
    return join(k.shared_bytes, " bytes of dynamic shared memory, ", allowed, " are allowed");
  }
  if (const void* const pointer = host_pointer(k)) {
    return join("an argument points to ", pointer, ", which is not device memory");
  }
  return {};
}

}  // namespace

namespace skytape::cuda_simulator {

OpenMemory::OpenMemory() {
  if (++device().opened == 1) device().guard_all();
}
OpenMemory::~OpenMemory() {
  if (--device().opened == 0) device().guard_all();
}

cudaError_t failed(cudaError_t status, const std::string& reason) {
  device().last = status;
  device().reason = reason;
  return status;
}

cudaError_t enqueue(cudaStream_t stream, Work work) {
  if (streams().count(stream) == 0) {
    return failed(cudaErrorInvalidValue, "work on the default stream or on a destroyed one");
  }
  stream->unjoined = stream->origin != nullptr;
  if (stream->capture != nullptr && (!stream->late || !stream->unjoined)) {
    stream->capture->nodes.push_back(std::move(work));
    return cudaSuccess;
  }
  if (stream->late) {
    stream->waiting.push_back(std::move(work));
    return cudaSuccess;
  }
  return work();
}

StreamsRunLate::StreamsRunLate() { new_streams_run_late = true; }
StreamsRunLate::~StreamsRunLate() { new_streams_run_late = false; }

ComputeCapability::ComputeCapability(int major)
    : before_(std::exchange(compute_capability, major)) {}
ComputeCapability::~ComputeCapability() { compute_capability = before_; }
std::size_t max_shared_bytes() { return compute_capability >= 9 ? 227 * 1024 : kMaxSharedBytes; }

MemoryLimit::MemoryLimit(std::size_t bytes) { device().limit = device().used + bytes; }
MemoryLimit::~MemoryLimit() {
  device().limit = SIZE_MAX;
  device().pooled = 0;
}

LaunchesOnly::LaunchesOnly() { launches = {true}; }
LaunchesOnly::~LaunchesOnly() { launches = {}; }
std::int64_t LaunchesOnly::kernels() { return launches.kernels; }
std::int64_t LaunchesOnly::products() { return launches.products; }
std::uint64_t LaunchesOnly::largest_grid() { return launches.largest_grid; }

std::int64_t max_looping_grid(std::int64_t most) {
  constexpr std::int64_t kFew = 2;
  return launches.only_counted ? most : kFew;
}

std::int64_t global_nanoseconds() {
  static std::atomic<std::int64_t> last = 0;
  const std::int64_t now = std::chrono::steady_clock::now().time_since_epoch().count();
  std::int64_t before = last;
  while (!last.compare_exchange_weak(before, std::max(before + 1, now))) {
  }
  return std::max(before + 1, now);
}

const char* function_name(const void* kernel) {
  static auto* const names = new std::map<const void*, std::string>;
  return names->try_emplace(kernel, join("kernel_at_", kernel)).first->second.c_str();
}

bool only_counts_product() {
  if (launches.only_counted) ++launches.products;
  return launches.only_counted;
}

bool on_device(const void* data, std::size_t bytes) {
  const auto piece = device().piece_of(data);
  return piece != device().pieces.end() && piece->second.exists &&
         static_cast<const char*>(data) + bytes <= piece->first + piece->second.bytes;
}

void submit(Kernel kernel, cudaStream_t stream) {
  if (const std::string reason = refusal(kernel); !reason.empty()) {
    failed(cudaErrorInvalidConfiguration, reason);
    return;
  }
  if (launches.only_counted) {
    const dim3& g = kernel.grid;
    launches.largest_grid = std::max(launches.largest_grid, std::uint64_t{g.x} * g.y * g.z);
    ++launches.kernels;
    return;
  }
  enqueue(stream, [kernel = std::move(kernel)] {
    const OpenMemory open;
    const std::int64_t start_ns = global_nanoseconds();
    const std::string error = run_blocks(kernel);
    trace_kernel(kernel, start_ns);
    if (error.empty()) return cudaSuccess;
    return failed(cudaErrorLaunchFailure, join("kernel ", kernel.name, ", ", error));
  });
}

}  // namespace skytape::cuda_simulator

// ---- errors and device ---------------------------------------------------------------------------
const char* cudaGetErrorString(cudaError_t status) {
  static thread_local std::string text;
  text = join("simulated device: error ", static_cast<int>(status));
  if (!device().reason.empty()) text += ", " + device().reason;
  return text.c_str();
}
cudaError_t cudaGetLastError() { return std::exchange(device().last, cudaSuccess); }
// Each rank of a host finds a GPU of its own; within a process all of them are the one device.
constexpr int kGpus = 8;
cudaError_t cudaGetDeviceCount(int* count) { return *count = kGpus, cudaSuccess; }
cudaError_t cudaMemGetInfo(std::size_t* unused, std::size_t* total) {
  return *unused = *total = std::size_t{16} << 30, cudaSuccess;
}
cudaError_t cudaSetDevice(int number) {
  return number >= 0 && number < kGpus ? cudaSuccess : cudaErrorInvalidDevice;
}
cudaError_t cudaGetDevice(int* number) { return *number = 0, cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      return *value = compute_capability, cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return *value = static_cast<int>(max_shared_bytes()), cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
      return *value = kMultiprocessors, cudaSuccess;
    case cudaDevAttrClusterLaunch:
      return *value = 1, cudaSuccess;
  }
  return cudaErrorInvalidValue;
}
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute, int bytes) {
  if (bytes < 0 || static_cast<std::size_t>(bytes) > max_shared_bytes()) {
    return failed(cudaErrorInvalidValue, join(bytes, " bytes of shared memory are too many"));
  }
  device().dynamic_limits[kernel] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFuncGetName(const char** name, const void* kernel) {
  return *name = function_name(kernel), cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() { return no_capture("cudaDeviceSynchronize"); }

// ---- streams and events --------------------------------------------------------------------------
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new CUstream_st;
  (*stream)->late = new_streams_run_late;
  streams().insert(*stream);
  return cudaSuccess;
}
// The second stream runs as late as it may, or, in the reverse order, at once.
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  const cudaError_t status = cudaStreamCreateWithFlags(stream, flags);
  (*stream)->late |= priority != 0 && !order_is_reverse();
  return status;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return *least = 0, *greatest = -5, cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (streams().erase(stream) == 0) return failed(cudaErrorInvalidValue, "no such stream");
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (const cudaError_t status = no_capture("cudaStreamSynchronize"); status != cudaSuccess) {
    return status;
  }
  return catch_up(stream);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return *event = new CUevent_st, cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  event->stream = stream;
  event->capture = streams().count(stream) == 0 ? nullptr : stream->capture;
  if (event->capture != nullptr) return cudaSuccess;
  return enqueue(stream, [event] {
    event->time = std::chrono::steady_clock::now();
    return cudaSuccess;
  });
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (const cudaError_t status = no_capture("cudaEventSynchronize"); status != cudaSuccess) {
    return status;
  }
  return catch_up(event->stream);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (event->capture != nullptr) return wait_captured(stream, *event);
  if (streams().count(stream) > 0 && stream->capture != nullptr) {
    stream->invalidated = true;
    return failed(cudaErrorStreamCaptureIsolation, "a captured wait for what is not captured");
  }
  return enqueue(stream, [event] { return catch_up(event->stream); });
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  *milliseconds = std::chrono::duration<float, std::milli>(end->time - begin->time).count();
  return cudaSuccess;
}

// ---- memory --------------------------------------------------------------------------------------
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

// ---- graphs --------------------------------------------------------------------------------------
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (streams().count(stream) == 0 || stream->capture != nullptr) {
    return failed(cudaErrorIllegalState, "this stream cannot begin a capture");
  }
  stream->capture = new CUgraph_st;
  stream->invalidated = false;
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, thread_mode);
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  if (streams().count(stream) == 0 || stream->capture == nullptr) {
    return failed(cudaErrorIllegalState, "this stream does not capture");
  }
  *graph = std::exchange(stream->capture, nullptr);
  bool unjoined = false;
  for (CUstream_st* const other : streams()) {
    if (other->capture != *graph) continue;
    unjoined |= std::exchange(other->unjoined, false);
    stream->invalidated |= std::exchange(other->invalidated, false);
    other->capture = nullptr;
    other->origin = nullptr;
    other->waiting.clear();
  }
  if (!stream->invalidated && !unjoined) return cudaSuccess;
  delete std::exchange(*graph, nullptr);
  if (unjoined) {
    return failed(cudaErrorStreamCaptureUnjoined, "the capture's second stream is not waited for");
  }
  return failed(cudaErrorStreamCaptureInvalidated, "a forbidden call came during the capture");
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = stream == nullptr || stream->capture == nullptr ? cudaStreamCaptureStatusNone
            : stream->invalidated                           ? cudaStreamCaptureStatusInvalidated
                                                            : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                 unsigned long long flags) {
  if (!graph->memory.empty() && graph->has_executable) {
    return failed(cudaErrorNotSupported, "a graph that allocates has one executable at a time");
  }
  graph->has_executable = true;
  *exec =
      new CUgraphExec_st{*graph, graph, (flags & cudaGraphInstantiateFlagAutoFreeOnLaunch) != 0};
  executables().insert(*exec);
  return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  return enqueue(stream, [exec] {
    for (const auto& memory : exec->graph.memory) {
      if (!device().pieces.at(memory->data).exists) continue;
      if (!exec->frees_on_launch) {
        return failed(cudaErrorInvalidValue, "memory of the last launch was not freed");
      }
      cease_to_exist(memory->data);
    }
    for (const Work& work : exec->graph.nodes) {
      if (const cudaError_t status = work(); status != cudaSuccess) return status;
    }
    return cudaSuccess;
  });
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  if (executables().erase(exec) == 0) return failed(cudaErrorInvalidValue, "no such executable");
  if (exec->origin != nullptr) exec->origin->has_executable = false;
  delete exec;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  for (CUgraphExec_st* const exec : executables()) {
    if (exec->origin == graph) exec->origin = nullptr;
  }
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
  if (nodes != nullptr) return failed(cudaErrorNotSupported, "only counts nodes");
  return *count = graph->nodes.size(), cudaSuccess;
}
cudaError_t cudaDeviceGraphMemTrim(int) { return cudaSuccess; }
cudaError_t cudaDeviceGetGraphMemAttribute(int, cudaGraphMemAttributeType, void* value) {
  std::uint64_t bytes = 0;
  for (const auto& [data, piece] : device().pieces) bytes += piece.of_graph ? piece.bytes : 0;
  return *static_cast<std::uint64_t*>(value) = bytes, cudaSuccess;
}
