// What a model is, in numbers and words: read by configurations, which compute nothing, and by the
// layers, which do.
#pragma once

#include <cstdint>
#include <string>

#include "attention/options.hpp"

namespace skytape::nn {

inline constexpr int kMaxTowers = 2;
inline constexpr double kNormEpsilon = 1e-5;  // of layer norms: PyTorch's, as in the papers' code

/// `learned`: a trained vector per position. `sinusoidal`: Vaswani et al. 2017, sec. 3.5, scaled.
/// `rotary`: Su et al. 2021, queries and keys of every head turned. `none`: order is not shown.
enum class Positions { learned, sinusoidal, rotary, none };

/// `nominal`: the sum over the nominal length, as in the papers' code, where a short sequence gives
/// a short vector. `mean` and `max`: over the real tokens. `first`: the encoding of the first
/// position. `cls`: the same, a learned token being put there. `attention`: the mean over the real
/// tokens weighted by exp(x.w / sqrt E) with a learned w. `pyramid`: of pictures, by residual stages of
/// convolutions that halve them.
enum class Pooling { nominal, mean, first, cls, max, attention, pyramid };

/// Where layer norms stand: before attention and MLP and behind the last layer, or behind every
/// residual sum and the embedding, as in BERT.
enum class Norm { pre, post };

/// What a model is trained for: a class of each example, or the tokens that were hidden in it.
enum class Objective { classify, predict_masked };

struct ModelConfig {
  std::string attention = "skyformer";
  attention::OptionValues attention_options;
  std::int64_t vocabulary = 32;  // ids of tokens; where pooling is cls, the next one is its token's
  std::int64_t classes = 10;
  std::int64_t nominal_length = 2048;  // positions before trimming
  int towers = 1;                      // 2: both documents through one encoder
  int layers = 2;
  std::int64_t width = 64;       // E
  std::int64_t ff_width = 128;   // F, also the head's hidden width
  std::int64_t heads = 2;        // H
  std::int64_t head_width = 32;  // D
  Norm norm = Norm::pre;
  double norm_epsilon = kNormEpsilon;  // of all norms
  double dropout = 0.1;                // embedding, attention output, both places of the MLP
  Pooling pooling = Pooling::nominal;
  Positions positions = Positions::learned;
  std::int64_t conv_width = 0;  // taps of a convolution beside attention, odd; 0: none
  std::int64_t columns = 0;    // tokens in a row of a picture, whose convolution is as high as wide
  double rotary_base = 10000;  // of rotary positions alone
  bool both_ends = false;      // positions are also counted from the last token
  bool token_types = false;    // a trained vector of the text of a pair that a token is of
  std::int32_t separator = -1;        // id behind the first text of a pair; -1: texts are single
  int ngrams = 0;                     // tokens of the longest n-gram with a vector; 0: none
  std::int64_t ngram_rows = 1;        // of the table that the n-grams share
  double ngram_deviation = 5 * 0.02;  // of its first values
  std::int64_t patch = 0;     // pixels of the square's side that each sees as numbers, odd; 0: none
  bool pair_cosine = false;   // two towers: the head also reads the cosine of both encodings
  double residual_scale = 1;  // of the first values of what layers add to their input; 0: nothing
  double label_smoothing = 0;  // of the training loss
  Objective objective = Objective::classify;
  bool pixels = false;  // tokens are grey values: predicted as numbers, not as ids
};

}  // namespace skytape::nn
