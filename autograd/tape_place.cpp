#include "autograd/tape_place.hpp"

#include <pthread.h>

#include <mutex>
#include <vector>

namespace skytape {
namespace {

std::mutex mutex;

/// The places that no tape has. They live until the process ends.
std::vector<TapePlace*>& free_places() {
  static auto& places = *new std::vector<TapePlace*>;
  return places;
}

std::size_t places_made = 0;

/// A fork while another thread makes a tape would leave the child a mutex that nobody unlocks.
[[maybe_unused]] const int forks =
    pthread_atfork([] { mutex.lock(); }, [] { mutex.unlock(); }, [] { mutex.unlock(); });

}  // namespace

TapePlace& TapePlace::take(Tape* tape) {
  const std::lock_guard lock(mutex);
  if (free_places().empty()) {
    free_places().reserve(++places_made);  // leave(), in a destructor, must not allocate
    free_places().push_back(new TapePlace);
  }
  TapePlace& place = *free_places().back();
  free_places().pop_back();
  place.tape_ = tape;
  ++place.generation_;
  return place;
}

void TapePlace::leave() {
  const std::lock_guard lock(mutex);
  ++generation_;
  free_places().push_back(this);
}

}  // namespace skytape
