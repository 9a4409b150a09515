// The options of batches: which tokens of a sequence they have, how wide they are, how they follow
// one another.
#pragma once

#include <algorithm>
#include <cstdint>

#include "data/task.hpp"

namespace skytape::data {

/// The part of a sequence that training's cut keeps: its front, or half of the length from each
/// end.
enum class Keep { front, ends };
/// The growth of the length that training cuts to: by as much, or by as large a factor, in each
/// step.
enum class Growth { linear, geometric };

/// Other views of a picture with the same label, drawn for each visit anew; rows of the picture are
/// `columns` tokens of a sequence.
struct Variations {
  int64_t columns = 0;
  bool mirror = false;  // left and right are exchanged in half of the visits
  int64_t shift = 0;    // most pixels that it is moved by, either way; black follows
  int64_t black = 0;    // id of a black pixel
};

struct BatchOptions {
  int64_t batch = 32;
  int64_t max_length = 0;      // tokens kept from the front; 0: nominal_length
  int64_t nominal_length = 0;  // required
  MaskRule mask = MaskRule::length;
  int drop_token = -1;    // stored token left out on reading (TaskInfo::closing_symbol)
  int first_token = -1;   // id put before every sequence, which counts to its length; -1: none
  bool trim = true;       // false: width is nominal_length (methods that read their padding)
  int64_t round_to = 64;  // trimmed widths are multiples of it
  bool group_by_length = false;  // batches of similar lengths inside a shuffle window
  int64_t window = 64;           // batches per shuffle window
  uint64_t seed = 42;
  // A training stream's sequences are cut to a length that grows from grow_start to nominal_length
  // over grow_steps steps; 0: they are not. The first grow_hold of them stay at grow_start. Every
  // grow_whole-th uses the full length, so that whole sequences are never forgotten; 0: none.
  int64_t grow_steps = 0;
  int64_t grow_hold = 0;
  int64_t grow_whole = 0;
  int64_t grow_start = 64;
  Growth growth = Growth::linear;
  Keep keep = Keep::front;
  Variations variations = {};  // in which a training stream shows pictures
  int64_t cut_to = 0;  // places of a sequence in this batch, the training stream's; 0: max_length

  /// Places that a batch keeps free in front of a sequence.
  [[nodiscard]] int64_t places_before() const { return first_token >= 0 ? 1 : 0; }
  /// Tokens of a sequence that a batch has room for; what follows them is not read.
  [[nodiscard]] int64_t most_tokens() const {
    const int64_t room = nominal_length - places_before();
    return max_length > 0 ? std::min(max_length, room) : room;
  }
};

}  // namespace skytape::data
