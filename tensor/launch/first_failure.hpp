// Exceptions in parallel regions of OpenMP: one that leaves a region ends the program, so that
// nobody could catch it. Memory runs out there, too: libraries' products allocate their own.
#pragma once

#include <atomic>
#include <exception>

namespace skytape::cpu {

/// Keeps the first exception of a region's threads for the thread that comes out of it.
class FirstFailure {
 public:
  /// For inside the region: f(), or nothing once something has failed.
  template <class F> void guard(const F& f) noexcept {
    if (failed_.load(std::memory_order_relaxed)) return;
    try {
      f();
    } catch (...) {
      if (!failed_.exchange(true)) failure_ = std::current_exception();
    }
  }
  /// For behind the region, whose end all threads have reached: throws what was kept.
  void rethrow() const {
    if (failure_ != nullptr) std::rethrow_exception(failure_);
  }

 private:
  std::atomic<bool> failed_ = false;
  std::exception_ptr failure_;
};

}  // namespace skytape::cpu
