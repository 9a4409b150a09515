#include "nn/bert/bert_encoder.hpp"

#include <cmath>

#include "autograd/ops.hpp"
#include "tensor/kernels/layer_norm.hpp"

namespace skytape::nn {
namespace {

/// What MultiHeadAttention reads of a model's configuration.
ModelConfig attention_config(const BertConfig& config) {
  ModelConfig model;
  model.attention = config.attention;
  model.attention_options = config.attention_options;
  model.nominal_length = config.positions;
  model.width = config.width;
  model.heads = config.heads;
  model.head_width = config.width / config.heads;
  return model;
}

}  // namespace

ScaledLayerNorm::ScaledLayerNorm(ParameterStore& store, const std::string& name, std::int64_t width,
                                 double epsilon)
    : norm_(store, name, width), factor_(std::sqrt(tensor::kLayerNormEpsilon / epsilon)) {}

Var ScaledLayerNorm::operator()(Var x) const {
  return norm_(factor_ == 1 ? x : affine(x, factor_));
}

BertEncoder::BertEncoder(const BertConfig& config, DType dtype, Device device, std::uint64_t seed)
    : config_(config) {
  ENSURE(config.heads > 0 && config.width % config.heads == 0, "bert: width ", config.width,
         " is no multiple of ", config.heads, " heads");
  const ModelConfig attention = attention_config(config);
  const auto table = [&](const char* name, std::int64_t rows) {
    return &store_.add(join("model.embeddings.", name, "_embeddings.weight"), {rows, config.width},
                       normal_init(kEmbeddingDeviation));
  };
  const auto norm = [&](const std::string& name) {
    return ScaledLayerNorm(store_, name, config.width, config.norm_epsilon);
  };
  tokens_ = table("word", config.vocabulary);
  positions_ = table("position", config.positions);
  types_ = table("token_type", config.types);
  norm_ = std::make_unique<ScaledLayerNorm>(norm("model.embeddings.norm"));
  layers_.reserve(static_cast<std::size_t>(config.layers));
  for (int l = 0; l < config.layers; ++l) {
    const std::string name = join("model.transformer_", l);
    layers_.push_back({MultiHeadAttention(store_, name + ".mha", attention, l),
                       norm(name + ".norm1"),
                       Linear(store_, name + ".mlpblock.0", config.width, config.ff_width),
                       Linear(store_, name + ".mlpblock.3", config.ff_width, config.width),
                       norm(name + ".norm2")});
  }
  store_.pack(dtype, device, seed);
}

Var BertEncoder::encode(Tape& tape, const BertInput& input, const StepContext& step) const {
  const auto rows = [&](Parameter* table, const Tensor& index) {
    return embedding(tape.parameter(*table), index);  // [B, N, E]
  };
  Var x = (*norm_)(rows(tokens_, input.ids) + rows(positions_, input.positions) +
                   rows(types_, input.types));  // [B, N, E]
  Var state;                                    // what a layer's attention hands to the next
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    const Layer& layer = layers_[l];
    attention::Call call;
    call.random = fork(step.random, Purpose::attention).fork(l);
    call.first_example = step.first_example;
    call.fewest_tokens = step.fewest_tokens[0];
    if (step.observe) {
      call.observe = [&step, l](const attention::Inputs& in, const Tensor& out) {
        step.observe(static_cast<int>(l), in, out);
      };
    }
    x = layer.norm1(x + layer.attention(x, state, input.mask, call));
    const Var hidden = gelu(layer.mlp_in(x));  // [B, N, F]
    x = layer.norm2(x + layer.mlp_out(hidden));
  }
  return x;
}

}  // namespace skytape::nn
