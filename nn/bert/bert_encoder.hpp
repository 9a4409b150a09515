// The encoder of BERT (Devlin et al. 2019) and RoBERTa (Liu et al. 2019), post-norm, with any
// attention method in the place of softmax. nn::Model, the papers' classifier, is pre-norm.
//
//   X <- norm(word + position + type)
//   X <- norm(X + Attn X);  X <- norm(X + W₂ GELU(W₁ X))         (in each layer)
//
// It draws no dropout: it encodes. Parameters have the names that nn::Model gives to the same parts.
//
// Letters: B batch, N positions of this batch, E model width, F feed-forward width.
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

/// Layer norm with an epsilon of the model's own. The operation's is fixed, but a factor before it
/// does the same: norm_ε(c x) = norm_{ε / c²}(x).
class ScaledLayerNorm {
 public:
  ScaledLayerNorm(ParameterStore& store, const std::string& name, std::int64_t width,
                  double epsilon);
  [[nodiscard]] Var operator()(Var x) const;

 private:
  LayerNorm norm_;
  double factor_;  // c
};

class BertEncoder {
 public:
  /// Builds the layers and packs their parameters. UsageError for an unknown method or option.
  BertEncoder(const BertConfig& config, DType dtype, Device device, std::uint64_t seed);

  /// The last layer's encodings, [B, N, E]; padded rows hold what attention gives them.
  [[nodiscard]] Var encode(Tape& tape, const BertInput& input, const StepContext& step) const;

  [[nodiscard]] const BertConfig& config() const { return config_; }
  [[nodiscard]] ParameterStore& parameters() { return store_; }
  [[nodiscard]] const ParameterStore& parameters() const { return store_; }

 private:
  struct Layer {
    MultiHeadAttention attention;
    ScaledLayerNorm norm1;
    Linear mlp_in, mlp_out;
    ScaledLayerNorm norm2;
  };

  BertConfig config_;
  ParameterStore store_;
  Parameter *tokens_, *positions_, *types_;  // [V, E], [positions, E], [types, E]
  std::unique_ptr<ScaledLayerNorm> norm_;    // of the embedding
  std::vector<Layer> layers_;
};

}  // namespace skytape::nn
