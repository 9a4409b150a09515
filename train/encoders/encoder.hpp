// A pre-trained encoder with its tokeniser.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/tokenisers/vocabulary.hpp"
#include "train/encoders/huggingface.hpp"

namespace skytape::train {

struct Encoder {
  EncoderFacts facts;
  std::filesystem::path folder;
  std::shared_ptr<const data::Vocabulary> vocabulary;
  std::int32_t first = 0, last = 0;  // ids around every text: [CLS] … [SEP], <s> … </s>
  std::int32_t hidden = 0;           // id that stands for a hidden token: [MASK], <mask>
  std::unique_ptr<nn::BertEncoder> model;
  /// The tensors of the head that predicts hidden tokens, by the names in nn::Model; empty: the
  /// file has none, or one whose decoder is not the embedding, as that of nn::Model is.
  std::vector<NamedTensor> head;
  std::vector<std::string> fresh;   // parameters that the file does not have: a method's own
  std::vector<std::string> unused;  // tensors of the file that no encoder has, printable
};

/// Returns whether a folder holds an encoder, of Hugging Face's or a copy, rather than a run.
[[nodiscard]] bool holds_encoder(const std::filesystem::path& folder);

/// Returns the metadata of the encoder in the folder's config.json. DataError as load_encoder().
[[nodiscard]] EncoderFacts encoder_facts(const std::filesystem::path& folder);

/// The options by which an encoder is built.
struct EncoderChoice {
  DType dtype = DType::f32;
  Device device = Device::cpu;
  std::string attention = "softmax";  // another method takes the place of exact attention
  attention::OptionValues attention_options = {};
  std::uint64_t seed = 42;  // of what starts fresh
  /// No weights are read: all start as BERT's did (Devlin et al. 2019), normal of deviation 0.02,
  /// biases 0, norms 1.
  bool untrained = false;
};

/// Reads the encoder of a folder: of Hugging Face's, or a copy that save_encoder wrote. DataError
/// naming the file and what is missing, foreign or of another size.
[[nodiscard]] Encoder load_encoder(const std::filesystem::path& folder,
                                   const EncoderChoice& choice = {});

/// Writes config.json, with the tokeniser in it, and last.safetensors into a new folder. UsageError
/// if there is something under that name already.
void save_encoder(const Encoder& encoder, const std::filesystem::path& folder);

}  // namespace skytape::train
