// Batches: which examples, in which order, padded to which width.
//
// The order of an epoch is a pure function of (seed, epoch) and is never stored: a keyed
// permutation maps positions to examples. So a stream resumes from two integers, and its memory
// does not grow with the data set.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "data/batch.hpp"
#include "data/cache/dataset.hpp"
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

/// Returns the length that the training stream cuts sequences to in a step: grow_start for
/// grow_hold steps, then multiples of round_to, so that there are few widths; nominal_length from
/// step grow_steps on.
[[nodiscard]] int64_t grown_length(const BatchOptions& options, int64_t step);

/// Marks by `rule` which of `length` ids attention may read. Returns how many.
int32_t fill_mask(MaskRule rule, int64_t length, const int32_t* ids, float* mask);

/// Fills `batch` with the examples `rows` of `data`; its vectors are reused.
void collate(const Dataset& data, const std::vector<int64_t>& rows, const BatchOptions& options,
             Batch& batch);

/// Endless shuffled training stream; batches cross epoch ends, so each has `options.batch`
/// examples. Resuming from a cursor gives the same batches as never stopping: a batch is a function
/// of the options and the cursor, which says its step as well.
class BatchStream {
 public:
  BatchStream(Dataset data, const BatchOptions& options, Cursor start = {});

  void next(Batch& batch);
  [[nodiscard]] Cursor cursor() const { return cursor_; }

 private:
  [[nodiscard]] int64_t row_at_cursor();
  /// The options of the batch at the cursor: its sequences are cut as its step says.
  [[nodiscard]] BatchOptions options_at_cursor() const;
  void order_window(int64_t epoch, int64_t begin, int64_t end);

  Dataset data_;
  BatchOptions options_;
  Cursor cursor_;
  std::vector<int64_t> rows_;     // [batch], examples of the next batch
  std::vector<uint64_t> visits_;  // [batch], their Batch::visits
  // The shuffle window that holds the cursor, ordered; used with group_by_length only.
  int64_t window_epoch_ = -1;
  int64_t window_begin_ = 0;
  std::vector<int64_t> window_rows_;
  std::vector<int64_t> scratch_;
};

/// One pass over a split in file order; the last batch may be smaller.
class BatchPass {
 public:
  /// Visits the first `examples` examples; 0 means all. Of `parts` that take its batches in turn
  /// this is number `part`.
  BatchPass(Dataset data, const BatchOptions& options, int64_t examples = 0, int64_t part = 0,
            int64_t parts = 1);

  /// False when every example was handed out.
  bool next(Batch& batch);

 private:
  Dataset data_;
  BatchOptions options_;
  int64_t end_;
  int64_t position_, step_;  // examples
  std::vector<int64_t> rows_;
};

}  // namespace skytape::data
