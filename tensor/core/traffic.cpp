#include "tensor/core/traffic.hpp"

#include <algorithm>
#include <atomic>
#include <utility>

#include "tensor/core/error.hpp"
#include "tensor/core/gpu_count.hpp"
#include "tensor/core/storage.hpp"

namespace skytape {
namespace {

thread_local TrafficCount* counting = nullptr;

/// One relaxed addition per serial product, some 10 us of work.
std::atomic<std::int64_t>& work_done() {
  static std::atomic<std::int64_t> count = 0;
  return count;
}

}  // namespace

TrafficCount::TrafficCount() {
  ENSURE(counting == nullptr, "TrafficCount: another one counts already");
  counting = this;
}

TrafficCount::~TrafficCount() { counting = nullptr; }

// Only where the product is a separate call: a kernel may multiply inside.
LaunchScope::LaunchScope(const Work& stated) : bytes_(stated.bytes) {
  if (counting == nullptr) return;
  counting->stated_.bytes += stated.bytes;
  if (counting->depth_++ > 0) return;
  counting->stated_.product = stated.product;
  counting->start_ = tensor::cpu_multiply_adds();
}

LaunchScope::~LaunchScope() {
  GpuCount::again(bytes_);
  if (counting == nullptr || --counting->depth_ > 0) return;
  Work work = std::exchange(counting->stated_, Work{});
  work.multiply_adds = tensor::cpu_multiply_adds() - counting->start_;
  for (const auto& [storage, touched] : counting->touched_) {
    std::size_t bytes = 0;  // of pieces that may overlap
    for (const auto& [begin, length] : touched.pieces) bytes += length;
    work.bytes += static_cast<std::int64_t>(std::min(bytes, touched.capacity));
  }
  counting->touched_.clear();
  counting->scratch_.clear();
  if (work.bytes > 0) counting->launches_.push_back(work);
}

void TrafficHooks::touched(const Storage& storage, const void* begin, std::size_t bytes) {
  GpuCount::array(begin, bytes);
  if (counting == nullptr || counting->depth_ == 0 || counting->scratch_.contains(&storage)) return;
  TrafficCount::Touched& touched = counting->touched_[&storage];
  touched.capacity = storage.bytes();
  touched.pieces.insert({begin, bytes});
}

void TrafficHooks::made(const Storage& storage) {
  if (counting != nullptr && counting->depth_ > 0) counting->scratch_.insert(&storage);
}

std::int64_t tensor::cpu_multiply_adds() { return work_done().load(std::memory_order_relaxed); }
void tensor::count_multiply_adds(std::int64_t count) {
  work_done().fetch_add(count, std::memory_order_relaxed);
}

}  // namespace skytape
