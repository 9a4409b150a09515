#include "data/masking.hpp"

#include <algorithm>
#include <cmath>

#include "data/random.hpp"
#include "tensor/core/error.hpp"

namespace skytape::data {
namespace {

int64_t count_targets(double rate, int64_t tokens) {
  if (tokens == 0) return 0;
  return std::max<int64_t>(1, static_cast<int64_t>(std::floor(rate * static_cast<double>(tokens))));
}

/// The places of `count` targets among `tokens`: whole cells of `span` neighbours, in the order of a
/// drawn permutation. The cells start at a drawn offset, so that every boundary occurs.
void draw_places(int64_t tokens, int64_t count, int64_t span, Stream& stream, int32_t* places) {
  const int64_t offset = span > 1 ? stream.below(static_cast<uint32_t>(span)) : 0;
  const int64_t cells = (tokens + offset + span - 1) / span;
  const Permutation order(static_cast<uint64_t>(cells), stream.next(), 0);
  int64_t found = 0;
  for (int64_t i = 0; found < count; ++i) {
    const int64_t begin = static_cast<int64_t>(order(static_cast<uint64_t>(i))) * span - offset;
    for (int64_t j = std::max<int64_t>(begin, 0); j < std::min(begin + span, tokens); ++j) {
      if (found == count) break;
      places[found++] = static_cast<int32_t>(j);
    }
  }
}

/// Tokens of a sequence that can be hidden.
int64_t tokens_of(const Batch& batch, int tower, int64_t b, const MaskingOptions& options) {
  const int64_t length = batch.lengths[tower][static_cast<size_t>(b)];
  return std::max<int64_t>(length - options.first, 0);
}

void validate(const MaskingOptions& o) {
  ENSURE(o.rate > 0 && o.rate < 1, "masking: rate is ", o.rate, ", expected between 0 and 1");
  ENSURE(o.first >= 0, "masking: first is ", o.first, ", expected at least 0");
  ENSURE(o.span >= 1, "masking: span is ", o.span, ", expected at least 1");
  ENSURE(o.keep >= 0 && o.random >= 0 && o.keep + o.random <= 1, "masking: keep ", o.keep,
         " and random ", o.random, " must be shares whose sum is at most 1");
  ENSURE(o.random == 0 || o.end_id > o.first_id, "masking: no ids to replace by: ", o.first_id,
         " to ", o.end_id);
}

}  // namespace

int64_t mask_id(const TaskInfo& task) {
  return task.tokens == TokenKind::symbols ? task.vocabulary - 1 : task.token_offset + 256;
}

int64_t most_targets(double rate, int64_t width) { return count_targets(rate, width); }

void hide_tokens(Batch& batch, int64_t step, const MaskingOptions& options) {
  validate(options);
  const int64_t most = most_targets(options.rate, batch.width);
  const auto cells = static_cast<size_t>(batch.size * most);
  batch.targets = most;
  int64_t total = 0;
  for (int tower = 0; tower < batch.towers; ++tower) {
    for (int64_t b = 0; b < batch.size; ++b) {
      total += count_targets(options.rate, tokens_of(batch, tower, b, options));
    }
  }
  const float share = total > 0 ? 1.0f / static_cast<float>(total) : 0.0f;
  for (int tower = 0; tower < batch.towers; ++tower) {
    batch.target_at[tower].assign(cells, 0);
    batch.target_ids[tower].assign(cells, 0);
    batch.target_weight[tower].assign(cells, 0.0f);
    for (int64_t b = 0; b < batch.size; ++b) {
      const int64_t tokens = tokens_of(batch, tower, b, options);
      const int64_t count = count_targets(options.rate, tokens);
      // A stream for each sequence of the run: the place in the batch is part of its number.
      const auto number = static_cast<uint64_t>((step * batch.size + b) * kMaxTowers + tower);
      Stream stream(options.seed, Purpose::masking, number);
      int32_t* const at = batch.target_at[tower].data() + b * most;
      draw_places(tokens, count, options.span, stream, at);
      int32_t* const ids = batch.ids[tower].data() + b * batch.width;
      for (int64_t i = 0; i < count; ++i) {
        at[i] += static_cast<int32_t>(options.first);
        int32_t& shown = ids[at[i]];
        const auto cell = static_cast<size_t>(b * most + i);
        batch.target_ids[tower][cell] = shown;
        batch.target_weight[tower][cell] = share;
        const double draw = stream.uniform();
        if (draw < options.keep) continue;
        if (draw < options.keep + options.random) {
          const auto range = static_cast<uint32_t>(options.end_id - options.first_id);
          shown = static_cast<int32_t>(options.first_id + stream.below(range));
        } else {
          shown = static_cast<int32_t>(options.mask_id);
        }
      }
    }
  }
}

}  // namespace skytape::data
