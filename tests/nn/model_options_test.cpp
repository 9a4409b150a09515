// Every method with every pooling and every kind of positions.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "attention/registry.hpp"
#include "autograd/ops.hpp"
#include "nn/layers/layers.hpp"
#include "nn/model.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/classification_loss.hpp"
#include "tests/support/difference.hpp"
#include "tests/support/doctest.hpp"
#include "tests/support/model_gradcheck.hpp"

using namespace skytape;
using data::synthetic::error_of;
using nn::Pooling;
using nn::Positions;

namespace {

constexpr std::int64_t kNominal = 32;
constexpr Pooling kPoolings[] = {Pooling::nominal, Pooling::mean, Pooling::first,
                                 Pooling::cls,     Pooling::max,  Pooling::attention};
constexpr Positions kPositions[] = {Positions::learned, Positions::sinusoidal, Positions::rotary,
                                    Positions::none};

nn::ModelConfig small_config(const attention::Spec& spec, Pooling pooling, Positions positions) {
  nn::ModelConfig config;
  config.attention = spec.name;
  if (spec.has_option("features")) config.attention_options = {{"features", "8"}};
  config.vocabulary = 11;
  config.classes = 3;
  config.nominal_length = kNominal;
  config.layers = 1;
  config.width = 8;
  config.ff_width = 12;
  config.heads = 2;
  config.head_width = 4;
  config.pooling = pooling;
  config.positions = positions;
  return config;
}

bool has_meaning(const attention::Spec& spec, Positions positions) {
  return positions != Positions::rotary || !spec.values_only;
}

/// Ids of sequences of these lengths, the class token in front where the model has one.
nn::ModelInput make_input(const nn::ModelConfig& config, const std::vector<int>& lengths,
                          std::int64_t width) {
  std::vector<std::int32_t> ids;
  std::vector<double> mask;
  for (std::size_t b = 0; b < lengths.size(); ++b) {
    for (int i = 0; i < width; ++i) {
      const bool real = i < lengths[b];
      const bool token = i == 0 && config.pooling == Pooling::cls && real;
      ids.push_back(token  ? static_cast<std::int32_t>(config.vocabulary)
                    : real ? 1 + (7 * i + 3 * static_cast<int>(b)) % 10
                           : 0);
      mask.push_back(real ? 1 : 0);
    }
  }
  nn::ModelInput input;
  const Shape shape = {std::ssize(lengths), width};
  input.ids[0] = Tensor::from(ids, shape, DType::i32, Device::cpu);
  input.mask[0] = Tensor::from(mask, shape, DType::f64, Device::cpu);
  return input;
}

nn::StepContext training_step() {
  nn::StepContext step;
  step.training = true;
  step.random.key = 5;
  return step;
}

std::vector<double> logits_of(const nn::Model& model, const nn::ModelInput& input,
                              const nn::StepContext& step) {
  Tape tape(Tape::Mode::eval);
  return model.logits(tape, input, step).value().to_vector();
}

/// The logits of one sequence without padding.
std::vector<double> logits_of(const nn::Model& model, const std::vector<std::int32_t>& ids) {
  nn::ModelInput input;
  const Shape shape = {1, std::ssize(ids)};
  input.ids[0] = Tensor::from(ids, shape, DType::i32, Device::cpu);
  input.mask[0] = Tensor::full(shape, 1, DType::f64, Device::cpu);
  return logits_of(model, input, {});
}

}  // namespace

TEST_CASE(
    "every method trains with every pooling and position, and a trimmed batch is the padded one") {
  for (const attention::Spec& spec : attention::registry()) {
    for (const Pooling pooling : kPoolings) {
      for (const Positions positions : kPositions) {
        if (!has_meaning(spec, positions)) continue;
        // One axis at a time: the other at its usual value.
        if (pooling != Pooling::nominal && positions != Positions::learned &&
            positions != Positions::rotary) {
          continue;
        }
        CAPTURE(spec.name);
        CAPTURE(static_cast<int>(pooling));
        CAPTURE(static_cast<int>(positions));
        nn::Model model(small_config(spec, pooling, positions), DType::f64, Device::cpu, 3);
        const std::vector<int> lengths = {13, 9, 16};
        const nn::ModelInput narrow = make_input(model.config(), lengths, 16);
        Tape tape;
        const Var logits = model.logits(tape, narrow, training_step());
        const std::vector<double> trimmed = logits.value().to_vector();
        const Tensor labels =
            Tensor::from(std::vector<std::int32_t>{2, 0, 1}, {3}, DType::i32, Device::cpu);
        tape.backward(test::classification_loss(logits, labels, 0.1));
        for (const double g : model.parameters().gradients().to_vector()) REQUIRE(std::isfinite(g));
        if (spec.reads_padding) continue;
        const nn::ModelInput wide = make_input(model.config(), lengths, kNominal);
        CHECK(test::largest_difference(trimmed, logits_of(model, wide, training_step())) < 1e-9);
      }
    }
  }
}

