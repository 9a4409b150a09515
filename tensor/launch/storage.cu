// CUDA half of storage.cpp and device.cpp: the streams, cuBLAS, what the device can, and the
// stream-ordered pool.
#include "tensor/core/storage.hpp"

#include <map>
#include <mutex>
#include <utility>

#include "tensor/core/storage_plan.hpp"
#include "tensor/launch/cluster.hpp"
#include "tensor/launch/graph.hpp"
#include "tensor/launch/side_by_side.hpp"

namespace skytape {
namespace cuda {
namespace {

constexpr std::size_t kWorkspaceBytes = 32 << 20;  // what cuBLAS takes itself on a H100 or H200

constexpr int kOldest = 8;  // compute capability: products of bf16 and tf32

int chosen = 0;  // of the machine's GPUs, by use_gpu()

/// A stream, and cuBLAS on it.
struct Lane {
  cudaStream_t stream = nullptr;
  cublasHandle_t cublas = nullptr;
  void* workspace = nullptr;  // of cuBLAS
  bool at_crossing = false;   // its next kernel follows a fork or a join

  // With a separate workspace, so that a product captured in a graph allocates nothing; given after
  // the stream, which resets it. With one stream for each workspace cuBLAS repeats its bits.
  void create_cublas() {
    CUDA_CHECK(cublasCreate(&cublas));
    CUDA_CHECK(cublasSetStream(cublas, stream));
    CUDA_CHECK(cudaMalloc(&workspace, kWorkspaceBytes));
    CUDA_CHECK(cublasSetWorkspace(cublas, workspace, kWorkspaceBytes));
  }
};

/// Created on first use; one per process, as everything runs on one device.
struct Context {
  Lane main, second;  // what the second one does, it does before main goes on (side_by_side.hpp)
  cudaEvent_t forked = nullptr, done = nullptr;  // on main, on the second
  cudaMemPool_t pool = nullptr;

