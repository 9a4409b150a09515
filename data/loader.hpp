// One thread that prepares batches ahead of the training step.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "data/batches.hpp"

namespace skytape::data {

/// Runs `fill` on its own thread into a bounded ring of reused batches; no allocation once the
/// buffers have grown. Destroying it stops the thread immediately.
class Loader {
 public:
  using Fill = std::function<bool(Batch&)>;  // false: the pass is over

  /// `ahead` batches wait ready at most.
  explicit Loader(Fill fill, int ahead = 3);
  explicit Loader(BatchPass pass, int ahead = 3);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// The next batch, valid until the following call; null after the last one. Rethrows what `fill`
  /// threw.
  [[nodiscard]] const Batch* next();

  /// Returns the seconds that next() has taken so far: the consumer waits in it for a batch, or for
  /// the lock alone.
  [[nodiscard]] double waited_seconds() const { return waited_seconds_; }

 private:
  void run(const Fill& fill);

  std::vector<Batch> ring_;  // slots are filled and consumed in turn
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t filled_ = 0;    // batches produced so far
  int64_t consumed_ = 0;  // batches the consumer has finished with
  bool holding_ = false;  // the consumer reads slot consumed_
  bool done_ = false;     // the producer has stopped
  bool stop_ = false;     // the consumer has gone
  std::exception_ptr error_;
  double waited_seconds_ = 0;
  std::thread thread_;  // last: starts when everything above is built
};

}  // namespace skytape::data
