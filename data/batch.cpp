#include "data/batch.hpp"

#include <algorithm>

#include "tensor/core/tensor.hpp"

namespace skytape::data {

int64_t Batch::longest(int64_t b) const {
  int64_t most = 0;
  for (int sequence = 0; sequence < sequences; ++sequence) {
    most = std::max<int64_t>(most, lengths[sequence][b]);
  }
  return most;
}

int64_t Batch::trimmed(int64_t length) const {
  if (round_to == 0) return width;
  const int64_t steps = ceil_div(std::max<int64_t>(1, length), round_to);
  return std::min(steps * round_to, width);
}

}  // namespace skytape::data
