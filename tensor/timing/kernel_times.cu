// CUDA half of kernel_times.cpp.
#include "tensor/timing/kernel_times.hpp"

#include <cstdlib>
#include <mutex>

#include "tensor/launch/cuda.hpp"
#if __has_include(<cupti.h>) && CUDART_VERSION >= 12030
#include <cupti.h>
#ifndef SKYTAPE_CUDA_SIMULATED
#include <dlfcn.h>
#endif
#endif

namespace skytape {

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
  std::size_t parted = 0;  // of them belong to a part
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
    active() = true;
  }
  ~Recording() {
    active() = false;
    while (on_ > 0) (void)cupti_.disable(kKinds[--on_]);
  }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  static bool& active() {
    static bool instance = false;
    return instance;
  }

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
    records().parted = 0;
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

void end_traced_part_on(Cuda, const char* part) {
  if (!Recording::active()) return;
  synchronize(Device::cuda);
  std::string fault;
  cupti().ok(cupti().flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "cuptiActivityFlushAll", fault);
  const std::lock_guard lock(records().mutex);
  if (!fault.empty()) records().fault = fault;
  for (; records().parted < records().kernels.size(); ++records().parted) {
    records().kernels[records().parted].part = part;
  }
}
#else
KernelTrace trace_kernels_on(Cuda, const std::function<void()>&) {
  return {{}, "this program was built without CUPTI, or with a CUDA before 12.3"};
}
void end_traced_part_on(Cuda, const char*) {}
#endif

int multiprocessors_on(Cuda) { return cuda::device_facts().multiprocessors; }

}  // namespace skytape