TEST_CASE(
    "every method trains with a convolution, with n-grams, types and positions from both ends") {
  for (const attention::Spec& spec : attention::registry()) {
    CAPTURE(spec.name);
    nn::ModelConfig config = small_config(spec, Pooling::mean, Positions::learned);
    config.conv_width = 5;
    config.both_ends = true;
    config.token_types = true;
    config.separator = 8;  // the second token of the first sequence
    config.ngrams = 3;
    config.ngram_rows = 40;
    nn::Model model(config, DType::f64, Device::cpu, 3);
    const std::vector<int> lengths = {13, 9, 16};
    Tape tape;
    const Var logits = model.logits(tape, make_input(config, lengths, 16), training_step());
    const std::vector<double> trimmed = logits.value().to_vector();
    tape.backward(sum_all(square(logits)));
    for (const char* name :
         {"model.transformer_0.conv.weight", "model.embeddings.end_position_embeddings.weight",
          "model.embeddings.ngram_embeddings.weight",
          "model.embeddings.token_type_embeddings.weight"}) {
      CAPTURE(name);
      const Tensor& gradient = model.parameters().find(name)->grad;
      CHECK(tensor::sum_all(tensor::multiply(gradient, gradient)).item() > 0);
    }
    if (spec.reads_padding) continue;
    const nn::ModelInput wide = make_input(config, lengths, kNominal);
    CHECK(test::largest_difference(trimmed, logits_of(model, wide, training_step())) < 1e-9);
  }
}

TEST_CASE("vectors of n-grams start as high as the configuration says") {
  for (const double deviation : {0.1, 1.0}) {
    nn::ModelConfig config =
        small_config(attention::find("vmean"), Pooling::mean, Positions::learned);
    config.ngrams = 3;
    config.ngram_rows = 4000;
    config.ngram_deviation = deviation;
    nn::Model model(config, DType::f64, Device::cpu, 3);
    const Tensor& table =
        model.parameters().find("model.embeddings.ngram_embeddings.weight")->value;
    const double squares = tensor::sum_all(tensor::multiply(table, table)).item();
    const double found = std::sqrt(squares / static_cast<double>(table.numel()));
    CHECK(found == doctest::Approx(deviation).epsilon(0.02));
  }
}

TEST_CASE("models with their norms behind the sums pass gradcheck, whatever the epsilon") {
  for (const char* method : {"softmax", "skyformer", "linformer", "nystrom"}) {
    for (const bool predicts : {false, true}) {
      CAPTURE(method);
      CAPTURE(predicts);
      nn::ModelConfig config =
          small_config(attention::find(method), Pooling::mean, Positions::learned);
      config.norm = nn::Norm::post;
      config.norm_epsilon = predicts ? 1e-12 : 1e-2;
      config.layers = 2;
      config.conv_width = predicts ? 3 : 0;
      if (predicts) config.objective = nn::Objective::predict_masked;
      nn::Model model(config, DType::f64, Device::cpu, 3);
      CHECK(model.parameters().find("model.norm.weight") == nullptr);
      REQUIRE(model.parameters().find("model.embeddings.norm.weight") != nullptr);
      const nn::ModelInput input = make_input(model.config(), {13, 9}, 16);
      const auto integers = [](const std::vector<std::int32_t>& values, const Shape& shape) {
        return Tensor::from(values, shape, DType::i32, Device::cpu);
      };
      const Tensor labels = integers({2, 0}, {2});
      nn::MaskedTargets targets;
      targets.at[0] = integers({3, 7, 0, 8}, {2, 2});
      targets.ids[0] = integers({4, 1, 9, 2}, {2, 2});
      targets.weight[0] = Tensor::full({2, 2}, 0.25, DType::f64, Device::cpu);
      const GradcheckReport report = test::gradcheck_model(model, [&](Tape& tape) {
        return predicts ? model.masked_loss(tape, input, targets, training_step()).loss
                        : test::classification_loss(model.logits(tape, input, training_step()),
                                                    labels, 0.2);
      });
      CHECK_MESSAGE(report.passed, report.to_string());
    }
  }
}

