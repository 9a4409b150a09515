#include "data/random.hpp"

#include <bit>

namespace skytape::data {

Permutation::Permutation(uint64_t size, uint64_t seed, uint64_t index)
    : size_(size), half_bits_((std::bit_width(size > 1 ? size - 1 : 1) + 1) / 2) {
  Stream stream(seed, Purpose::shuffle, index);
  for (uint64_t& key : keys_) key = stream.next();
}

uint64_t Permutation::operator()(uint64_t position) const {
  const uint64_t low_mask = (uint64_t{1} << half_bits_) - 1;
  do {  // fewer than four steps on average: the network's range is below 4 * size
    uint64_t left = position >> half_bits_, right = position & low_mask;
    for (const uint64_t key : keys_) {
      const uint64_t next = left ^ (mix64(right + key) & low_mask);
      left = right;
      right = next;
    }
    position = left << half_bits_ | right;
  } while (position >= size_);
  return position;
}

}  // namespace skytape::data
