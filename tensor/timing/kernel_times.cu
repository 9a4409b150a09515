// CUDA half of kernel_times.cpp.
#include "tensor/timing/kernel_times.hpp"

#include <algorithm>
#include <cstdlib>
#include <mutex>

#include "tensor/launch/cuda.hpp"
#include "tensor/launch/graph.hpp"
#include "tensor/timing/clock.hpp"
#if __has_include(<cupti.h>) && CUDART_VERSION >= 12030
#include <cupti.h>
#ifndef SKYTAPE_CUDA_SIMULATED
#include <dlfcn.h>
#endif
#endif

namespace skytape {

// ---- traces by CUPTI -------------------------------------------------------------------------
#ifdef CUPTI_API_VERSION
namespace {

// Each version of CUPTI appends to its records and gives them another name.
#if CUPTI_API_VERSION >= 130000
using KernelRecord = CUpti_ActivityKernel10;
using CopyRecord = CUpti_ActivityMemcpy6;
#else
using KernelRecord = CUpti_ActivityKernel9;
using CopyRecord = CUpti_ActivityMemcpy5;
#endif
using FillRecord = CUpti_ActivityMemset4;

constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                         CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET};
constexpr std::size_t kBufferBytes = 4 << 20, kBufferAlignment = 8;

/// The library's functions, found when the first trace asks for them.
struct Cupti {
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks = nullptr;
  decltype(&cuptiActivityEnable) enable = nullptr;
  decltype(&cuptiActivityDisable) disable = nullptr;
  decltype(&cuptiActivityFlushAll) flush = nullptr;
  decltype(&cuptiActivityGetNextRecord) next_record = nullptr;
  decltype(&cuptiActivityGetNumDroppedRecords) dropped = nullptr;
  decltype(&cuptiGetResultString) result_string = nullptr;
  std::string missing;  // why they cannot be called

  Cupti();

  /// Returns whether a call succeeded; else adds why not, unless something failed before.
  bool ok(CUptiResult result, const char* call, std::string& fault) const {
    if (result == CUPTI_SUCCESS) return true;
    const char* text = nullptr;
    (void)result_string(result, &text);
    if (fault.empty()) {
      fault =
          join(call, " failed: ", text == nullptr ? "" : text, " (", static_cast<int>(result), ")");
    }
    return false;
  }
};

/// The records of CUPTI so far. It calls from its own threads, and may do so until the program
/// ends.
struct Records {
  std::mutex mutex;
  std::vector<KernelTime> kernels;
  std::string fault;
};
Records& records() {
  static Records* const instance = new Records;  // never destroyed
  return *instance;
}
Cupti& cupti() {
  static Cupti* const instance = new Cupti;
  return *instance;
}

void keep(const CUpti_Activity& activity) {
  KernelTime time;
  const auto when = [&time](const auto& record) {
    time.start_ns = static_cast<std::int64_t>(record.start);
    time.end_ns = static_cast<std::int64_t>(record.end);
  };
  if (activity.kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
    const auto& record = reinterpret_cast<const KernelRecord&>(activity);
    when(record);
    time.name = record.name == nullptr ? "" : record.name;
    time.blocks = std::int64_t{record.gridX} * record.gridY * record.gridZ;
    time.threads = std::int64_t{record.blockX} * record.blockY * record.blockZ;
    time.registers = record.registersPerThread;
    time.shared_bytes = std::int64_t{record.staticSharedMemory} + record.dynamicSharedMemory;
  } else if (activity.kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
    const auto& record = reinterpret_cast<const CopyRecord&>(activity);
    // The next batch travels from the host on a separate stream, whenever it likes.
    if (record.copyKind != CUPTI_ACTIVITY_MEMCPY_KIND_DTOD) return;
    when(record);
    time.kind = KernelTime::Kind::copy;
  } else if (activity.kind == CUPTI_ACTIVITY_KIND_MEMSET) {
    when(reinterpret_cast<const FillRecord&>(activity));
    time.kind = KernelTime::Kind::fill;
  } else {
    return;
  }
  if (time.start_ns == 0 || time.end_ns < time.start_ns) {
    records().fault = join("CUPTI has no time for '", time.name, "'");
  }
  records().kernels.push_back(time);
}

void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most_records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(kBufferAlignment, kBufferBytes));
  *bytes = *buffer == nullptr ? 0 : kBufferBytes;
  *most_records = 0;  // as many as fit
}

