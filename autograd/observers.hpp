// Observers for Tape::observe: the tape calls them at each op, forward and backward.
#pragma once

#include <map>
#include <string>

#include "autograd/tape.hpp"

namespace skytape {

/// Names the first parameter, output or gradient that is not finite, by throwing NonFiniteError.
/// Reads back from the device after each op: for finding faults, not for speed.
[[nodiscard]] TapeObserver finite_check();

/// Seconds by the op's name, forward and backward together.
using OpSeconds = std::map<std::string, double>;

/// Adds the time of each op to `seconds`, which must outlive the tape, from now on. Time between two
/// ops is added to the later one. Waits for the device after each op.
[[nodiscard]] TapeObserver op_timer(OpSeconds& seconds);

}  // namespace skytape
