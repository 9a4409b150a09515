// Encoders of BERT and RoBERTa as Hugging Face's Transformers saves them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/files/json_fwd.hpp"
#include "nn/bert/bert_encoder.hpp"
#include "train/formats/safetensors.hpp"

namespace skytape::train {

enum class EncoderKind { bert, roberta };
[[nodiscard]] std::string_view to_string(EncoderKind kind);

/// The contents of a config.json.
struct EncoderFacts {
  EncoderKind kind = EncoderKind::bert;
  nn::BertConfig model;
  std::int64_t padding_id = 0;
  bool tied = true;  // a head of hidden tokens without a decoder of its own has the embedding's

  /// The position of a text's first token: RoBERTa counts from behind the padding's number.
  [[nodiscard]] std::int64_t first_position() const {
    return kind == EncoderKind::roberta ? padding_id + 1 : 0;
  }
  /// The number of tokens that it reads in one text, the two ends among them.
  [[nodiscard]] std::int64_t longest() const { return model.positions - first_position(); }
};

/// DataError naming `file` and the key that is missing, out of range, or asks for something else
/// than a BERT or RoBERTa encoder with GELU and learned positions.
[[nodiscard]] EncoderFacts facts_of_huggingface(const data::Json& config, const std::string& file);
/// Returns the kind of model that a config.json describes: its "model_type", or "bert" where
/// nothing says it and the keys are those of BERT's first release; null: unknown.
[[nodiscard]] data::Json type_of_huggingface(const data::Json& config);

/// The tensors of a folder: model.safetensors, or the shards that model.safetensors.index.json
/// lists. Without the "bert." or "roberta." in front of their names; a norm's gamma and beta are
/// its weight and bias. DataError naming the file or the tensor that is not there.
[[nodiscard]] SafetensorsFile read_huggingface_weights(const std::filesystem::path& folder);

/// Our names of the head that predicts hidden tokens (nn/layers/masked_head.hpp) and their shapes.
struct HeadTensor {
  std::string name;
  Shape shape;
};
[[nodiscard]] std::vector<HeadTensor> head_tensors(const nn::BertConfig& model);

/// Their name of a parameter of nn::BertEncoder: "model.transformer_0.mha.W_q.weight" is
/// "encoder.layer.0.attention.self.query.weight"; or of the head that predicts hidden tokens, whose
/// name depends on the kind. Empty for what only a method of ours has.
[[nodiscard]] std::string huggingface_name(EncoderKind kind, const std::string& parameter);

}  // namespace skytape::train
