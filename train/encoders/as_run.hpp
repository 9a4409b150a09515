// A pre-trained encoder as weights that a run starts from: nn::Model with Norm::post.
//
// A run counts ids from 1, as 0 pads, and has a row for hidden tokens behind the vocabulary, and
// perhaps one for the token of pooling=cls; its positions begin at 0. So rows of the tables move:
//
//   tokens      padding's, all, [MASK]'s, and [CLS]'s where the model has a row for it
//   scores      of hidden tokens, where the file has the head that predicts them: as tokens, each
//               once
//   positions   from the first one of a text on; zeros behind the encoder's last one, which only
//               padding reads
//   types       of tokens: the first two, of the two texts of a pair. Without token_types, or where
//               the encoder has one type, the first one's row is added to all positions instead
#pragma once

#include <cstdint>
#include <vector>

#include "data/files/json_fwd.hpp"
#include "nn/config/model_config.hpp"
#include "train/encoders/encoder.hpp"
#include "train/formats/safetensors.hpp"

namespace skytape::train {

/// The settings of a run with such an encoder, as a run's config.json has them.
[[nodiscard]] data::Json settings_of(const EncoderFacts& facts);

/// Returns the part of a run's config.json that load_initial_weights() reads: which tokens the rows
/// stand for.
[[nodiscard]] data::Json tokens_of(const Encoder& encoder);

/// The encoder's tensors, by the names in nn::Model, as a model so configured has them.
[[nodiscard]] std::vector<NamedTensor> tensors_of(const Encoder& encoder,
                                                  const nn::ModelConfig& model);

}  // namespace skytape::train
