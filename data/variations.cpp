#include "data/variations.hpp"

#include <cstdint>
#include <vector>

#include "data/batches.hpp"
#include "data/random.hpp"

namespace skytape::data {
namespace {

/// The view of a picture: mirrored, then moved to the right and down.
struct View {
  bool mirrored = false;
  int64_t right = 0, down = 0;  // pixels
};

View draw_view(const Variations& v, uint64_t seed, uint64_t visit) {
  Stream draws(seed, Purpose::variations, visit);
  const auto shift = [&] {
    return static_cast<int64_t>(draws.below(static_cast<uint32_t>(2 * v.shift + 1))) - v.shift;
  };
  View view;
  view.mirrored = draws.below(2) == 1 && v.mirror;
  view.right = shift();
  view.down = shift();
  return view;
}

/// Returns the place of the pixel that `view` shows at place `to` of `length` ones; -1: there is
/// none.
int64_t source(const View& view, int64_t columns, int64_t to, int64_t length) {
  const int64_t column = to % columns - view.right, row = to / columns - view.down;
  if (column < 0 || column >= columns || row < 0) return -1;
  const int64_t from = row * columns + (view.mirrored ? columns - 1 - column : column);
  return from < length ? from : -1;
}

}  // namespace

void vary_pictures(const BatchOptions& options, Batch& batch) {
  const Variations& v = options.variations;
  if (!v.mirror && v.shift == 0) return;
  std::vector<int32_t> picture;
  for (int sequence = 0; sequence < batch.sequences; ++sequence) {
    for (int64_t b = 0; b < batch.size; ++b) {
      const View view = draw_view(v, options.seed, batch.visits[static_cast<size_t>(b)]);
      const int64_t length = batch.lengths[sequence][static_cast<size_t>(b)];
      int32_t* const ids = batch.ids[sequence].data() + b * batch.width;
      picture.assign(ids, ids + length);
      for (int64_t to = 0; to < length; ++to) {
        const int64_t from = source(view, v.columns, to, length);
        ids[to] = from < 0 ? static_cast<int32_t>(v.black) : picture[static_cast<size_t>(from)];
      }
      int32_t& ones = batch.unmasked[sequence][static_cast<size_t>(b)];
      batch.real_tokens -= ones;
      ones = fill_mask(options.mask, length, ids, batch.mask[sequence].data() + b * batch.width);
      batch.real_tokens += ones;
    }
  }
}

}  // namespace skytape::data
