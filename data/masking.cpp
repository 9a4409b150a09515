#include "data/masking.hpp"

#include <algorithm>
#include <cmath>

#include "data/random.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/tensor.hpp"
#include "tensor/random/philox.hpp"
#include "tensor/random/random.hpp"

namespace skytape::data {
namespace {

int64_t count_targets(double rate, int64_t tokens) {
  if (tokens == 0 || rate == 0) return 0;
  return std::max<int64_t>(1, static_cast<int64_t>(std::floor(rate * static_cast<double>(tokens))));
}

/// Random words of a sequence in one epoch, Philox's: four for the sequence, four for each place.
class Draws {
 public:
  Draws(uint64_t seed, int sequence, uint64_t visit)
      : key_(fork(Random{seed, {}}, skytape::Purpose::data)
                 .fork(static_cast<uint64_t>(sequence))
                 .key),
        visit_(visit) {}
  [[nodiscard]] philox::Words of_sequence() const { return philox::draw(key_, 0, visit_); }
  [[nodiscard]] philox::Words of_place(int64_t place) const {
    return philox::draw(key_, static_cast<uint64_t>(place) + 1, visit_);
  }

 private:
  uint64_t key_, visit_;
};

/// Uniform in 0..n-1; the bias of the multiplication is below n / 2^32.
int64_t below(int64_t n, uint32_t word) {
  return static_cast<int64_t>((uint64_t{word} * static_cast<uint64_t>(n)) >> 32);
}

/// `count` of the numbers 0 to tokens - 1: whole cells of `span` neighbours, in the order of a
/// drawn permutation. The cells start at a drawn offset, so that every boundary occurs.
void draw_targets(int64_t tokens, int64_t count, int64_t span, const philox::Words& words,
                  int32_t* chosen) {
  const int64_t offset = below(span, words.w[0]);
  const int64_t cells = ceil_div(tokens + offset, span);
  const Permutation order(static_cast<uint64_t>(cells), uint64_t{words.w[1]} << 32 | words.w[2],
                          words.w[3]);
  int64_t found = 0;
  for (uint64_t i = 0; found < count; ++i) {
    const int64_t begin = static_cast<int64_t>(order(i)) * span - offset;
    for (int64_t j = std::max<int64_t>(begin, 0); j < std::min(begin + span, tokens); ++j) {
      if (found == count) break;
      chosen[found++] = static_cast<int32_t>(j);
    }
  }
}

/// Finds the positions of a sequence's tokens that can be hidden. Tokens that attention may not
/// read (a black pixel, by the rule `nonzero`) are not predicted either.
void find_hideable(const Batch& batch, int sequence, int64_t b, const MaskingOptions& options,
                   std::vector<int32_t>& places) {
  places.clear();
  const float* const mask = batch.mask[sequence].data() + b * batch.width;
  const int64_t length = batch.lengths[sequence][static_cast<size_t>(b)];
  for (int64_t j = options.first; j < length; ++j) {
    if (mask[j] > 0) places.push_back(static_cast<int32_t>(j));
  }
}

/// Returns the id shown instead of a target, by the words of its place.
int32_t shown_instead(int32_t id, const MaskingOptions& o, const philox::Words& words) {
  const double draw = words.w[0] * 0x1p-32;  // in [0, 1)
  if (draw < o.keep) return id;
  if (draw >= o.keep + o.random) return static_cast<int32_t>(o.mask_id);
  return static_cast<int32_t>(o.first_id + below(o.end_id - o.first_id, words.w[1]));
}

void validate(const Batch& batch, const MaskingOptions& o) {
  ENSURE(o.rate > 0 && o.rate < 1, "masking: rate is ", o.rate, ", expected between 0 and 1");
  ENSURE(o.first >= 0, "masking: first is ", o.first, ", expected at least 0");
  ENSURE(o.span >= 1, "masking: span is ", o.span, ", expected at least 1");
  ENSURE(o.keep >= 0 && o.random >= 0 && o.keep + o.random <= 1, "masking: keep ", o.keep,
         " and random ", o.random, " must be shares whose sum is at most 1");
  ENSURE(o.random == 0 || o.end_id > o.first_id, "masking: no ids to replace by: ", o.first_id,
         " to ", o.end_id);
  ENSURE(std::ssize(batch.visits) == batch.size, "masking: a batch of ", batch.size,
         " examples says of ", batch.visits.size(), " which they are");
}

}  // namespace

int64_t mask_id(const TaskInfo& task) {
  return task.tokens == TokenKind::symbols ? task.vocabulary - 1 : task.token_offset + 256;
}

int64_t most_targets(double rate, int64_t width) { return count_targets(rate, width); }

void hide_tokens(Batch& batch, const MaskingOptions& options) {
  validate(batch, options);
  batch.target_rate = options.rate;
  batch.targets = most_targets(options.rate, batch.width);
  const auto cells = static_cast<size_t>(batch.size * batch.targets);
  int64_t total = 0;  // targets of the batch
  std::vector<int32_t> places;
  for (int sequence = 0; sequence < batch.sequences; ++sequence) {
    batch.target_at[sequence].assign(cells, 0);
    batch.target_ids[sequence].assign(cells, 0);
    batch.target_weight[sequence].assign(cells, 0.0f);
    for (int64_t b = 0; b < batch.size; ++b) {
      const Draws draws(options.seed, sequence, batch.visits[static_cast<size_t>(b)]);
      find_hideable(batch, sequence, b, options, places);
      const auto tokens = static_cast<int64_t>(places.size());
      const int64_t count = count_targets(options.rate, tokens);
      int32_t* const at = batch.target_at[sequence].data() + b * batch.targets;
      draw_targets(tokens, count, options.span, draws.of_sequence(), at);
      int32_t* const ids = batch.ids[sequence].data() + b * batch.width;
      for (int64_t i = 0; i < count; ++i) {
        at[i] = places[static_cast<size_t>(at[i])];
        int32_t& shown = ids[at[i]];
        const auto cell = static_cast<size_t>(b * batch.targets + i);
        batch.target_ids[sequence][cell] = shown;
        batch.target_weight[sequence][cell] = 1;
        shown = shown_instead(shown, options, draws.of_place(at[i]));
      }
      total += count;
    }
  }
  const float share = 1.0f / static_cast<float>(std::max<int64_t>(total, 1));
  for (int sequence = 0; sequence < batch.sequences; ++sequence) {
    for (float& weight : batch.target_weight[sequence]) weight *= share;
  }
}

}  // namespace skytape::data
