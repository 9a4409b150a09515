// Masked-token prediction (BERT, Devlin et al. 2019): some tokens of a batch are hidden, and what
// stood there is the target. Needs no labels, so a model can learn from the training sequences
// before it learns the task (Amos, Berant, Gupta 2023).
//
// The hidden tokens are a function of (seed, epoch, example, place) and of nothing else: a resumed
// run hides what it would have hidden, whatever the batches and threads; each epoch hides others.
#pragma once

#include <cstdint>

#include "data/batch.hpp"
#include "data/task.hpp"

namespace skytape::data {

/// The id that stands for a hidden token: one that no token of the task has. Bytes and pixels fill
/// 256 ids; of symbols the last id of the vocabulary is free.
[[nodiscard]] int64_t mask_id(const TaskInfo& task);

struct MaskingOptions {
  double rate = 0.15;    // share of a sequence's tokens that are targets
  int64_t first = 0;     // positions before it are no tokens of the task (CLS) and stay
  int64_t span = 1;      // targets that are neighbours come in runs of this length; 1: each alone
  double keep = 0;       // share of the targets that are shown as they are (BERT: 0.1)
  double random = 0;     // share that is replaced by another token (BERT: 0.1)
  int64_t mask_id = 0;   // what the other targets are replaced by
  int64_t first_id = 0;  // random replacements are uniform in [first_id, end_id)
  int64_t end_id = 0;
  uint64_t seed = 42;
};

/// Most targets that a sequence of `width` positions can have, where `rate` of them are; none for a
/// rate of 0. It bounds the work of a step whatever the data.
[[nodiscard]] int64_t most_targets(double rate, int64_t width);

/// Hides tokens of `batch` in place: fills its `target_at`, `target_ids` and `target_weight`, and
/// sets `targets` and `target_rate`. Of a sequence with m tokens that attention may read,
/// max(1, floor(rate m)) are targets, none if m = 0; every target of the batch counts the same.
void hide_tokens(Batch& batch, const MaskingOptions& options);

}  // namespace skytape::data