TEST_CASE("a layer norm divides by the root of the variance and its own epsilon") {
  ParameterStore store;
  const nn::LayerNorm norm(store, "norm", 2, 0.75);
  store.pack(DType::f64, Device::cpu, 1);
  Tape tape(Tape::Mode::eval);
  const Var x = tape.input(
      Tensor::from(std::vector<double>{3, 4, /**/ -1, 1}, {1, 2, 2}, DType::f64, Device::cpu));
  const double far = 1 / std::sqrt(1.75);  // variances: 1/4 and 1
  const std::vector<double> expected = {-0.5, 0.5, /**/ -far, far};
  const NormBeside beside = norm.beside(x, 2);
  for (const Var& y : {norm(x), beside.y[0], beside.y[1]}) {
    CHECK(test::largest_difference(y.value().to_vector(), expected) < 1e-12);
  }
}

TEST_CASE("models with each option pass gradcheck") {
  for (const char* method : {"softmax", "skyformer", "linformer"}) {
    const attention::Spec& spec = attention::find(method);
    for (const Pooling pooling : kPoolings) {
      const Positions positions = pooling == Pooling::max       ? Positions::sinusoidal
                                  : pooling == Pooling::nominal ? Positions::none
                                                                : Positions::rotary;
      CAPTURE(method);
      CAPTURE(static_cast<int>(pooling));
      nn::ModelConfig config = small_config(spec, pooling, positions);
      config.conv_width = pooling == Pooling::first || pooling == Pooling::mean ? 3 : 0;
      config.both_ends = pooling == Pooling::cls || pooling == Pooling::mean;
      config.ngrams = pooling == Pooling::cls || pooling == Pooling::max ? 3 : 0;
      config.ngram_rows = 20;
      nn::Model model(config, DType::f64, Device::cpu, 3);
      const nn::ModelInput input = make_input(model.config(), {13, 9}, 16);
      const Tensor labels =
          Tensor::from(std::vector<std::int32_t>{2, 0}, {2}, DType::i32, Device::cpu);
      const GradcheckReport report = test::gradcheck_model(model, [&](Tape& tape) {
        return test::classification_loss(model.logits(tape, input, training_step()), labels, 0.2);
      });
      CHECK_MESSAGE(report.passed, report.to_string());
    }
  }
}

TEST_CASE("without positions a model with attention sees a set; with each kind it sees the order") {
  const attention::Spec& spec = attention::find("softmax");
  for (const Positions positions : kPositions) {
    CAPTURE(static_cast<int>(positions));
    const nn::Model model(small_config(spec, Pooling::mean, positions), DType::f64, Device::cpu, 3);
    const auto of = [&](const std::vector<std::int32_t>& ids) { return logits_of(model, ids); };
    const double moved = test::largest_difference(of({1, 2, 3, 4, 5, 6}), of({6, 1, 5, 3, 2, 4}));
    if (positions == Positions::none) {
      CHECK(moved < 1e-14);
    } else {
      CHECK(moved > 1e-9);
    }
  }
}

TEST_CASE("a model turns pairs of channels by powers of its own base") {
  nn::ModelConfig config =
      small_config(attention::find("softmax"), Pooling::mean, Positions::rotary);
  config.rotary_base = 100;
  nn::Model model(config, DType::f64, Device::cpu, 3);
  const Tensor angles = model.parameters().find("model.rotary_angles")->value;  // [N, D], D = 4
  CHECK(angles[3].to_vector()[1] == doctest::Approx(std::cos(3 / 10.0)));  // 100 ^ (2 / D) = 10
}

TEST_CASE("rotary positions are refused where a model cannot turn anything") {
  const auto refusal = [](nn::ModelConfig config) {
    return error_of<UsageError>([&] { const nn::Model m(config, DType::f32, Device::cpu, 1); });
  };
  nn::ModelConfig config =
      small_config(attention::find("vmean"), Pooling::nominal, Positions::rotary);
  CHECK(refusal(config).find("vmean reads neither") != std::string::npos);
  config = small_config(attention::find("softmax"), Pooling::nominal, Positions::rotary);
  config.head_width = 3;
  CHECK(refusal(config).find("an even width / heads") != std::string::npos);
}

