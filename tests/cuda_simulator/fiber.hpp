// Fibers: stacks that take turns on one thread.
#pragma once

#include <cstddef>

namespace skytape::cuda_simulator {

/// A stack and where its fiber stopped. `bottom` and `size` are for address sanitizer.
struct Fiber {
  void* stopped_at = nullptr;
  void* bottom = nullptr;
  std::size_t size = 0;
  void* fake_stack = nullptr;
};

/// The calling thread's own stack as a fiber.
[[nodiscard]] Fiber this_thread();
/// A fiber with a separate stack. Stacks start at different cache sets: number chooses one.
[[nodiscard]] Fiber make_fiber(std::size_t number);
void free_fiber(Fiber& fiber);
/// Forgets what the fiber did; it will start with main() when it is switched to.
void start_fiber(Fiber& fiber, std::size_t number, void (*main)());
/// Stops `from`, which runs, and continues `to`.
void switch_fiber(Fiber& from, Fiber& to);
/// The first thing a fiber's main must call.
void entered_fiber();

}  // namespace skytape::cuda_simulator
