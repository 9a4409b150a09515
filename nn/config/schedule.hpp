// The optimiser's settings: the learning rate at each step, and AdamW's numbers.
#pragma once

#include <cstdint>

namespace skytape::nn {

/// The curve of the learning rate over the steps t = 0, 1, …
enum class Curve {
  /// Linear in two phases with momentum cycling, as PyTorch's OneCycleLR with the settings of the
  /// papers' code: from max/25 to max until step `warmup` - 1, then to max/25/1e4 at step `steps` -
  /// 1; beta1 runs 0.95 -> 0.85 -> 0.95.
  one_cycle,
  /// max min(1, t / warmup) sqrt(warmup / max(t, warmup)), beta1 = 0.9: as the Long Range Arena's
  /// code, which begins with a step of rate 0.
  inverse_sqrt,
  /// max min(1, t / warmup) (1 + cos(pi (t - warmup)+ / steps)) / 2, beta1 = 0.9: as that code.
  cosine,
  /// Up from max / warmup until step `warmup` - 1, then down to 0 at step `steps` - 1, both in a
  /// straight line; beta1 = 0.9: RoBERTa's (Liu et al. 2019, sec. 3).
  linear
};

struct Schedule {
  double max_lr = 1e-4;
  std::int64_t steps = 50000;
  std::int64_t warmup = 1000;  // steps; at least 2
  Curve curve = Curve::one_cycle;

  [[nodiscard]] double lr(std::int64_t step) const;  ///< step counts from 0
  [[nodiscard]] double beta1(std::int64_t step) const;
};

struct AdamWConfig {
  double beta2 = 0.999;
  double epsilon = 1e-6;  // above 0: entries that no gradient ever reached are 0 / epsilon
  double weight_decay = 0;
  double clip_value = 1;  // every gradient entry is clamped to ±clip_value first; 0: off
};

}  // namespace skytape::nn
