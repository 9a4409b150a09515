// The encoder of BERT (Devlin et al. 2019) and RoBERTa (Liu et al. 2019) as their files have it,
// with any attention method in the place of softmax: X <- norm(word + position + type), then the
// layers of nn::Model with Norm::post.
//
// It draws no dropout: it encodes. Parameters have the names that nn::Model gives the same parts;
// train/encoders/as_run.hpp makes such a model of one, to be trained.
//
// Notation: B batch, N positions of this batch, E model width.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "nn/layers/layers.hpp"
#include "nn/model.hpp"

namespace skytape::nn {

struct BertConfig {
  std::string attention = "softmax";
  attention::OptionValues attention_options;
  std::int64_t vocabulary = 30522;  // ids of tokens
  std::int64_t positions = 512;     // rows of their table
  std::int64_t types = 2;           // kinds of tokens: first and second text of a pair
  int layers = 12;
  std::int64_t width = 768;      // E
  std::int64_t ff_width = 3072;  // F
  std::int64_t heads = 12;
  double norm_epsilon = 1e-12;
};

/// One batch on the encoder's device.
struct BertInput {
  Tensor ids, positions, types;  // i32[B, N]
  Tensor mask;                   // [B, N], 1 = token, 0 = padding
};

class BertEncoder {
 public:
  /// Builds the layers and packs their parameters. UsageError for an unknown method or option.
  BertEncoder(const BertConfig& config, DType dtype, Device device, std::uint64_t seed);

  /// The last layer's encodings, [B, N, E]; padded rows hold what attention gives them. Of a step
  /// it reads `random`, `alone` and `observe`: it encodes whole batches, and does not train.
  [[nodiscard]] Var encode(Tape& tape, const BertInput& input, const StepContext& step) const;

  [[nodiscard]] const BertConfig& config() const { return config_; }
  [[nodiscard]] ParameterStore& parameters() { return store_; }
  [[nodiscard]] const ParameterStore& parameters() const { return store_; }

 private:
  BertConfig config_;
  ParameterStore store_;
  Parameter *tokens_, *positions_, *types_;  // [V, E], [positions, E], [types, E]
  std::unique_ptr<LayerNorm> norm_;          // of the embedding
  std::vector<EncoderLayer> layers_;
};

}  // namespace skytape::nn
