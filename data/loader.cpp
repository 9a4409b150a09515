#include "data/loader.hpp"

#include <chrono>

#include "tensor/core/error.hpp"

namespace skytape::data {

Loader::Loader(Fill fill, int ahead) {
  ENSURE(ahead >= 1, "Loader: ahead is ", ahead, ", expected at least 1");
  ring_.resize(ahead + 1);  // one more: the batch that the consumer holds
  thread_ = std::thread([this, fill = std::move(fill)] { run(fill); });
}

Loader::Loader(BatchPass pass, int ahead)
    : Loader([pass = std::move(pass)](Batch& batch) mutable { return pass.next(batch); }, ahead) {}

Loader::~Loader() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Loader::run(const Fill& fill) {
  const auto slots = static_cast<int64_t>(ring_.size());
  std::unique_lock lock(mutex_);
  try {
    for (;;) {
      changed_.wait(lock, [&] { return stop_ || filled_ - consumed_ < slots; });
      if (stop_) break;
      Batch& slot = ring_[filled_ % slots];
      lock.unlock();
      const bool more = fill(slot);
      lock.lock();
      if (!more) break;
      ++filled_;
      changed_.notify_all();
    }
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    error_ = std::current_exception();
  }
  done_ = true;
  changed_.notify_all();
}

const Batch* Loader::next() {
  const auto start = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  if (holding_) {
    ++consumed_;
    holding_ = false;
    changed_.notify_all();
  }
  changed_.wait(lock, [&] { return done_ || filled_ > consumed_; });
  waited_seconds_ +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (filled_ > consumed_) {
    holding_ = true;
    return &ring_[consumed_ % static_cast<int64_t>(ring_.size())];
  }
  if (error_) std::rethrow_exception(error_);
  return nullptr;
}

}  // namespace skytape::data
