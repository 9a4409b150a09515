#include "autograd/observers.hpp"

#include <chrono>

#include "tensor/kernels/elementwise.hpp"
#include "tensor/timing/kernel_times.hpp"

namespace skytape {

using Kind = TapeEvent::Kind;

TapeObserver finite_check() {
  return [](const TapeEvent& event) {
    if (event.kind == Kind::backward || tensor::all_finite(event.tensor)) return;
    if (event.kind == Kind::parameter) {
      throw NonFiniteError(
          join("parameter ", event.op, ": value ", event.tensor, " is not finite"));
    }
    const std::string what = event.kind == Kind::output
                                 ? join("output ", event.tensor)
                                 : join("gradient ", event.tensor, " of input ", event.index);
    throw NonFiniteError(join(event.op, ": ", what, " is not finite (node ", event.node, ")"));
  };
}

TapeObserver op_timer(OpSeconds& seconds) {
  using Clock = std::chrono::steady_clock;
  return [&seconds, timed = Clock::now()](const TapeEvent& event) mutable {
    if (event.kind == Kind::parameter || event.kind == Kind::gradient) return;
    synchronize(event.tensor.device());
    end_traced_part(event.op);
    const Clock::time_point now = Clock::now();
    seconds[event.op] += std::chrono::duration<double>(now - timed).count();
    timed = now;
  };
}

}  // namespace skytape
