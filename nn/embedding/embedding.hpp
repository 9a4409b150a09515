// The embedding of a token: a vector of its id, and of its position.
//
// Notation: B batch, N positions of this batch, E model width, V vocabulary, S rows of the table of
// n-grams, T pixels of a square.
#pragma once

#include <cstdint>
#include <string>

#include "autograd/parameter.hpp"
#include "autograd/tape.hpp"
#include "nn/config/model_config.hpp"
#include "nn/embedding/positions.hpp"
#include "tensor/random/dropout.hpp"

namespace skytape::nn {

/// A trained vector of the token, of its position, of its distance to the last token, of the text
/// of a pair that it is of and of the n-grams that end there, as configured; they start as N(0,
/// 0.02²), as in the papers' code, and n-grams five times as high, or as configured: they say most,
/// and Adam's first steps, which are as large as the rate, would otherwise wipe out what tells them
/// apart. The padding id 0 has an ordinary trainable vector. With `patch`, a linear map of the
/// intensities around a pixel is added (patches.hpp), as high. It has a constant, because a layer
/// norm takes the length of a vector away.
struct Embedding {
  Parameter* tokens;               // [V, E]
  Parameter* positions = nullptr;  // [nominal length, E]: trained or sinusoidal; nullptr: not added
  Parameter* from_end = nullptr;   // [nominal length, E], trained; nullptr: not added
  Parameter* types = nullptr;      // [2, E], trained; nullptr: not added
  Parameter* ngrams = nullptr;     // [S, E], trained; nullptr: not added
  Parameter* patches = nullptr;    // [T, E], of the intensities, trained; nullptr: not added
  Parameter* constant = nullptr;   // [E], trained, where there are patches

  Embedding(ParameterStore& store, const std::string& name, const ModelConfig& config);
  /// ids: i32[B, N], mask: [B, N] -> [B, N, E].
  [[nodiscard]] Var operator()(Tape& tape, const Tensor& ids, const Tensor& mask) const;
  /// The same behind dropout: one kernel on CUDA where at most one vector is added to the token's,
  /// of its position or its distance to the last token.
  [[nodiscard]] Var dropped(Tape& tape, const Tensor& ids, const Tensor& mask,
                            const Dropout& dropout) const;

 private:
  /// Throws unless the tables of places have a row for each of n positions.
  void require_places(std::int64_t n) const;

  int longest_ngram_;
  std::int32_t separator_;
  std::int64_t patch_side_, columns_;
  Parameter* waves_ = nullptr;  // [T, T], never trained; where there are patches
};

}  // namespace skytape::nn
