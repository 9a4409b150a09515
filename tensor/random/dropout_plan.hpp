// What dropout kernels need to know: which element numbers a tensor's memory has, and what to keep.
#pragma once

#include <cstdint>

namespace skytape::tensor {

/// Memory is `ranges` runs of `range_size` entries; entry i of run r has element number
/// first + r * range_stride + i. An element is dropped when its 16 bits are < threshold.
struct DropoutPlan {
  std::uint64_t key = 0;
  const std::int32_t* step = nullptr;  // on the device of the tensors; null: step 0
  std::uint32_t threshold = 0;         // rate * 65536
  double scale = 1;                    // of kept entries: 1 / (1 - threshold / 65536)
  std::int64_t first = 0;
  std::int64_t ranges = 0;
  std::int64_t range_size = 0;
  std::int64_t range_stride = 0;
};

}  // namespace skytape::tensor
