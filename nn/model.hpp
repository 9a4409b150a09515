// The classifier of the papers: embedding, pre-norm encoder layers with any attention method,
// pooling, and a two-layer head, as in the papers' code. An example is one sequence or, of a dual
// encoder (Retrieval), two. With Norm::post its encoder is that of BERT and RoBERTa, whose weights
// it can start from.
//
// Notation: B batch, N positions of this batch, E model width, H heads, D head width, F
// feed-forward width, C classes.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "attention/method.hpp"
#include "nn/config/model_config.hpp"
#include "nn/embedding/embedding.hpp"
#include "nn/layers/convolution.hpp"
#include "nn/layers/layers.hpp"
#include "nn/layers/loss.hpp"
#include "nn/layers/masked_head.hpp"
#include "nn/layers/pair_features.hpp"
#include "nn/layers/pooling.hpp"
#include "nn/pyramid/pyramid.hpp"

namespace skytape::nn {

/// The tensors of one batch on the model's device.
struct ModelInput {
  std::array<Tensor, kMaxSequences> ids;   // i32[B, N]
  std::array<Tensor, kMaxSequences> mask;  // [B, N], 1 = token, 0 = padding
};

/// The targets hidden in a batch: P places in each sequence, see data/masking.hpp.
struct MaskedTargets {
  std::array<Tensor, kMaxSequences> at;      // i32[B, P], positions
  std::array<Tensor, kMaxSequences> ids;     // i32[B, P], what stood there
  std::array<Tensor, kMaxSequences> weight;  // [B, P], share of the batch's loss; 0: no target
};

/// The values that change from step to step besides the batch.
struct StepContext {
  bool training = false;
  Random random;                   // of the run; its step number says which step this is
  std::int64_t first_example = 0;  // of the microbatch, in the full batch sorted by length
  bool alone = false;  // answers: every example as if it were the batch, see attention::Call
  std::array<Tensor, kMaxSequences> fewest_tokens;  // per sequence, see attention::Call
  /// Random arrays to use instead of drawing, per layer (tests and goldens); empty: draw.
  std::vector<attention::Draws> injected;
  /// Sees queries, keys, values and output of every layer's attention; usually empty.
  std::function<void(int layer, const attention::Inputs& inputs, const Tensor& out)> observe;
};

/// The context of an answer: a function of model and example, whatever the batch. `draw` of
/// the method is numbered from 0.
[[nodiscard]] StepContext answer_context(std::uint64_t seed, std::int64_t draw = 0);
/// The call of a layer's method on the `sequence`-th sequences, but for what `step` injects and
/// observes.
[[nodiscard]] attention::Call attention_call(const StepContext& step, int sequence, int layer);

/// Multi-head attention around a method: three projections, heads apart, method, heads together,
/// output projection.
class MultiHeadAttention {
 public:
  MultiHeadAttention(ParameterStore& store, const std::string& name, const ModelConfig& config,
                     int layer);
  /// residual + drop(attention of x): residual, x [B, N, E], mask [B, N] -> [B, N, E]. `state` is
  /// what the layer before left, if anything; it becomes what this one leaves.
  [[nodiscard]] Var add_to(Var residual, Var x, Var& state, const Tensor& mask,
                           const attention::Call& call, const Dropout& dropout) const;
  [[nodiscard]] const attention::Method& method() const { return *method_; }

 private:
  /// Projections and attention: x [B, N, E] -> [B, H, N, D].
  [[nodiscard]] attention::OutputVars attend(Var x, Var state, const Tensor& mask,
                                             const attention::Call& call) const;

  std::int64_t heads_, head_width_;
  Linear query_, key_, value_, output_;
  Parameter* angles_;  // [nominal length, D], of rotary positions; else nullptr
  bool shared_qk_, values_only_, reads_x_;
  std::unique_ptr<attention::Method> method_;
};

/// pre:   X <- X + drop(Attn(LN₁ X) + Conv(LN₁ X));  X <- X + drop(W₂ drop(GELU(W₁ LN₂ X)))
/// post:  X <- LN₁(X + drop(Attn X + Conv X));       X <- LN₂(X + drop(W₂ drop(GELU(W₁ X))))
class EncoderLayer {
 public:
  EncoderLayer(ParameterStore& store, const std::string& name, const ModelConfig& config,
               int layer);
  /// `state` as above.
  [[nodiscard]] Var operator()(Var x, Var& state, const Tensor& mask, const attention::Call& call,
                               const Dropout& dropout) const;
  [[nodiscard]] const attention::Method& method() const { return attention_.method(); }

 private:
  bool post_;  // Norm::post
  LayerNorm norm1_;
  MultiHeadAttention attention_;
  Parameter* taps_ = nullptr;  // [R T, E], of the convolution; nullptr: none
  Window window_;              // of the convolution
  LayerNorm norm2_;
  Linear mlp_in_, mlp_out_;
};

class Model {
 public:
  /// Builds the layers and packs their parameters. UsageError for an unknown method or option.
  Model(const ModelConfig& config, DType dtype, Device device, std::uint64_t seed);

  /// Class scores [B, C]; of Objective::classify.
  [[nodiscard]] Var logits(Tape& tape, const ModelInput& input, const StepContext& step) const;
  /// Returns the loss against labels i32[B], and how many are right of `examples`.
  [[nodiscard]] Scored class_loss(Tape& tape, const ModelInput& input, const Tensor& labels,
                                  const StepContext& step, double examples) const;
  /// Returns the loss of the targets and how many are found; for Objective::predict_masked.
  [[nodiscard]] Scored masked_loss(Tape& tape, const ModelInput& input,
                                   const MaskedTargets& targets, const StepContext& step) const;

  [[nodiscard]] const ModelConfig& config() const { return config_; }
  [[nodiscard]] ParameterStore& parameters() { return store_; }
  [[nodiscard]] const ParameterStore& parameters() const { return store_; }
  [[nodiscard]] const EncoderLayer& layer(int index) const { return layers_[index]; }
  /// Embedding after the encoder, padded rows zero: [B, N, E].
  [[nodiscard]] Var encode(Tape& tape, const ModelInput& input, int sequence,
                           const StepContext& step) const;

 private:
  /// Returns the last layer's output, before any norm behind it: [B, N, E].
  [[nodiscard]] Var through_layers(Tape& tape, const ModelInput& input, int sequence,
                                   const StepContext& step) const;
  /// The encoding of each example's `sequence`-th sequence: [B, E].
  [[nodiscard]] Var pooled(Tape& tape, const ModelInput& input, int sequence,
                           const StepContext& step) const;
  /// Returns the classifier's input: [B, K].
  [[nodiscard]] Var head_input(Tape& tape, const ModelInput& input, const StepContext& step) const;

  ModelConfig config_;
  ParameterStore store_;
  std::unique_ptr<Embedding> embedding_;
  std::vector<EncoderLayer> layers_;
  std::unique_ptr<LayerNorm> norm_;   // behind the last layer, or behind the embedding
  std::unique_ptr<Pyramid> pyramid_;  // nullptr: the pool reads the encodings
  std::unique_ptr<Pool> pool_;
  std::unique_ptr<PairFeatures> pair_;          // of a dual encoder
  std::unique_ptr<Linear> head_in_, head_out_;  // of Objective::classify
  Tensor class_weights_;                        // [C]; undefined: all 1
  std::unique_ptr<MaskedHead> masked_head_;     // of Objective::predict_masked
};

}  // namespace skytape::nn