void CUPTIAPI take_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t,
                          std::size_t valid_bytes) {
  if (buffer == nullptr) return;
  const std::lock_guard lock(records().mutex);
  CUpti_Activity* record = nullptr;
  CUptiResult result = CUPTI_SUCCESS;
  while (valid_bytes > 0) {
    result = cupti().next_record(buffer, valid_bytes, &record);
    if (result != CUPTI_SUCCESS) break;
    keep(*record);
  }
  if (result != CUPTI_SUCCESS && result != CUPTI_ERROR_MAX_LIMIT_REACHED) {
    records().fault = join("CUPTI's records cannot be read (", static_cast<int>(result), ")");
  }
  std::free(buffer);
}

Cupti::Cupti() {
#ifdef SKYTAPE_CUDA_SIMULATED
  register_callbacks = cuptiActivityRegisterCallbacks;
  enable = cuptiActivityEnable;
  disable = cuptiActivityDisable;
  flush = cuptiActivityFlushAll;
  next_record = cuptiActivityGetNextRecord;
  dropped = cuptiActivityGetNumDroppedRecords;
  result_string = cuptiGetResultString;
#else
  const std::string file = join("libcupti.so.", CUDART_VERSION / 1000);
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const reason = dlerror();
    missing = reason == nullptr ? file + " cannot be opened" : reason;
    return;
  }
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
    if (function == nullptr && missing.empty()) missing = join(file, " has no ", name);
  };
  find("cuptiActivityRegisterCallbacks", register_callbacks);
  find("cuptiActivityEnable", enable);
  find("cuptiActivityDisable", disable);
  find("cuptiActivityFlushAll", flush);
  find("cuptiActivityGetNextRecord", next_record);
  find("cuptiActivityGetNumDroppedRecords", dropped);
  find("cuptiGetResultString", result_string);
  if (!missing.empty()) return;
#endif
  ok(register_callbacks(give_buffer, take_buffer), "cuptiActivityRegisterCallbacks", missing);
}

/// While it lives, CUPTI records.
class Recording {
 public:
  Recording(const Cupti& cupti, std::string& fault) : cupti_(cupti) {
    for (const CUpti_ActivityKind kind : kKinds) {
      if (!cupti_.ok(cupti_.enable(kind), "cuptiActivityEnable", fault)) return;
      ++on_;
    }
  }
  ~Recording() {
    while (on_ > 0) (void)cupti_.disable(kKinds[--on_]);
  }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

 private:
  const Cupti& cupti_;
  std::size_t on_ = 0;  // kinds
};

}  // namespace

KernelTrace trace_kernels_on(Cuda, const std::function<void()>& f) {
  const Cupti& tracer = cupti();
  if (!tracer.missing.empty()) return {{}, tracer.missing};
  synchronize(Device::cuda);
  {
    const std::lock_guard lock(records().mutex);
    records().kernels.clear();
    records().fault.clear();
  }
  std::string fault;
  std::size_t dropped = 0;
  {
    const Recording recording(tracer, fault);
    if (fault.empty()) {
      f();
      synchronize(Device::cuda);
      tracer.ok(tracer.flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "cuptiActivityFlushAll", fault);
      tracer.ok(tracer.dropped(nullptr, 0, &dropped), "cuptiActivityGetNumDroppedRecords", fault);
    }
  }
  const std::lock_guard lock(records().mutex);
  if (fault.empty()) fault = records().fault;
  if (fault.empty() && dropped > 0) fault = join("CUPTI dropped ", dropped, " records");
  if (fault.empty() && records().kernels.empty()) fault = "CUPTI recorded no kernel";
  if (!fault.empty()) return {{}, fault};
  return {std::move(records().kernels), {}};
}