  Context() {
    const std::string fault = cuda_fault();
    if (!fault.empty()) throw Error(join("device cuda: ", fault));
    int count = 0;
    CUDA_CHECK(cudaGetDeviceCount(&count));
    ENSURE(chosen < count, "device cuda: this process is to use GPU ", chosen,
           ", counted from 0, but ", count, " can be seen: start fewer ranks on this machine");
    CUDA_CHECK(cudaSetDevice(chosen));
    CUDA_CHECK(cudaStreamCreateWithFlags(&main.stream, cudaStreamNonBlocking));
    main.create_cublas();
    int least = 0, greatest = 0;
    CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    CUDA_CHECK(cudaStreamCreateWithPriority(&second.stream, cudaStreamNonBlocking, greatest));
    CUDA_CHECK(cudaEventCreateWithFlags(&forked, cudaEventDisableTiming));
    CUDA_CHECK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
    CUDA_CHECK(cudaDeviceGetDefaultMemPool(&pool, chosen));
    std::uint64_t keep = UINT64_MAX;  // freed blocks stay in the pool
    CUDA_CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
  }
};

Context& context() {
  static Context* const instance = new Context;  // never destroyed: tensors may outlive main
  return *instance;
}

/// Within the first function of side_by_side. Another thread stays on the main stream meanwhile.
thread_local bool on_second = false;
Lane& current() { return on_second ? context().second : context().main; }

}  // namespace

cudaStream_t stream() { return current().stream; }
cublasHandle_t cublas() {
  Lane& lane = current();
  if (lane.cublas == nullptr) lane.create_cublas();  // few ask for the second stream's
  return lane.cublas;
}
bool follows_crossing() { return std::exchange(current().at_crossing, false); }

// ---- what the device can, and runs of a kernel -------------------------------------------------
namespace {

int attribute(cudaDeviceAttr which) {
  int value = 0;
  CUDA_CHECK(cudaDeviceGetAttribute(&value, which, chosen));
  return value;
}

/// "GPU 0 has compute capability 8.0".
std::string named_capability() {
  return join("GPU ", chosen, " has compute capability ",
              attribute(cudaDevAttrComputeCapabilityMajor), ".",
              attribute(cudaDevAttrComputeCapabilityMinor));
}

DeviceFacts ask() {
  return {attribute(cudaDevAttrComputeCapabilityMajor),
          static_cast<std::size_t>(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin)),
          attribute(cudaDevAttrMultiProcessorCount), attribute(cudaDevAttrClusterLaunch) != 0};
}

}  // namespace

std::string reason(cudaError_t status) {
  const std::string text = cudaGetErrorString(status);
  if (status != cudaErrorNoKernelImageForDevice && status != cudaErrorInvalidDeviceFunction &&
      status != cudaErrorUnsupportedPtxVersion) {
    return text;
  }
  return join(text, "; ", named_capability(),
              ", for which this program was not compiled: make CUDA=1 CUDA_ARCH=",
              attribute(cudaDevAttrComputeCapabilityMajor),
              attribute(cudaDevAttrComputeCapabilityMinor));
}

#ifdef SKYTAPE_CUDA_SIMULATED
DeviceFacts device_facts() {
  DeviceFacts facts = ask();  // each time: tests change the device
  facts.most_blocks = cuda_simulator::max_looping_grid(facts.most_blocks);
  return facts;
}

std::int64_t most_pairs(const void*, unsigned, std::size_t) {
  return device_facts().multiprocessors / 2;
}
#else
namespace {

/// Returns whether the kernel was compiled for sm_90, which has clusters and early starts.
bool compiled_for_90(const void* kernel) {
  cudaFuncAttributes attributes{};
  CUDA_CHECK(cudaFuncGetAttributes(&attributes, kernel));
  return attributes.ptxVersion >= 90;
}

}  // namespace

DeviceFacts device_facts() {
  static const DeviceFacts facts = ask();  // a process has one device
  return facts;
}

std::int64_t most_pairs(const void* kernel, unsigned threads, std::size_t shared_bytes) {
  const DeviceFacts facts = device_facts();
  const int one_each = facts.multiprocessors / 2;  // small blocks would share a multiprocessor
  if (!facts.clusters || !compiled_for_90(kernel)) return 0;
  static std::mutex mutex;
  static std::map<const void*, int> answers;  // a kernel has one size
  const std::lock_guard lock(mutex);
  const auto [answer, is_new] = answers.try_emplace(kernel, 0);
  if (is_new) {
    allow_shared("pairs of blocks", kernel, shared_bytes);
    const ExtendedLaunch launch(2, false, dim3(2), dim3(threads), shared_bytes);
    CUDA_CHECK(cudaOccupancyMaxActiveClusters(&answer->second, kernel, &launch.config));
  }
  return std::min(answer->second, one_each);
}

bool starts_early(const void* kernel) {
  static const bool answer = device_facts().compute_capability >= 9 && compiled_for_90(kernel);
  return answer;
}
#endif

void allow_shared(const char* name, const void* kernel, std::size_t bytes) {
  const std::size_t most = device_facts().shared_bytes;
  ENSURE(bytes <= most, name, ": needs ", bytes,
         " bytes of shared memory for a block, this device has ", most);
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(bytes)));
}

}  // namespace cuda

std::string cuda_fault_on(Cuda) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  (void)cudaGetLastError();  // no GPU is no error of what comes next
  if (status != cudaSuccess || count == 0) {
    return join("no GPU answers on this machine (",
                status == cudaSuccess ? "it shows none" : cudaGetErrorString(status), ")");
  }
  if (cuda::chosen >= count) return "";  // Context has more to say
  if (cuda::attribute(cudaDevAttrComputeCapabilityMajor) >= cuda::kOldest) return "";
  return join(cuda::named_capability(), ", this program needs ", cuda::kOldest, ".0 or newer");
}

void use_gpu_on(Cuda, int number) { cuda::chosen = number; }

std::int64_t free_bytes_on(Cuda) {
  (void)cuda::stream();  // chooses the device
  std::size_t left = 0, total = 0;
  CUDA_CHECK(cudaMemGetInfo(&left, &total));
  return static_cast<std::int64_t>(left);
}

