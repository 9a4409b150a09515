// The CUDA runtime of the simulated device: errors, what the device says of itself, launches.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <string>

#include "tensor/core/error.hpp"
#include "tests/cuda_simulator/simulator.hpp"
#include "tests/cuda_simulator/state.hpp"

using skytape::join;
using namespace skytape::cuda_simulator;

namespace {

int compute_capability = 80;          // 8.0
cudaError_t no_kernel = cudaSuccess;  // NotCompiled's

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

/// Returns the error of a launch, or nothing.
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

namespace {
constexpr const char* kProduct = "product";
}

Launches launches;

cudaError_t failed(cudaError_t status, const std::string& reason) {
  device().last = status;
  device().reason = reason;
  return status;
}

ComputeCapability::ComputeCapability(int major, int minor)
    : before_(std::exchange(compute_capability, 10 * major + minor)) {}
ComputeCapability::~ComputeCapability() { compute_capability = before_; }
std::size_t max_shared_bytes() {
  switch (compute_capability) {
    case 86:
    case 89:
      return 99 * 1024;
    case 90:
    case 100:
    case 103:
      return 227 * 1024;
    default:
      return compute_capability >= 120 ? 99 * 1024 : kMaxSharedBytes;
  }
}

NotCompiled::NotCompiled(cudaError_t status) { no_kernel = status; }
NotCompiled::~NotCompiled() { no_kernel = cudaSuccess; }

LaunchesOnly::LaunchesOnly() { launches = {true, {}}; }
LaunchesOnly::~LaunchesOnly() { launches = {}; }
const std::vector<LaunchesOnly::Launch>& LaunchesOnly::all() { return launches.all; }
std::int64_t LaunchesOnly::kernels() { return std::ssize(launches.all) - products(); }
std::int64_t LaunchesOnly::products() {
  return std::count_if(launches.all.begin(), launches.all.end(),
                       [](const Launch& launch) { return launch.name == kProduct; });
}
std::uint64_t LaunchesOnly::largest_grid() {
  std::uint64_t largest = 0;
  for (const Launch& launch : launches.all) largest = std::max(largest, launch.blocks);
  return largest;
}

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

bool only_counts_product() {
  if (launches.only_counted) launches.all.push_back({kProduct, 0});
  return launches.only_counted;
}

void submit(Kernel kernel, cudaStream_t stream) {
  if (no_kernel != cudaSuccess) {
    failed(no_kernel, "");
    return;
  }
  if (const std::string reason = refusal(kernel); !reason.empty()) {
    failed(cudaErrorInvalidConfiguration, reason);
    return;
  }
  if (launches.only_counted) {
    const dim3& g = kernel.grid;
    launches.all.push_back({kernel.name, std::uint64_t{g.x} * g.y * g.z});
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

const char* cudaGetErrorString(cudaError_t status) {
  static thread_local std::string text;
  text = join("simulated device: error ", static_cast<int>(status));
  if (!device().reason.empty()) text += ", " + device().reason;
  return text.c_str();
}
cudaError_t cudaGetLastError() { return std::exchange(device().last, cudaSuccess); }
// Each rank of a host finds a separate GPU; within a process all of them are the one device.
constexpr int kGpus = 8;
cudaError_t cudaGetDeviceCount(int* count) { return *count = kGpus, cudaSuccess; }
cudaError_t cudaMemGetInfo(std::size_t* unused, std::size_t* total) {
  return *unused = *total = std::size_t{16} << 30, cudaSuccess;
}
cudaError_t cudaSetDevice(int number) {
  return number >= 0 && number < kGpus ? cudaSuccess : cudaErrorInvalidDevice;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      return *value = compute_capability / 10, cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      return *value = compute_capability % 10, cudaSuccess;
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
  if (no_kernel != cudaSuccess) return failed(no_kernel, "");
  if (bytes < 0 || static_cast<std::size_t>(bytes) > max_shared_bytes()) {
    return failed(cudaErrorInvalidValue, join(bytes, " bytes of shared memory are too many"));
  }
  device().dynamic_limits[kernel] = bytes;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() { return no_capture("cudaDeviceSynchronize"); }
