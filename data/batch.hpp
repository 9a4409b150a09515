// One padded batch on the host, and where the stream that it came from stands.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace skytape::data {

inline constexpr int kMaxSequences = 2;

/// Position in an endless stream: `position` examples of `epoch` were handed out.
struct Cursor {
  int64_t epoch = 0;
  int64_t position = 0;
  friend bool operator==(const Cursor&, const Cursor&) = default;
};

/// A padded batch. An example is one sequence, or the two that a dual encoder reads;
/// the vectors of a second one that a task does not have stay empty.
struct Batch {
  int64_t size = 0;            // B, examples
  int64_t width = 0;           // n, trimmed positions, the same for both sequences
  int64_t round_to = 0;        // trimmed widths are multiples of it; 0: not trimmed
  int64_t widest = 0;          // width that no batch of the same stream exceeds
  int64_t nominal_length = 0;  // length that positions, means and projections refer to
  int sequences = 1;
  std::array<std::vector<int32_t>, kMaxSequences> ids;       // [B, n], 0 behind the end
  std::array<std::vector<float>, kMaxSequences> mask;        // [B, n], 1 = attention may read
  std::array<std::vector<int32_t>, kMaxSequences> lengths;   // [B], tokens before padding
  std::array<std::vector<int32_t>, kMaxSequences> unmasked;  // [B], ones in the mask
  std::vector<int32_t> labels;                               // [B]
  std::vector<uint64_t> visits;  // [B], a number of each example in each epoch: epoch * size + row
  int64_t real_tokens = 0;       // ones in all masks, first_token apart
  // Masked-token prediction, see data/masking.hpp; 0 and empty otherwise.
  double target_rate = 0;                                       // share of tokens that are targets
  int64_t targets = 0;                                          // P, room for targets of a sequence
  std::array<std::vector<int32_t>, kMaxSequences> target_at;    // [B, P], positions; 0: none
  std::array<std::vector<int32_t>, kMaxSequences> target_ids;   // [B, P], what stood there
  std::array<std::vector<float>, kMaxSequences> target_weight;  // [B, P], 1 / their number, or 0
  Cursor after;  // cursor of the stream once this batch is consumed: what a checkpoint stores

  /// Tokens of example b before padding, in its longer sequence.
  [[nodiscard]] int64_t longest(int64_t b) const;
  /// Width of a batch whose longest example has `length` tokens; `width` where nothing is trimmed.
  [[nodiscard]] int64_t trimmed(int64_t length) const;
};

}  // namespace skytape::data
