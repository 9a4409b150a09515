// The definition of a model, in numbers and words. Configurations, which compute nothing, and the
// layers read it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attention/options.hpp"

namespace skytape::nn {

inline constexpr int kMaxSequences = 2;

/// `learned`: a trained vector per position. `sinusoidal`: Vaswani et al. 2017, sec. 3.5, scaled.
/// `rotary`: Su et al. 2021, queries and keys of every head turned. `none`: order is not shown.
enum class Positions { learned, sinusoidal, rotary, none };

/// `nominal`: the sum over the nominal length, as in the papers' code, where a short sequence gives
/// a short vector. `mean` and `max`: over the real tokens. `first`: the encoding of the first
/// position. `cls`: the same, a learned token being put there. `attention`: the mean over the real
/// tokens weighted by exp(x.w / sqrt E) with a learned w.
enum class Pooling { nominal, mean, first, cls, max, attention };

/// The place of layer norms: before attention and MLP and behind the last layer, or behind every
/// residual sum and the embedding, as in BERT.
enum class Norm { pre, post };

/// The objective of training: a class of each example, or the tokens that were hidden in it.
enum class Objective { classify, predict_masked };

/// The options, and what task, data and method decide.
struct ModelConfig {
#define OPTION(type, key, standard, range, category, meaning, ...) type key{standard};
#include "nn/config/model_options.def"

  std::string attention = "skyformer";
  attention::OptionValues attention_options;
  std::int64_t vocabulary = 32;  // ids of tokens; where pooling is cls, the next one is its token's
  std::int64_t classes = 10;
  std::int64_t nominal_length = 2048;  // positions before trimming
  int sequences = 1;                   // of an example; 2: a dual encoder, both through one encoder
  std::int64_t columns = 0;            // tokens in a row of a picture; 0: no picture
  bool pixels = false;                 // tokens are intensities: predicted as numbers, not as ids
  std::int32_t separator = -1;         // id behind the first text of a pair; -1: texts are single
  Objective objective = Objective::classify;
  std::vector<double> class_weights = {};  // [C], of the training loss; empty: all 1

  /// Channels of a head, D.
  [[nodiscard]] std::int64_t width_of_head() const {
    return head_width > 0 ? head_width : width / heads;
  }
  /// Rows of the table of tokens, V.
  [[nodiscard]] std::int64_t token_rows() const {
    return vocabulary + (pooling == Pooling::cls ? 1 : 0);
  }
};

}  // namespace skytape::nn
