#include "tensor/core/gpu_count.hpp"

#include <atomic>
#include <cstring>

#include "tensor/core/error.hpp"

namespace skytape {
namespace {

thread_local GpuCount* counting = nullptr;

// No processor gives such addresses to a process. They are never used twice.
constexpr std::uintptr_t kFirst = std::uintptr_t{0x5a5a} << 48, kEnd = std::uintptr_t{0x5a5b} << 48;
constexpr std::uintptr_t kAlignment = 256;

}  // namespace

GpuCount::GpuCount() {
  ENSURE(counting == nullptr, "GpuCount: another one counts already");
  counting = this;
}

GpuCount::~GpuCount() { counting = nullptr; }

bool GpuCount::active() { return counting != nullptr; }

void* GpuCount::allocate(std::size_t bytes) {
  static std::atomic<std::uintptr_t> next = kFirst;
  const std::uintptr_t at = next.fetch_add((bytes / kAlignment + 1) * kAlignment);
  ENSURE(at + bytes < kEnd, "GpuCount: ", bytes, " bytes more than there are addresses");
  void* const data = reinterpret_cast<void*>(at);
  counting->memory_[data] = bytes;
  return data;
}

void GpuCount::free(const void* data) {
  if (counting == nullptr) return;
  const auto memory = counting->memory_.find(data);
  if (memory == counting->memory_.end()) return;  // of an earlier count
  const void* const end = static_cast<const char*>(data) + memory->second;
  counting->arrays_.erase(counting->arrays_.lower_bound(data), counting->arrays_.upper_bound(end));
  counting->memory_.erase(memory);
}

bool GpuCount::owns(const void* data) {
  const auto at = reinterpret_cast<std::uintptr_t>(data);
  return kFirst <= at && at < kEnd;
}

// The host asks a tensor for its address just before it submits the kernel. Only beginnings of
// arrays that still are there count.
void GpuCount::argument(const void* value, std::size_t bytes) {
  for (std::size_t at = 0; at + sizeof(void*) <= bytes; at += sizeof(void*)) {
    const void* word = nullptr;
    std::memcpy(&word, static_cast<const char*>(value) + at, sizeof word);
    if (!owns(word)) continue;
    const auto array = counting->arrays_.find(word);
    if (array != counting->arrays_.end()) counting->arguments_.insert(*array);
  }
}

void GpuCount::kernel(const char* name, const void* function, std::int64_t blocks, Work work) {
  for (const auto& [begin, length] : counting->arguments_) {
    work.bytes += static_cast<std::int64_t>(length);
  }
  counting->arguments_.clear();
  counting->kernels_.push_back({name, {}, work, blocks, function});
}

void GpuCount::call(const char* name, const Work& work) {
  counting->kernels_.push_back({name, {}, work, 0, nullptr});
}

void GpuCount::end_part(const char* name) {
  if (counting == nullptr) return;
  for (; counting->parted_ < counting->kernels_.size(); ++counting->parted_) {
    counting->kernels_[counting->parted_].part = name;
  }
}

void GpuCount::array(const void* begin, std::size_t bytes) {
  if (counting != nullptr && owns(begin)) counting->arrays_[begin] = bytes;
}

void GpuCount::again(std::int64_t bytes) {
  if (counting == nullptr || counting->kernels_.empty()) return;
  counting->kernels_.back().work.bytes += bytes;
}

}  // namespace skytape
