// The events of a tape: each op forward and backward, as observers see them (observers.hpp).
#pragma once

#include <functional>

#include "tensor/core/tensor.hpp"

namespace skytape {

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
using TapeObserver = std::function<void(const TapeEvent&)>;

}  // namespace skytape