std::string kernel_name_on(Cuda, const void* function) {
  const char* name = nullptr;
  if (cudaFuncGetName(&name, function) == cudaSuccess && name != nullptr) return name;
  (void)cudaGetLastError();  // a name that is not known is no fault of the next kernel
  return {};
}
#else
KernelTrace trace_kernels_on(Cuda, const std::function<void()>&) {
  return {{}, "this program was built without CUPTI, or with a CUDA before 12.3"};
}
std::string kernel_name_on(Cuda, const void*) { return {}; }
#endif

// ---- times by events -------------------------------------------------------------------------
namespace {

/// The work submitted while an object lives, each with an event behind it.
class Submissions {
 public:
  Submissions() {
    current() = this;
    note("begin", 0);
  }
  ~Submissions() {
    current() = nullptr;
    for (const Entry& entry : entries_) (void)cudaEventDestroy(entry.done);
  }
  Submissions(const Submissions&) = delete;
  Submissions& operator=(const Submissions&) = delete;

  static Submissions*& current() {
    static Submissions* instance = nullptr;  // one stream, one thread that submits
    return instance;
  }
  void note(const char* name, std::int64_t blocks) {
    cudaEvent_t done = nullptr;
    CUDA_CHECK(cudaEventCreateWithFlags(&done, cudaEventDefault));
    entries_.push_back({name, blocks, done});
    CUDA_CHECK(cudaEventRecord(done, cuda::stream()));
  }
  /// Waits for all of it.
  [[nodiscard]] std::vector<LaunchTime> times() const {
    synchronize(Device::cuda);
    std::vector<LaunchTime> times;
    for (std::size_t i = 1; i < entries_.size(); ++i) {
      float ms = 0;
      CUDA_CHECK(cudaEventElapsedTime(&ms, entries_[i - 1].done, entries_[i].done));
      times.push_back({entries_[i].name, entries_[i].blocks, 1e3 * double{ms}});
    }
    return times;
  }

 private:
  struct Entry {
    std::string name;
    std::int64_t blocks;
    cudaEvent_t done;
  };
  std::vector<Entry> entries_;
};

__global__ void busy_kernel(std::int64_t nanoseconds) {
  const std::int64_t begin = cuda::global_nanoseconds();
  while (cuda::global_nanoseconds() - begin < nanoseconds) {
  }
}
__global__ void empty_kernel(int) {}

/// Returns the times of the work that f submits behind a kernel that keeps the GPU busy. That
/// kernel ends by itself: a host that has to wait for space in the stream's queue cannot hang.
std::vector<LaunchTime> times_behind(double busy_ms, const std::function<void()>& f) {
  synchronize(Device::cuda);
  cuda::launch({"busy", 1, 1}, busy_kernel, static_cast<std::int64_t>(1e6 * busy_ms));
  const Submissions submissions;
  f();
  return submissions.times();
}

}  // namespace

void cuda::submitted(const char* name, std::int64_t blocks) {
  if (Submissions::current() != nullptr && !capturing()) Submissions::current()->note(name, blocks);
}

bool cuda::launches_are_timed() { return Submissions::current() != nullptr; }

std::vector<LaunchTime> time_launches_on(Cuda, double busy_ms, const std::function<void()>& f) {
  constexpr int kEmpty = 101;
  std::vector<LaunchTime> empty = times_behind(1, [] {
    for (int i = 0; i < kEmpty; ++i) cuda::launch({"empty", 1, 1}, empty_kernel, i);
  });
  std::sort(empty.begin(), empty.end(), [](const auto& a, const auto& b) { return a.us < b.us; });
  std::vector<LaunchTime> times = times_behind(busy_ms, f);
  for (LaunchTime& time : times) time.us = std::max(0.0, time.us - empty[kEmpty / 2].us);
  return times;
}

int multiprocessors_on(Cuda) { return cuda::device_facts().multiprocessors; }

}  // namespace skytape
