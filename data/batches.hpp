// Batches: which examples, in which order, padded to which width.
//
// The order of an epoch is a pure function of (seed, epoch) and is never stored: a keyed
// permutation maps positions to examples. So a stream resumes from two integers, and its memory
// does not grow with the data set.
#pragma once

#include <cstdint>
#include <vector>

#include "data/batch.hpp"
#include "data/batch_options.hpp"
#include "data/cache/dataset.hpp"

namespace skytape::data {

/// Returns the length that the training stream cuts sequences to in a step: grow_start for
/// grow_hold steps, then multiples of round_to, so that there are few widths; nominal_length from
/// step grow_steps on.
[[nodiscard]] int64_t grown_length(const BatchOptions& options, int64_t step);

/// Marks by `rule` which of `length` ids attention may read. Returns how many.
int32_t fill_mask(MaskRule rule, int64_t length, const int32_t* ids, float* mask);

/// Places of a sequence in a batch: its tokens without dropped and cut ones, and what stands before
/// them.
[[nodiscard]] int64_t shown_length(const Dataset& data, int64_t row, int sequence,
                                   const BatchOptions& options);

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
