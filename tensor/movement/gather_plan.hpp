// Sizes of a gather or scatter, as the CPU and CUDA halves take them.
#pragma once

#include <cstdint>

namespace skytape::tensor {

/// x: [groups, rows, width], y: [groups, picks, width], index: [groups / sharing, picks].
struct GatherPlan {
  std::int64_t groups = 0;
  std::int64_t rows = 0;     // n
  std::int64_t picks = 0;    // d
  std::int64_t width = 0;    // p
  std::int64_t sharing = 1;  // consecutive groups that use the same list
};

}  // namespace skytape::tensor
