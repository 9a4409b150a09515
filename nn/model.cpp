#include "nn/model.hpp"

#include <array>
#include <cmath>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include "attention/registry.hpp"
#include "attention/tiled/tiled_layer.hpp"
#include "autograd/initial_values.hpp"
#include "autograd/ops.hpp"
#include "autograd/ops_heads.hpp"
#include "nn/layers/mlp.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"

namespace skytape::nn {
namespace {

/// Places that draw random numbers: the embedding, the layers, and within a layer the rest.
enum class Place : std::uint64_t {
  embedding = 1,
  layers,
  attention,
  attention_output,
  mlp_hidden,
  mlp_output
};

Random at(const Random& random, Place place) {
  return random.fork(static_cast<std::uint64_t>(place));
}

/// Random numbers of one of an example's sequences, training and evaluation apart.
Random random_of(const StepContext& step, int sequence) {
  const Purpose mode = step.training ? Purpose::train : Purpose::evaluate;
  return fork(step.random, mode).fork(static_cast<std::uint64_t>(sequence));
}

/// That of one layer.
Random random_of(const StepContext& step, int sequence, int layer) {
  return at(random_of(step, sequence), Place::layers).fork(static_cast<std::uint64_t>(layer));
}

/// The table of rotary positions, which all layers share; nullptr for other positions.
Parameter* shared_angles(ParameterStore& store, const ModelConfig& config) {
  if (config.positions != Positions::rotary) return nullptr;
  if (attention::find(config.attention).values_only) {
    throw UsageError(join("positions: rotary turns queries and keys, but ", config.attention,
                          " reads neither; expected learned, sinusoidal or none"));
  }
  if (config.width_of_head() % 2 != 0) {
    throw UsageError(join("positions: rotary turns pairs of channels, but a head has ",
                          config.width_of_head(), "; expected an even width / heads"));
  }
  const std::string name = "model.rotary_angles";
  if (Parameter* known = store.find(name)) return known;
  return &store.add(name, {config.nominal_length, config.width_of_head()},
                    rotary_angles(config.rotary_base), false);
}

/// x [B, N, E] by each of the layers, by head: [B, H, N, D] each. With sums [B, N, 1], for combined
/// rows, these multiply the biases.
std::vector<Var> by_head(Var x, std::span<const Linear* const> linears, bool with_bias,
                         std::int64_t heads, Var sums = {}) {
  std::vector<Projection> projections;
  for (const Linear* const linear : linears) {
    const Var bias = with_bias ? x.tape().parameter(*linear->bias) : Var();
    projections.push_back({x.tape().parameter(*linear->weight), bias});
  }
  return project_heads(x, projections, heads, sums);
}

/// Throws for a configuration that no model has, by the member's name.
void require_model(const ModelConfig& c) {
  ENSURE(c.sequences >= 1 && c.sequences <= kMaxSequences, "model: sequences must be 1 or ",
         kMaxSequences, ", got ", c.sequences);
  const bool classifies = c.objective == Objective::classify;
  for (const auto& [key, size] : std::initializer_list<std::pair<const char*, std::int64_t>>{
           {"layers", c.layers},
           {"width", c.width},
           {"ff_width", c.ff_width},
           {"heads", c.heads},
           {"vocabulary", c.vocabulary},
           {"nominal_length", c.nominal_length},
           {"classes", classifies ? c.classes : 1}}) {
    ENSURE(size >= 1, "model: ", key, " must be at least 1, got ", size);
  }
  ENSURE(c.head_width >= 0, "model: head_width must not be negative, got ", c.head_width);
  ENSURE(c.head_width > 0 || c.width % c.heads == 0,
         "model: width must be a multiple of heads = ", c.heads, ", got ", c.width);
  const auto weights = static_cast<std::int64_t>(c.class_weights.size());
  ENSURE(weights == 0 || weights == c.classes, "model: expected class_weights for ", c.classes,
         " classes, got ", weights);
}

std::string layer_name(int layer) { return "model.transformer_" + std::to_string(layer); }

}  // namespace

StepContext answer_context(std::uint64_t seed, std::int64_t draw) {
  StepContext context;
  context.alone = true;
  context.random = {seed, {}};
  if (draw > 0) {
    context.random = fork(context.random, Purpose::evaluate).fork(static_cast<std::uint64_t>(draw));
  }
  return context;
}

attention::Call attention_call(const StepContext& step, int sequence, int layer) {
  attention::Call call;
  call.training = step.training;
  call.random = at(random_of(step, sequence, layer), Place::attention);
  call.first_example = step.first_example;
  call.alone = step.alone;
  call.fewest_tokens = step.fewest_tokens[static_cast<std::size_t>(sequence)];
  return call;
}

MultiHeadAttention::MultiHeadAttention(ParameterStore& store, const std::string& name,
                                       const ModelConfig& config, int layer)
    : heads_(config.heads),
      head_width_(config.width_of_head()),
      query_(store, name + ".W_q", config.width, config.heads * head_width_),
      key_(store, name + ".W_k", config.width, config.heads * head_width_),
      value_(store, name + ".W_v", config.width, config.heads * head_width_),
      output_(store, name + ".ff", config.heads * head_width_, config.width, config.residual_scale),
      angles_(shared_angles(store, config)) {
  const attention::Spec& spec = attention::find(config.attention);
  shared_qk_ = spec.shared_qk;
  values_only_ = spec.values_only;
  reads_x_ = spec.reads_x;
  const attention::LayerContext context{
      layer,           config.heads, head_width_, config.nominal_length,
      name + ".attn.", &store,       config.width};
  method_ = spec.make(context, config.attention_options);
}

attention::OutputVars MultiHeadAttention::attend(Var x, Var state, const Tensor& mask,
                                                 const attention::Call& call) const {
  // Who observes a call is shown what any method is defined on: x, and q, k and v of every
  // position. And turned keys are no projections of combined rows.
  const Var input = reads_x_ || call.observe ? x : Var();  // [B, N, E]
  if (!call.observe && angles_ == nullptr) {
    if (const auto combined = method_->combine_rows(x, mask)) {
      const Linear* const queries = &query_;
      const Var q =  // [B, H, N, D]
          values_only_ ? Var() : by_head(x, {&queries, 1}, true, heads_)[0];
      std::vector<const Linear*> of_combined = {&key_, &value_};
      if (values_only_) of_combined.erase(of_combined.begin());
      const std::vector<Var> found =  // [B, H, M, D] each
          by_head(combined->rows, of_combined, true, heads_, combined->sums);
      const Var k = values_only_ ? Var() : found[0];
      return attention::apply_with_state(*method_, {q, k, found.back(), input, state}, mask, call,
                                         true);
    }
  }
  // A method with shared queries and keys (Reformer) uses the weights of W_q and W_v alone.
  const bool values_alone = values_only_ && !call.observe;
  std::vector<const Linear*> wanted;
  if (!values_alone) wanted.push_back(&query_);
  if (!values_alone && !shared_qk_) wanted.push_back(&key_);
  wanted.push_back(&value_);
  const std::vector<Var> found = by_head(x, wanted, !shared_qk_, heads_);  // [B, H, N, D] each
  Var q = found.size() > 1 ? found[0] : Var();                             // [B, H, N, D]
  Var k = found.size() > 2 ? found[1] : Var();
  const Var v = found.back();
  if (angles_ != nullptr && k.defined()) {
    const auto turned = rotary_pair(q, k, angles_->value);
    q = turned[0];
    k = turned[1];
  } else if (angles_ != nullptr && q.defined()) {
    q = rotary(q, angles_->value);
  }
  return attention::apply_with_state(*method_, {q, k, v, input, state}, mask, call);
}

Var MultiHeadAttention::add_to(Var residual, Var x, Var& state, const Tensor& mask,
                               const attention::Call& call, const Dropout& dropout) const {
  Tape& tape = x.tape();
  const auto weight = [&](const Linear& linear) { return tape.parameter(*linear.weight); };
  const auto bias = [&](const Linear& linear) { return tape.parameter(*linear.bias); };
  // Who observes a call or injects draws means the method alone, and turned keys are no projections.
  if (!call.observe && call.injected == nullptr && angles_ == nullptr) {
    const auto exact = method_->exact_attention(head_width_, call);
    if (exact && attention::serves_layer(x.value(), query_.weight->value, heads_, *exact)) {
      return attention::tiled_layer(residual, x,
                                    {{weight(query_), weight(key_), weight(value_)},
                                     {bias(query_), bias(key_), bias(value_)},
                                     weight(output_),
                                     bias(output_)},
                                    heads_, mask, *exact, dropout);
    }
  }
  const auto [out, left] = attend(x, state, mask, call);  // [B, H, N, D]
  state = left;
  return merge_heads(residual, out, weight(output_), bias(output_), dropout);
}

EncoderLayer::EncoderLayer(ParameterStore& store, const std::string& name,
                           const ModelConfig& config, int layer)
    : post_(config.norm == Norm::post),
      norm1_(store, name + ".norm1", config.width, config.norm_epsilon),
      attention_(store, name + ".mha", config, layer),
      norm2_(store, name + ".norm2", config.width, config.norm_epsilon),
      mlp_in_(store, name + ".mlpblock.0", config.width, config.ff_width),
      mlp_out_(store, name + ".mlpblock.3", config.ff_width, config.width, config.residual_scale) {
  if (config.conv_width > 0) {
    window_ = {config.conv_width, config.columns > 0 ? config.conv_width : 1, config.columns};
    const std::int64_t taps = window_.width * window_.height;
    const double bound = config.residual_scale / std::sqrt(static_cast<double>(taps));
    taps_ = &store.add(name + ".conv.weight", {taps, config.width}, uniform_init(bound));
  }
}

Var EncoderLayer::operator()(Var x, Var& state, const Tensor& mask, const attention::Call& call,
                             const Dropout& dropout) const {
  const auto dropout_at = [&](Place place) {
    Dropout d = dropout;
    d.random = at(dropout.random, place);
    return d;
  };
  const Dropout of_attention = dropout_at(Place::attention_output);
  const int readers = taps_ == nullptr ? 1 : 2;
  const auto [residual, h] =
      post_ ? NormBeside{x, {x, x}} : norm1_.beside(x, readers);  // [B, N, E]
  if (taps_ == nullptr) {
    x = attention_.add_to(residual, h[0], state, mask, call, of_attention);
  } else {  // drop(a + b) = drop(a) + drop(b): both have the same random numbers
    const Var near =
        add_convolution(residual, h[1], x.tape().parameter(*taps_), mask, window_, of_attention);
    x = attention_.add_to(near, h[0], state, mask, call, of_attention);
  }
  const Dropout in_mlp = dropout_at(Place::mlp_hidden), out_of_mlp = dropout_at(Place::mlp_output);
  if (!post_) return mlp(x, norm2_, mlp_in_, mlp_out_, in_mlp, out_of_mlp);
  return norm2_(mlp(norm1_(x), mlp_in_, mlp_out_, in_mlp, out_of_mlp));
}

Model::Model(const ModelConfig& config, DType dtype, Device device, std::uint64_t seed)
    : config_(config) {
  require_model(config);
  // Parameters are declared in the order of their use, in which an exchange expects them.
  const auto norm = [&](const char* name) {
    return std::make_unique<LayerNorm>(store_, name, config.width, config.norm_epsilon);
  };
  embedding_ = std::make_unique<Embedding>(store_, "model.embeddings", config);
  if (config.norm == Norm::post) norm_ = norm("model.embeddings.norm");
  layers_.reserve(static_cast<std::size_t>(config.layers));
  for (int l = 0; l < config.layers; ++l) layers_.emplace_back(store_, layer_name(l), config, l);
  if (config.norm == Norm::pre) norm_ = norm("model.norm");
  if (config.objective == Objective::predict_masked) {
    masked_head_ = std::make_unique<MaskedHead>(store_, config.width, config.token_rows(),
                                                config.pixels, config.norm_epsilon);
    store_.pack(dtype, device, seed);
    return;
  }
  if (config.pyramid) {
    ENSURE(config.columns > 0, "model: a pyramid halves pictures, but the tokens are no pixels");
    // The name is that of checkpoints made when it counted among the poolings.
    pyramid_ = std::make_unique<Pyramid>(store_, "model.pooling", config.width,
                                         config.nominal_length, config.columns);
  }
  pool_ = std::make_unique<Pool>(store_, config.pooling, config.width, config.nominal_length);
  std::int64_t features = config.width;
  if (config.sequences == 2) {
    pair_ = std::make_unique<PairFeatures>(store_, config.width, config.pair_cosine);
    features = pair_->size();
  }
  // The spelling is that of the papers' checkpoints.
  head_in_ =
      std::make_unique<Linear>(store_, "seq_classifer.mlpblock.0", features, config.ff_width);
  head_out_ =
      std::make_unique<Linear>(store_, "seq_classifer.mlpblock.2", config.ff_width, config.classes);
  if (!config.class_weights.empty()) {
    class_weights_ = Tensor::from(config.class_weights, {config.classes}, dtype, device);
  }
  store_.pack(dtype, device, seed);
}

Var Model::through_layers(Tape& tape, const ModelInput& input, int sequence,
                          const StepContext& step) const {
  ENSURE(sequence >= 0 && sequence < config_.sequences, "model: sequence ", sequence, " of ",
         config_.sequences);
  ENSURE(step.injected.empty() || step.injected.size() == layers_.size(),
         "model: expected injected draws for ", layers_.size(), " layers, got ",
         step.injected.size());
  const Tensor& ids = input.ids[static_cast<std::size_t>(sequence)];    // [B, N]
  const Tensor& mask = input.mask[static_cast<std::size_t>(sequence)];  // [B, N]
  ENSURE(ids.defined() && ids.rank() == 2 && ids.dtype() == DType::i32,
         "model: expected ids i32[B, N] of sequence ", sequence, ", got ", ids);
  Dropout dropout{step.training ? config_.dropout : 0.0,
                  at(random_of(step, sequence), Place::embedding), step.first_example,
                  config_.nominal_length};

  Var x = config_.norm == Norm::post  // [B, N, E]
              ? skytape::dropout((*norm_)((*embedding_)(tape, ids, mask)), dropout)
              : embedding_->dropped(tape, ids, mask, dropout);
  Var state;  // between layers, of methods that carry one
  const int first = tape.size();
  for (int l = 0; l < config_.layers; ++l) {
    attention::Call call = attention_call(step, sequence, l);
    if (!step.injected.empty()) call.injected = &step.injected[static_cast<std::size_t>(l)];
    if (step.observe) {
      call.observe = [&step, l](const attention::Inputs& in, const Tensor& out) {
        step.observe(l, in, out);
      };
    }
    dropout.random = random_of(step, sequence, l);
    x = layers_[static_cast<std::size_t>(l)](x, state, mask, call, dropout);
    tape.release_since(first, std::array{x, state});
  }
  return x;
}

Var Model::encode(Tape& tape, const ModelInput& input, int sequence,
                  const StepContext& step) const {
  const Var x = through_layers(tape, input, sequence, step);  // [B, N, E]
  return mask_rows(config_.norm == Norm::pre ? (*norm_)(x) : x,
                   input.mask[static_cast<std::size_t>(sequence)]);
}

Var Model::pooled(Tape& tape, const ModelInput& input, int sequence,
                  const StepContext& step) const {
  if (pyramid_ != nullptr) return (*pyramid_)(encode(tape, input, sequence, step));  // [B, E]
  const Tensor& mask = input.mask[static_cast<std::size_t>(sequence)];               // [B, N]
  const auto weights = pool_->weights();
  const bool plain = config_.norm == Norm::pre && norm_->factor == 1;
  const Var x = through_layers(tape, input, sequence, step);  // [B, N, E]
  if (plain && weights && x.value().numel() > 0) {
    return norm_pool(x, tape.parameter(*norm_->weight), tape.parameter(*norm_->bias), mask,
                     *weights);
  }
  return (*pool_)(mask_rows(config_.norm == Norm::pre ? (*norm_)(x) : x, mask), mask);
}

Scored Model::masked_loss(Tape& tape, const ModelInput& input, const MaskedTargets& targets,
                          const StepContext& step) const {
  ENSURE(masked_head_ != nullptr, "model: it classifies, and predicts no hidden tokens");
  Scored scored;
  for (std::size_t sequence = 0; sequence < static_cast<std::size_t>(config_.sequences);
       ++sequence) {
    const Var x = encode(tape, input, static_cast<int>(sequence), step);  // [B, N, E]
    const MaskedHead::Answers found = (*masked_head_)(x, *embedding_->tokens, targets.at[sequence],
                                                      targets.ids[sequence]);  // [B P]
    const Tensor weight = targets.weight[sequence].reshape({targets.weight[sequence].numel()});
    const Var loss = sum_all(found.losses * tape.constant(weight));
    const Tensor correct = tensor::sum_all(tensor::multiply(found.correct, weight));
    scored.loss = sequence == 0 ? loss : scored.loss + loss;
    scored.correct = sequence == 0 ? correct : tensor::add(scored.correct, correct);
  }
  return scored;
}

Var Model::head_input(Tape& tape, const ModelInput& input, const StepContext& step) const {
  ENSURE(head_in_ != nullptr, "model: it predicts hidden tokens, and no classes");
  const Var first = pooled(tape, input, 0, step);  // [B, E]
  if (pair_ == nullptr) return first;
  return (*pair_)(first, pooled(tape, input, 1, step));  // [B, 4 E], or one more
}

Var Model::logits(Tape& tape, const ModelInput& input, const StepContext& step) const {
  const Var x = head_input(tape, input, step);
  return (*head_out_)(relu((*head_in_)(x)));
}

Scored Model::class_loss(Tape& tape, const ModelInput& input, const Tensor& labels,
                         const StepContext& step, double examples) const {
  const Var x = head_input(tape, input, step);
  return classifier_loss(x, *head_in_, *head_out_, labels, config_.label_smoothing, examples,
                         class_weights_);
}

}  // namespace skytape::nn