TEST_CASE("deeper models with more heads train with every option") {
  nn::ModelConfig config =
      small_config(attention::find("skyformer"), Pooling::attention, Positions::rotary);
  config.layers = 4;
  config.heads = 4;
  config.head_width = 2;
  nn::Model model(config, DType::f64, Device::cpu, 3);
  Tape tape;
  const nn::ModelInput input = make_input(config, {13, 9}, 16);
  tape.backward(sum_all(square(model.logits(tape, input, training_step()))));
  CHECK(model.parameters().find("model.rotary_angles")->shape == Shape{kNominal, 2});
  CHECK(model.parameters().find("model.transformer_3.mha.W_q.weight")->has_gradient);
}

TEST_CASE("label smoothing is the cross entropy against smoothed labels") {
  const std::vector<double> x = {0.3, -1.2, 2.0, 0.1, 0.4, -0.7};
  Tape tape(Tape::Mode::eval);
  const Var logits = tape.input(Tensor::from(x, {2, 3}, DType::f64, Device::cpu));
  const Tensor labels = Tensor::from(std::vector<std::int32_t>{2, 0}, {2}, DType::i32, Device::cpu);
  constexpr double kSmoothing = 0.3;
  double expected = 0;
  for (std::size_t b = 0; b < 2; ++b) {
    double total = 0;
    for (std::size_t c = 0; c < 3; ++c) total += std::exp(x[3 * b + c]);
    for (std::size_t c = 0; c < 3; ++c) {
      const double target = kSmoothing / 3 + (c == (b == 0 ? 2u : 0u) ? 1 - kSmoothing : 0);
      expected -= target * (x[3 * b + c] - std::log(total)) / 2;
    }
  }
  CHECK(test::classification_loss(logits, labels, kSmoothing).value().item() ==
        doctest::Approx(expected));
  CHECK(test::classification_loss(logits, labels, 0).value().item() ==
        cross_entropy(logits, labels).value().item());
}

TEST_CASE("a model's loss has the smoothing and the class weights of its configuration") {
  nn::ModelConfig config = small_config(attention::find("softmax"), Pooling::mean, {});
  config.label_smoothing = 0.2;
  const nn::ModelInput input = make_input(config, {13}, 16);
  const auto loss = [&](std::int32_t label, const std::vector<double>& class_weights) {
    config.class_weights = class_weights;
    const nn::Model model(config, DType::f64, Device::cpu, 3);
    const Tensor labels =
        Tensor::from(std::vector<std::int32_t>{label}, {1}, DType::i32, Device::cpu);
    Tape tape(Tape::Mode::eval);
    const double whole = model.class_loss(tape, input, labels, {}, 1).loss.value().item();
    const Var logits = model.logits(tape, input, {});
    return std::pair(whole, test::classification_loss(logits, labels, 0.2).value().item());
  };
  for (const std::int32_t label : {0, 2}) {
    const auto [even, of_logits] = loss(label, {});
    CHECK(even == doctest::Approx(of_logits).epsilon(1e-12));
    CHECK(loss(label, {0.5, 1, 3}).first ==
          doctest::Approx(even * (label == 0 ? 0.5 : 3)).epsilon(1e-12));
  }
}

TEST_CASE("who observes attention sees the layer's input, and queries and keys that nobody needs") {
  for (const char* method : {"softmax", "vmean", "linformer"}) {
    INFO(method);
    const nn::ModelConfig config = small_config(attention::find(method), Pooling::mean, {});
    const nn::Model model(config, DType::f64, Device::cpu, 3);
    const nn::ModelInput input = make_input(config, {13, 9}, 16);
    int seen = 0;
    nn::StepContext step;
    step.observe = [&](int layer, const attention::Inputs& in, const Tensor& out) {
      ++seen;
      CHECK(layer == 0);
      CHECK(in.x.shape() == Shape({2, 16, 8}));
      for (const Tensor& t : {in.q, in.k, in.v, out}) CHECK(t.shape() == Shape({2, 2, 16, 4}));
    };
    const std::vector<double> observed = logits_of(model, input, step);
    CHECK(seen == 1);
    CHECK(test::largest_difference(logits_of(model, input, {}), observed) < 1e-12);
  }
}

