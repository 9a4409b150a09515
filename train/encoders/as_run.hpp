// A pre-trained encoder as weights that a run starts from: nn::Model with Norm::post.
//
// A run counts ids from 1, as 0 pads, and has a row for hidden tokens behind the vocabulary, and
// perhaps one for the token of pooling=cls; its positions begin at 0, and it knows one type of
// tokens. So rows of the tables move:
//
//   tokens      padding's, all, [MASK]'s, and [CLS]'s where the model has a row for it
//   scores      of hidden tokens, where the file has the head that predicts them: as tokens
//   positions   from the first one of a text on, plus the first type's row, which all tokens share;
//               zeros behind the encoder's last one, which only padding reads
#pragma once

#include <cstdint>
#include <vector>

#include "data/files/json.hpp"
#include "train/encoders/encoder.hpp"
#include "train/formats/safetensors.hpp"

namespace skytape::train {

/// The settings of a run with such an encoder, as a run's config.json has them.
[[nodiscard]] data::Json settings_of(const EncoderFacts& facts);

/// What load_init() reads of a run's config.json: which tokens the rows stand for.
[[nodiscard]] data::Json tokens_of(const Encoder& encoder);

/// The encoder's tensors, by the names in nn::Model, for a model of so many positions. `cls`: with
/// a row for the token of pooling=cls.
[[nodiscard]] std::vector<NamedTensor> tensors_of(const Encoder& encoder, bool cls,
                                                  std::int64_t nominal_length);

}  // namespace skytape::train
