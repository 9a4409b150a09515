// Exact attention as methods and models name it: the score, its scale and the dropout of weights, by
// which tiled/ computes it.
#pragma once

#include <cstdint>

#include "tensor/core/tensor.hpp"
#include "tensor/random/random.hpp"

namespace skytape::attention {

enum class Score { softmax, gaussian };

/// Dropout of attention weights. The element number of (b, h, i, j) is
/// (((first_example + b) H + h) nominal_length + i) M' + j with M' = nominal_length rounded up to a
/// multiple of 128, so trimming, splitting and tiling a batch change no mask.
struct WeightDropout {
  double rate = 0;  // share dropped, in [0, 1), rounded to 1/65536; 0: none
  Random random;
  std::int64_t first_example = 0;
  std::int64_t nominal_length = 0;  // 0: max(N, M)
  Tensor keep;  // [B, H, N, M] of 0 and 1, in q's dtype: used instead of drawing if defined; kept
                // weights are scaled by 1 / (1 - rate), with the rate as given
};

struct TiledOptions {
  Score score = Score::softmax;
  double scale = 1;
  WeightDropout dropout = {};
  bool mask_queries = false;  // q's rows are multiplied by the mask, too: self-attention, N = M
};

}  // namespace skytape::attention
