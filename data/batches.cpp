#include "data/batches.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "data/random.hpp"
#include "data/variations.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/tensor.hpp"

namespace skytape::data {

int32_t fill_mask(MaskRule rule, int64_t length, const int32_t* ids, float* mask) {
  if (rule == MaskRule::length) {
    std::fill(mask, mask + length, 1.0f);
    return static_cast<int32_t>(length);
  }
  int32_t ones = 0;
  for (int64_t j = 0; j < length; ++j) {
    mask[j] = ids[j] != 0 ? 1.0f : 0.0f;
    ones += ids[j] != 0;
  }
  return ones;
}

namespace {

/// Places of a sequence in a batch, if training did not cut it: its tokens after dropping and
/// max_length, and what stands before them.
int64_t whole_length(const Dataset& data, int64_t row, int sequence, const BatchOptions& options) {
  int64_t length = data.length(row, sequence);
  if (options.drop_token >= 0) {
    const std::span<const uint8_t> tokens = data.tokens(row, sequence);
    length -= std::count(tokens.begin(), tokens.end(), static_cast<uint8_t>(options.drop_token));
  }
  return std::min(length, options.most_tokens()) + options.places_before();
}

}  // namespace

int64_t shown_length(const Dataset& data, int64_t row, int sequence, const BatchOptions& options) {
  const int64_t length = whole_length(data, row, sequence, options);
  return options.cut_to > 0 ? std::min(length, options.cut_to) : length;
}

namespace {

/// Writes `length` ids and the mask of one row, `left_out` tokens being cut from it, then padding
/// up to `width`. Returns the ones.
template <class Token> int32_t fill_row(std::span<const Token> tokens, int64_t length,
                                        int64_t left_out, int64_t width, int offset,
                                        const BatchOptions& options, int32_t* ids, float* mask) {
  const int64_t first = options.places_before();
  if (first == 1) ids[0] = options.first_token;
  // Tokens [gap, gap + left_out) of those that are not dropped stay away.
  const int64_t gap = options.keep == Keep::ends ? (length - first + 1) / 2 : length - first;
  if (options.drop_token < 0) {
    for (int64_t j = 0; j < length - first; ++j) {
      ids[first + j] = tokens[j < gap ? j : j + left_out] + offset;
    }
  } else {
    const Token* at = tokens.data();
    for (int64_t j = 0; j < length - first + left_out; ++at) {
      if (*at == options.drop_token) continue;
      const bool shown = j < gap || j >= gap + left_out;
      if (shown) ids[first + (j < gap ? j : j - left_out)] = *at + offset;
      ++j;
    }
  }
  std::fill(ids + length, ids + width, 0);
  std::fill(mask + length, mask + width, 0.0f);
  return fill_mask(options.mask, length, ids, mask);
}

/// Returns the options, checked, with a max_length of at most the longest sequence: as much memory
/// is reserved.
BatchOptions options_for(const Dataset& data, BatchOptions options) {
  ENSURE(data.size() > 0, "batches: the split has no example");
  ENSURE(options.batch > 0, "batches: batch is ", options.batch, ", expected at least 1");
  ENSURE(options.nominal_length > 0, "batches: nominal_length is ", options.nominal_length,
         ", expected at least 1");
  ENSURE(options.round_to > 0, "batches: round_to is ", options.round_to, ", expected at least 1");
  ENSURE(options.window > 0, "batches: window is ", options.window, ", expected at least 1");
  ENSURE(options.grow_steps >= 0 && options.grow_start > options.places_before() &&
             (options.grow_steps == 0 || options.grow_start <= options.nominal_length),
         "batches: lengths grow from ", options.grow_start, " to ", options.nominal_length,
         " over ", options.grow_steps,
         " steps: expected room for a token and no negative number of steps");
  ENSURE(options.grow_hold >= 0 && options.grow_hold <= options.grow_steps,
         "batches: lengths stay as they are for ", options.grow_hold, " of ", options.grow_steps,
         " steps: expected a part of them");
  ENSURE(options.grow_whole >= 0, "batches: each ", options.grow_whole,
         "th step is whole: expected no negative number");
  const Variations& v = options.variations;
  ENSURE(v.shift >= 0 && (v.columns > 0 || (!v.mirror && v.shift == 0)), "batches: pictures of ",
         v.columns, " columns are to be moved by ", v.shift,
         ": expected columns, and no negative number of pixels");
  options.max_length = std::max<int64_t>(1, std::min(options.most_tokens(), data.longest()));
  return options;
}

}  // namespace

void collate(const Dataset& data, const std::vector<int64_t>& rows, const BatchOptions& options,
             Batch& batch) {
  batch.size = static_cast<int64_t>(rows.size());
  batch.nominal_length = options.nominal_length;
  batch.sequences = data.sequences();
  batch.real_tokens = 0;
  batch.labels.resize(rows.size());
  batch.round_to = options.trim ? options.round_to : 0;
  batch.width = options.nominal_length;
  batch.widest = batch.trimmed(options.most_tokens() + options.places_before());
  int64_t longest = 1;
  for (int sequence = 0; sequence < batch.sequences; ++sequence) {
    batch.lengths[sequence].resize(rows.size());
    for (size_t b = 0; b < rows.size(); ++b) {
      const int64_t length = shown_length(data, rows[b], sequence, options);
      batch.lengths[sequence][b] = static_cast<int32_t>(length);
      longest = std::max(longest, length);
    }
  }
  batch.width = batch.trimmed(longest);
  for (size_t b = 0; b < rows.size(); ++b) batch.labels[b] = data.label(rows[b]);
  batch.visits.assign(rows.begin(), rows.end());
  for (int sequence = 0; sequence < batch.sequences; ++sequence) {
    // Memory for the widest batch from the start: no allocation in later steps.
    batch.ids[sequence].reserve(std::max(batch.size, options.batch) * batch.widest);
    batch.mask[sequence].reserve(std::max(batch.size, options.batch) * batch.widest);
    batch.ids[sequence].resize(batch.size * batch.width);
    batch.mask[sequence].resize(batch.size * batch.width);
    batch.unmasked[sequence].resize(rows.size());
    for (size_t b = 0; b < rows.size(); ++b) {
      const int64_t length = batch.lengths[sequence][b];
      const int64_t left_out = whole_length(data, rows[b], sequence, options) - length;
      const auto fill = [&](auto tokens) {
        return fill_row(tokens, length, left_out, batch.width, data.token_offset(), options,
                        batch.ids[sequence].data() + b * batch.width,
                        batch.mask[sequence].data() + b * batch.width);
      };
      const int32_t ones = data.token_bytes() == 1 ? fill(data.tokens(rows[b], sequence))
                                                   : fill(data.wide_tokens(rows[b], sequence));
      batch.unmasked[sequence][b] = ones;
      batch.real_tokens += ones - options.places_before();
    }
  }
}

// ---- training ----------------------------------------------------------------------------------

int64_t grown_length(const BatchOptions& options, int64_t step) {
  const bool whole = options.grow_whole > 0 && (step + 1) % options.grow_whole == 0;
  if (whole || step >= options.grow_steps) return options.nominal_length;
  if (step <= options.grow_hold) return options.grow_start;
  const int64_t from = options.grow_start, to = options.nominal_length;
  const int64_t grown = step - options.grow_hold, all = options.grow_steps - options.grow_hold;
  int64_t length = from + (to - from) * grown / all;
  if (options.growth == Growth::geometric) {
    const double share = static_cast<double>(grown) / static_cast<double>(all);
    length = std::llround(static_cast<double>(from) *
                          std::pow(static_cast<double>(to) / static_cast<double>(from), share));
  }
  return std::max(from, length / options.round_to * options.round_to);
}

BatchStream::BatchStream(Dataset data, const BatchOptions& options, Cursor start)
    : data_(std::move(data)), options_(options_for(data_, options)), cursor_(start) {
  ENSURE(start.epoch >= 0 && start.position >= 0 && start.position < data_.size(),
         "BatchStream: cursor {", start.epoch, ", ", start.position, "} of a split of ",
         data_.size(), " examples");
  rows_.resize(options_.batch);
  visits_.resize(options_.batch);
}

BatchOptions BatchStream::options_at_cursor() const {
  BatchOptions options = options_;
  if (options.grow_steps == 0) return options;
  const int64_t step = (cursor_.epoch * data_.size() + cursor_.position) / options.batch;
  options.cut_to = grown_length(options, step);
  return options;
}

void BatchStream::next(Batch& batch) {
  const BatchOptions options = options_at_cursor();
  for (size_t b = 0; b < rows_.size(); ++b) {
    rows_[b] = row_at_cursor();
    visits_[b] = static_cast<uint64_t>(cursor_.epoch * data_.size() + rows_[b]);
    if (++cursor_.position == data_.size()) cursor_ = {cursor_.epoch + 1, 0};
  }
  collate(data_, rows_, options, batch);
  batch.visits = visits_;
  vary_pictures(options, batch);
  batch.after = cursor_;
}

int64_t BatchStream::row_at_cursor() {
  const int64_t n = data_.size(), at = cursor_.position;
  if (!options_.group_by_length) {
    const Permutation order(n, options_.seed, cursor_.epoch);
    return static_cast<int64_t>(order(at));
  }
  const bool inside = window_epoch_ == cursor_.epoch && at >= window_begin_ &&
                      at < window_begin_ + static_cast<int64_t>(window_rows_.size());
  if (!inside) {
    // Batches run on across epoch ends, so an epoch begins with the rest of a batch ("head").
    const int64_t b = options_.batch, span = options_.window * b;
    const int64_t head = (b - cursor_.epoch * n % b) % b;
    const int64_t window = at < head ? 0 : (at - head) / span;
    order_window(cursor_.epoch, window == 0 ? 0 : head + window * span,
                 std::min(n, head + (window + 1) * span));
  }
  return window_rows_[at - window_begin_];
}

void BatchStream::order_window(int64_t epoch, int64_t begin, int64_t end) {
  const int64_t n = data_.size(), b = options_.batch;
  const Permutation order(n, options_.seed, epoch);
  scratch_.clear();  // length << 32 | row: sorted by length, ties by row
  for (int64_t at = begin; at < end; ++at) {
    const auto row = static_cast<int64_t>(order(at));
    int64_t length = 0;
    for (int sequence = 0; sequence < data_.sequences(); ++sequence) {
      length = std::max(length, shown_length(data_, row, sequence, options_));
    }
    scratch_.push_back(length << 32 | row);
  }
  std::sort(scratch_.begin(), scratch_.end());
  // The incomplete batches at the two ends of an epoch are shared with its neighbours; both take
  // the shortest examples, so that they fit together. Full batches come in a shuffled order.
  const int64_t count = end - begin;
  const int64_t head = begin == 0 ? std::min(count, (b - epoch * n % b) % b) : 0;
  const int64_t tail = (count - head) % b, full = (count - head) / b;
  window_rows_.resize(count);
  const auto place = [&](int64_t to, int64_t from, int64_t many) {
    for (int64_t i = 0; i < many; ++i) window_rows_[to + i] = scratch_[from + i] & 0xffffffff;
  };
  place(0, 0, head);
  place(count - tail, head, tail);
  const Permutation shuffled(full, mix64(options_.seed) + epoch, begin);
  for (int64_t i = 0; i < full; ++i) {
    place(head + static_cast<int64_t>(shuffled(i)) * b, head + tail + i * b, b);
  }
  window_epoch_ = epoch;
  window_begin_ = begin;
}

// ---- evaluation --------------------------------------------------------------------------------

BatchPass::BatchPass(Dataset data, const BatchOptions& options, int64_t examples, int64_t part,
                     int64_t parts)
    : data_(std::move(data)),
      options_(options_for(data_, options)),
      end_(data_.size()),
      position_(part * options.batch),
      step_(parts * options.batch) {
  if (examples > 0) end_ = std::min(end_, examples);
}

bool BatchPass::next(Batch& batch) {
  if (position_ >= end_) return false;
  rows_.resize(std::min(options_.batch, end_ - position_));
  std::iota(rows_.begin(), rows_.end(), position_);
  collate(data_, rows_, options_, batch);
  batch.after = {0, position_ + batch.size};
  position_ += step_;
  return true;
}

}  // namespace skytape::data
