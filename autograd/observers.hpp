// Observers of a tape: the events that Tape::observe hands to them, and two that are ready for use.
#pragma once

#include <map>
#include <string>

#include "autograd/tape.hpp"

namespace skytape {

/// An op forward or backward, as an observer sees it.
struct TapeEvent {
  enum class Kind {
    parameter,  // a parameter is about to become leaf `node`; `op` is its name
    output,     // an op has computed output `index` and is about to become `node`
    gradient,   // the backward function of an op gave the gradient of input `index`, or rows of it
    backward    // the backward function of an op has ended; `tensor` is its dy (of the last output
                // that a gradient reached). As op "gradients": backward added the last gradients
                // that waited to their parameters
  } kind;
  const char* op;
  int node;
  int index;
  const Tensor& tensor;
};

/// Names the first parameter, output or gradient that is not finite, by throwing NonFiniteError.
/// Reads back from the device after each op: for finding faults, not for speed.
[[nodiscard]] TapeObserver finite_check();

/// Seconds by the op's name, forward and backward together.
using OpSeconds = std::map<std::string, double>;

/// Adds the time of each op to `seconds`, which must outlive the tape, from now on. Time between
/// two ops is added to the later one. Waits for the device after each op.
[[nodiscard]] TapeObserver op_timer(OpSeconds& seconds);

}  // namespace skytape