void synchronize_on(Cuda) {
  ENSURE(!capturing(), "synchronize: a CUDA graph is being captured, which cannot wait");
  CUDA_CHECK(cudaStreamSynchronize(cuda::stream()));
}

void trim_on(Cuda) {
  cudaMemPool_t pool = nullptr;
  CUDA_CHECK(cudaDeviceGetDefaultMemPool(&pool, cuda::chosen));
  CUDA_CHECK(cudaMemPoolTrimTo(pool, 0));
}

// ---- two streams -------------------------------------------------------------------------------

// Whatever comes next on either stream waits in full: a kernel that is started early would wait for
// the one before it on its own stream alone.
void side_by_side_on(Cuda, const std::function<void()>& f, const std::function<void()>& g) {
  const KeptBlocks kept;
  cuda::Context& streams = cuda::context();
  CUDA_CHECK(cudaEventRecord(streams.forked, streams.main.stream));
  CUDA_CHECK(cudaStreamWaitEvent(streams.second.stream, streams.forked, 0));
  const auto join = [&streams] {
    cuda::on_second = false;
    streams.main.at_crossing = true;
    CUDA_CHECK(cudaEventRecord(streams.done, streams.second.stream));
    CUDA_CHECK(cudaStreamWaitEvent(streams.main.stream, streams.done, 0));
  };
  streams.main.at_crossing = streams.second.at_crossing = true;
  try {
    cuda::on_second = true;
    f();
    cuda::on_second = false;
    g();
  } catch (...) {
    join();
    throw;
  }
  join();
}

namespace {

/// Device memory from `get`. Where none is left the pool, which keeps what was freed, lends its
/// blocks for a second try.
template <class Get> void* allocate(const char* call, std::size_t bytes, const Get& get) {
  void* data = nullptr;
  cudaError_t status = get(&data);
  if (status == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    if (!capturing()) CUDA_CHECK(cudaStreamSynchronize(cuda::stream()));  // for frees on their way
    trim_on(Cuda{});
    status = get(&data);
  }
  if (status == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    throw Error(join("out of memory: could not allocate ", bytes, " bytes on cuda (", call, "); ",
                     free_bytes_on(Cuda{}), " are free"));
  }
  cuda::check(status, call, __FILE__, __LINE__);
  return data;
}

}  // namespace

void* allocate_on(Cuda, std::size_t bytes) {
  return allocate("cudaMallocAsync", bytes,
                  [bytes](void** data) { return cudaMallocAsync(data, bytes, cuda::stream()); });
}
void free_on(Cuda, void* data) { cudaFreeAsync(data, cuda::stream()); }

// A capture forbids cudaMalloc, as it may wait for the device; here that does no harm.
void* allocate_for_graphs_on(Cuda, std::size_t bytes) {
  (void)cuda::stream();  // chooses the device
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  CUDA_CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
  const auto restore = [&mode] { (void)cudaThreadExchangeStreamCaptureMode(&mode); };
  void* data = nullptr;
  try {
    data = allocate("cudaMalloc", bytes, [bytes](void** at) { return cudaMalloc(at, bytes); });
  } catch (...) {
    restore();
    throw;
  }
  restore();
  return data;
}
void free_for_graphs_on(Cuda, void* data) { cudaFree(data); }  // waits for the device

void copy_cuda_bytes(void* target, Device target_device, const void* source, Device source_device,
                     std::size_t bytes) {
  const bool host = target_device == Device::cpu || source_device == Device::cpu;
  ENSURE(!host || !capturing(), "copy: ", bytes, " bytes from ", name(source_device), " to ",
         name(target_device), " while a CUDA graph is captured: a replay would not repeat it");
  CUDA_CHECK(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDefault, cuda::stream()));
  // Device to device stays on the stream; anything that touches the host waits.
  if (host) CUDA_CHECK(cudaStreamSynchronize(cuda::stream()));
}

}  // namespace skytape
