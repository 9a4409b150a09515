// Other views of the pictures that a model learns from: mirrored and moved, with the same label.
//
// The view of a picture is a function of (seed, epoch, example) and of nothing else, as its place
// in the epoch is: a resumed run shows what it would have shown.
#pragma once

#include "data/batch.hpp"
#include "data/batch_options.hpp"

namespace skytape::data {

/// Rearranges each sequence of `batch` as `options.variations` say; what the picture leaves free is
/// black, also where a sequence ends before the picture. Masks follow the ids.
void vary_pictures(const BatchOptions& options, Batch& batch);

}  // namespace skytape::data
