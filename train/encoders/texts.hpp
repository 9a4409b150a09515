// Texts into an encoder's batches, and batches into encodings.
//
// Notation: B texts, N tokens of the longest one, E model width.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/encoders/encoder.hpp"

namespace skytape::train {

/// A text as ids, the two ends around it.
struct EncoderText {
  std::vector<std::int32_t> ids;
  bool cut = false;  // it was longer
};
/// `longest` tokens at most, ends included. DataError naming `place` for a text that is no UTF-8.
[[nodiscard]] EncoderText read_text(const Encoder& encoder, const std::string& text,
                                    const std::string& place, std::int64_t longest);

/// Texts [begin, end), padded to `width` tokens, in the model's dtype and on its device.
[[nodiscard]] nn::BertInput pad_texts(const Encoder& encoder, const std::vector<EncoderText>& texts,
                                      std::size_t begin, std::size_t end, std::int64_t width);

struct Encodings {
  Tensor ids;     // i32[B, N]
  Tensor mask;    // i32[B, N], 1 = token, 0 = padding
  Tensor hidden;  // [B, N, E]: of the last layer
  Tensor pooled;  // [B, E]: mean of the tokens' rows
};
/// All texts, on the CPU. Error if the result takes more memory than is free.
[[nodiscard]] Encodings encode_texts(const Encoder& encoder, const std::vector<EncoderText>& texts);

}  // namespace skytape::train
