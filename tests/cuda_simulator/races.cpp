#include "tests/cuda_simulator/races.hpp"

#include <algorithm>

#include "tensor/core/error.hpp"

namespace skytape::cuda_simulator {
namespace {

constexpr std::uint8_t kSeveral = 255;  // warps that read

/// Between the ends of the block's arrays; most accesses lie elsewhere. One block runs on a CPU's
/// thread.
thread_local std::uintptr_t lowest = 0, highest = 0;

}  // namespace

void SharedAccesses::start_block() {
  count_ = 0;
  ++epoch_;
}

void SharedAccesses::end_block() { lowest = highest = 0; }

void SharedAccesses::add(const unsigned char* begin, std::size_t bytes) {
  if (bytes == 0) return;
  if (count_ == arrays_.size()) arrays_.emplace_back();
  Array& array = arrays_[count_++];
  array.begin = begin;
  array.bytes = bytes;
  if (array.touched.size() < bytes) array.touched.resize(bytes);
  const auto from = reinterpret_cast<std::uintptr_t>(begin);
  lowest = count_ == 1 ? from : std::min(lowest, from);
  highest = count_ == 1 ? from + bytes : std::max(highest, from + bytes);
}

/// Returns the conflicting action of another warp, "wrote" or "read", or nullptr.
const char* SharedAccesses::touch(Touched& t, std::uint8_t warp, bool writes) const {
  if (t.epoch != epoch_) t = {epoch_};
  if (t.writer != 0 && t.writer != warp) return "wrote";
  if (writes && t.reader != 0 && t.reader != warp) return "read";
  if (writes) {
    t.writer = warp;
  } else {
    t.reader = t.reader == 0 || t.reader == warp ? warp : kSeveral;
  }
  return nullptr;
}

std::string SharedAccesses::see(const unsigned char* at, std::size_t bytes, unsigned warp,
                                bool writes) {
  for (std::size_t i = 0; i < count_; ++i) {
    Array& array = arrays_[i];
    if (at < array.begin || at >= array.begin + array.bytes) continue;
    const auto first = static_cast<std::size_t>(at - array.begin);
    const std::size_t end = std::min(first + bytes, array.bytes);
    for (std::size_t byte = first; byte < end; ++byte) {
      const char* const met =
          touch(array.touched[byte], static_cast<std::uint8_t>(warp + 1), writes);
      if (met == nullptr) continue;
      return join("a race between warps: warp ", warp, writes ? " writes" : " reads", " byte ",
                  byte, " of ", array.bytes, " of shared memory, which another warp ", met,
                  " since the last __syncthreads");
    }
    return {};
  }
  return {};
}

namespace {

void access(void* at, std::size_t bytes, bool writes) {
  const auto place = reinterpret_cast<std::uintptr_t>(at);
  if (place < lowest || place >= highest) return;
  watched_access(at, bytes, writes);
}

}  // namespace
}  // namespace skytape::cuda_simulator

// ---- what g++ calls
// ------------------------------------------------------------------------------
using skytape::cuda_simulator::access;

extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_read_range(void* at, std::size_t bytes) { access(at, bytes, false); }
void __tsan_write_range(void* at, std::size_t bytes) { access(at, bytes, true); }
#define SKYTAPE_ACCESSES(bytes)                                             \
  void __tsan_read##bytes(void* at) { access(at, bytes, false); }           \
  void __tsan_write##bytes(void* at) { access(at, bytes, true); }           \
  void __tsan_unaligned_read##bytes(void* at) { access(at, bytes, false); } \
  void __tsan_unaligned_write##bytes(void* at) { access(at, bytes, true); } \
  void __tsan_volatile_read##bytes(void* at) { access(at, bytes, false); }  \
  void __tsan_volatile_write##bytes(void* at) { access(at, bytes, true); }
SKYTAPE_ACCESSES(1)
SKYTAPE_ACCESSES(2)
SKYTAPE_ACCESSES(4)
SKYTAPE_ACCESSES(8)
SKYTAPE_ACCESSES(16)
#undef SKYTAPE_ACCESSES
// Operations of the host's half of kernel files: counts of shared pointers, guards of static
// variables.
#define SKYTAPE_ATOMICS(bits, Number)                                          \
  Number __tsan_atomic##bits##_load(const volatile Number* at, int) {          \
    return __atomic_load_n(at, __ATOMIC_SEQ_CST);                              \
  }                                                                            \
  Number __tsan_atomic##bits##_fetch_add(volatile Number* at, Number n, int) { \
    return __atomic_fetch_add(at, n, __ATOMIC_SEQ_CST);                        \
  }
SKYTAPE_ATOMICS(8, std::uint8_t)
SKYTAPE_ATOMICS(32, std::uint32_t)
SKYTAPE_ATOMICS(64, std::uint64_t)
#undef SKYTAPE_ATOMICS
}
