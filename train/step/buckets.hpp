// The sum of a step in parts that are exchanged one after another while the backward pass goes on.
// Parameters lie in their flat buffer in the order in which forward uses them, and backward goes
// the other way: so the first bucket is the end of the buffer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "autograd/parameter.hpp"
#include "autograd/tape.hpp"
#include "train/step/share.hpp"

namespace skytape::train {

/// Cuts a sum of `numbers`, the gradients and what stands behind them, into buckets in the order in
/// which they are exchanged. A bucket ends where it holds `size` numbers of whole parameters; the
/// last one has what is behind the trainable parameters, averages among it. One bucket has all if
/// `size` is 0 or the parameters fill no second one.
[[nodiscard]] std::vector<Bucket> buckets_of(const ParameterStore& parameters, std::int64_t numbers,
                                             std::int64_t size);

/// Returns for each bucket the first node of the tape that reads one of its parameters: backward
/// goes from the last node to the first, and behind this one the bucket's gradients are final. It
/// is the number of nodes if none reads them, and -1, which never comes, for the last bucket.
[[nodiscard]] std::vector<int> first_readers(const Tape& tape, std::span<const Bucket> buckets);

}  // namespace skytape::train
