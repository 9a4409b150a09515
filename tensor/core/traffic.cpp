#include "tensor/core/traffic.hpp"

#include <algorithm>
#include <atomic>

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

LaunchScope::LaunchScope() {
  if (counting == nullptr || counting->depth_++ > 0) return;
  counting->start_ = tensor::cpu_multiply_adds();
}

LaunchScope::~LaunchScope() {
  if (counting == nullptr || --counting->depth_ > 0) return;
  Launch launch{counting->again_, tensor::cpu_multiply_adds() - counting->start_,
                counting->product_};
  for (const auto& [storage, touched] : counting->touched_) {
    std::size_t bytes = 0;  // of pieces that may overlap
    for (const auto& [begin, length] : touched.pieces) bytes += length;
    launch.bytes += static_cast<std::int64_t>(std::min(bytes, touched.capacity));
  }
  counting->touched_.clear();
  counting->scratch_.clear();
  counting->again_ = 0;
  counting->product_ = false;
  if (launch.bytes > 0) counting->launches_.push_back(launch);
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

// Only where the product is a call of its own: a kernel may multiply inside.
void count_product() {
  if (counting != nullptr && counting->depth_ == 1) counting->product_ = true;
}

void count_again(std::size_t bytes) {
  GpuCount::again(bytes);
  if (counting != nullptr) counting->again_ += static_cast<std::int64_t>(bytes);
}

std::int64_t tensor::cpu_multiply_adds() { return work_done().load(std::memory_order_relaxed); }
void tensor::count_multiply_adds(std::int64_t count) {
  work_done().fetch_add(count, std::memory_order_relaxed);
}

}  // namespace skytape
