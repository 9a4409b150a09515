// Work of a GPU that does not need each other's results, on two streams: kernels of few blocks
// leave multiprocessors free for others.
#pragma once

#include <functional>

#include "tensor/core/device.hpp"
#include "tensor/core/on_device.hpp"

namespace skytape {

/// Calls f, then g. On a GPU f's work, the longer one of fewer blocks, runs in parallel with what g
/// submits: both after all that was submitted before, and all that is submitted later after both.
/// So neither may read what the other writes. Within a Graph's capture, too. Memory that either
/// lets go of is used again only afterwards.
void side_by_side_on(Cuda, const std::function<void()>& f, const std::function<void()>& g);
inline void side_by_side(Device device, const std::function<void()>& f,
                         const std::function<void()>& g) {
  if constexpr (kHaveCuda) {
    if (device == Device::cuda) return side_by_side_on(Cuda{}, f, g);
  }
  f();
  g();
}

}  // namespace skytape
