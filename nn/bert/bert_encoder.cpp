#include "nn/bert/bert_encoder.hpp"

#include "autograd/initial_values.hpp"
#include "autograd/ops.hpp"

namespace skytape::nn {
namespace {

/// Returns the part of a model's configuration that EncoderLayer reads.
ModelConfig layer_config(const BertConfig& config) {
  ModelConfig model;
  model.attention = config.attention;
  model.attention_options = config.attention_options;
  model.nominal_length = config.positions;
  model.width = config.width;
  model.ff_width = config.ff_width;
  model.heads = config.heads;
  model.norm = Norm::post;
  model.norm_epsilon = config.norm_epsilon;
  return model;
}

}  // namespace

BertEncoder::BertEncoder(const BertConfig& config, DType dtype, Device device, std::uint64_t seed)
    : config_(config) {
  ENSURE(config.heads > 0 && config.width % config.heads == 0, "bert: width ", config.width,
         " is no multiple of ", config.heads, " heads");
  const ModelConfig layer = layer_config(config);
  const auto table = [&](const char* name, std::int64_t rows) {
    return &store_.add(join("model.embeddings.", name, "_embeddings.weight"), {rows, config.width},
                       normal_init(kEmbeddingDeviation));
  };
  tokens_ = table("word", config.vocabulary);
  positions_ = table("position", config.positions);
  types_ = table("token_type", config.types);
  norm_ = std::make_unique<LayerNorm>(store_, "model.embeddings.norm", config.width,
                                      config.norm_epsilon);
  layers_.reserve(static_cast<std::size_t>(config.layers));
  for (int l = 0; l < config.layers; ++l) {
    layers_.emplace_back(store_, join("model.transformer_", l), layer, l);
  }
  store_.pack(dtype, device, seed);
}

Var BertEncoder::encode(Tape& tape, const BertInput& input, const StepContext& step) const {
  const auto rows = [&](Parameter* table, const Tensor& index) {
    return embedding(tape.parameter(*table), index);  // [B, N, E]
  };
  Var x = (*norm_)(rows(tokens_, input.ids) + rows(positions_, input.positions) +
                   rows(types_, input.types));  // [B, N, E]
  const Dropout none{};
  Var state;  // what a layer's attention hands to the next
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    attention::Call call;
    call.random = fork(step.random, Purpose::attention).fork(l);
    call.alone = step.alone;
    if (step.observe) {
      call.observe = [&step, l](const attention::Inputs& in, const Tensor& out) {
        step.observe(static_cast<int>(l), in, out);
      };
    }
    x = layers_[l](x, state, input.mask, call, none);
  }
  return x;
}

}  // namespace skytape::nn