TEST_CASE("with shared queries and keys a model projects without biases, and turns both at once") {
  const attention::Spec& spec = attention::find("reformer");
  nn::Model model(small_config(spec, Pooling::mean, Positions::rotary), DType::f64, Device::cpu, 3);
  const auto of = [&](const std::vector<std::int32_t>& ids) { return logits_of(model, ids); };
  const std::vector<double> before = of({1, 2, 3, 4, 5, 6});  // few enough to be dense
  CHECK(test::largest_difference(of({6, 1, 5, 3, 2, 4}), before) > 1e-9);
  for (const char* layer : {"W_q", "W_v"}) {
    model.parameters()
        .find(std::string("model.transformer_0.mha.") + layer + ".bias")
        ->value.fill(7);
  }
  CHECK(of({1, 2, 3, 4, 5, 6}) == before);
}

TEST_CASE("poolings read the encodings, whatever their norm's epsilon") {
  for (const double epsilon : {1e-5, 0.05}) {
    nn::ModelConfig config = small_config(attention::find("softmax"), Pooling::mean, {});
    config.norm_epsilon = epsilon;
    nn::Model model(config, DType::f64, Device::cpu, 3);
    const nn::ModelInput input = make_input(config, {16, 16}, 16);
    Tape tape(Tape::Mode::eval);
    const Var pooled = mean(model.encode(tape, input, 0, {}), 1);  // [B, E]
    const auto weight = [&](const char* name) {
      return tape.parameter(
          *model.parameters().find(std::string("seq_classifer.mlpblock.") + name));
    };
    const Var hidden = relu(linear(pooled, weight("0.weight"), weight("0.bias")));
    const Var logits = linear(hidden, weight("2.weight"), weight("2.bias"));
    CHECK(test::largest_difference(logits_of(model, input, {}), logits.value().to_vector()) <
          1e-12);
  }
}

TEST_CASE("texts cut to no position at all are texts of padding") {
  for (const Pooling pooling : {Pooling::nominal, Pooling::mean}) {
    const nn::ModelConfig config = small_config(attention::find("softmax"), pooling, {});
    const nn::Model model(config, DType::f64, Device::cpu, 3);
    CHECK(logits_of(model, make_input(config, {0, 0}, 0), {}) ==
          logits_of(model, make_input(config, {0, 0}, 3), {}));
  }
}

TEST_CASE("residual_scale multiplies the first values of what layers add, and no others") {
  const attention::Spec& spec = attention::find("softmax");
  nn::ModelConfig config = small_config(spec, Pooling::mean, Positions::learned);
  config.conv_width = 3;
  nn::Model usual(config, DType::f64, Device::cpu, 3);
  config.residual_scale = 0.5;
  nn::Model half(config, DType::f64, Device::cpu, 3);
  int scaled = 0;
  for (const Parameter& p : usual.parameters().parameters()) {
    CAPTURE(p.name);
    const auto has = [&](const char* part) { return p.name.find(part) != p.name.npos; };
    const bool adds =
        has(".mha.ff.") || has(".conv.") || (has("model.transformer_") && has(".mlpblock.3."));
    const double factor = adds ? 0.5 : 1;
    scaled += adds ? 1 : 0;
    const std::vector<double> before = p.value.to_vector();
    const std::vector<double> after = half.parameters().find(p.name)->value.to_vector();
    REQUIRE(before.size() == after.size());
    for (std::size_t i = 0; i < before.size(); ++i) {
      REQUIRE(after[i] == doctest::Approx(factor * before[i]).epsilon(1e-12));
    }
  }
  CHECK(scaled == 5 * config.layers);
}

TEST_CASE("a convolution begins with taps of up to one over the root of their number") {
  nn::ModelConfig config =
      small_config(attention::find("softmax"), Pooling::mean, Positions::learned);
  config.conv_width = 9;
  const nn::Model model(config, DType::f64, Device::cpu, 3);
  double largest = 0;
  for (const Parameter& p : model.parameters().parameters()) {
    if (!p.name.ends_with(".conv.weight")) continue;
    for (const double x : p.value.to_vector()) largest = std::max(largest, std::abs(x));
  }
  CHECK(largest < 1.0 / 3);
  CHECK(largest > 0.9 / 3);
}
