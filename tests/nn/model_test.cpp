#include "nn/model.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "autograd/observers.hpp"
#include "autograd/ops.hpp"
#include "nn/optimizer.hpp"
#include "tensor/core/storage.hpp"
#include "tests/support/difference.hpp"
#include "tests/support/doctest.hpp"
#include "tests/support/model_gradcheck.hpp"

using namespace skytape;

namespace {

constexpr std::int64_t kVocabulary = 11;

nn::ModelConfig small_config(const std::string& attention, int sequences = 1) {
  nn::ModelConfig config;
  config.attention = attention;
  if (attention == "skyformer" || attention == "linformer" || attention == "luna") {
    config.attention_options = {{"features", "6"}};
  }
  if (attention == "synthesizer") config.attention_options = {{"logits", "dense"}};
  config.vocabulary = kVocabulary;
  config.classes = 3;
  config.nominal_length = 24;
  config.sequences = sequences;
  config.layers = 2;
  config.width = 8;
  config.ff_width = 12;
  config.heads = 2;
  config.head_width = 4;
  return config;
}

/// Ids 1..10 of the given lengths, padded with 0 to `width`.
nn::ModelInput make_input(const std::vector<std::int64_t>& lengths, std::int64_t width, DType dtype,
                          int sequences = 1) {
  nn::ModelInput input;
  const auto batch = static_cast<std::int64_t>(lengths.size());
  for (int sequence = 0; sequence < sequences; ++sequence) {
    std::vector<std::int32_t> ids;
    std::vector<double> mask;
    for (std::int64_t b = 0; b < batch; ++b) {
      for (std::int64_t i = 0; i < width; ++i) {
        const bool real = i < lengths[static_cast<std::size_t>(b)];
        ids.push_back(real ? 1 + static_cast<std::int32_t>((7 * i + 3 * b + sequence) % 10) : 0);
        mask.push_back(real ? 1 : 0);
      }
    }
    input.ids[static_cast<std::size_t>(sequence)] =
        Tensor::from(ids, {batch, width}, DType::i32, Device::cpu);
    input.mask[static_cast<std::size_t>(sequence)] =
        Tensor::from(mask, {batch, width}, dtype, Device::cpu);
  }
  return input;
}

std::vector<double> logits_of(const nn::Model& model, const nn::ModelInput& input,
                              const nn::StepContext& step) {
  Tape tape(Tape::Mode::eval);
  return model.logits(tape, input, step).value().to_vector();
}

nn::StepContext training_step() {
  nn::StepContext step;
  step.training = true;
  step.random.key = 5;
  return step;
}

}  // namespace

TEST_CASE("parameters have the names and shapes of the papers' checkpoints") {
  nn::Model model(small_config("softmax"), DType::f32, Device::cpu, 1);
  const auto shape_of = [&](const char* name) {
    const Parameter* p = model.parameters().find(name);
    REQUIRE_MESSAGE(p != nullptr, name);
    return p->shape;
  };
  CHECK(shape_of("model.embeddings.word_embeddings.weight") == Shape{11, 8});
  CHECK(shape_of("model.embeddings.position_embeddings.weight") == Shape{24, 8});
  CHECK(shape_of("model.transformer_1.mha.W_k.weight") == Shape{8, 8});
  CHECK(shape_of("model.transformer_0.mlpblock.3.bias") == Shape{8});
  CHECK(shape_of("seq_classifer.mlpblock.2.weight") == Shape{3, 12});

  nn::ModelConfig config = small_config("softmax");
  config.conv_width = 3;
  for (const std::int64_t columns : {0, 6}) {  // of a sequence, of a picture
    config.columns = columns;
    nn::Model convolving(config, DType::f32, Device::cpu, 1);
    CHECK(convolving.parameters().find("model.transformer_1.conv.weight")->shape ==
          Shape{columns > 0 ? 9 : 3, 8});
  }
}

TEST_CASE("a trimmed batch gives the padded batch's logits, dropout included") {
  for (const char* attention :
       {"softmax", "kernelized", "skyformer", "vmean", "linformer", "synthesizer", "luna"}) {
    CAPTURE(attention);
    const nn::Model model(small_config(attention), DType::f64, Device::cpu, 3);
    const std::vector<std::int64_t> lengths = {13, 9};
    for (const bool training : {false, true}) {
      nn::StepContext step = training_step();
      step.training = training;
      CHECK(test::largest_difference(logits_of(model, make_input(lengths, 24, DType::f64), step),
                                     logits_of(model, make_input(lengths, 16, DType::f64), step)) <
            1e-12);
    }
  }
}

TEST_CASE("a model that combines rows before it projects them is the one that projects them all") {
  using nn::Positions;
  for (const auto& [options, positions] :
       {std::pair(attention::OptionValues{}, Positions::learned),
        {{{"features", "5"}}, Positions::learned},
        {{{"features", "5"}}, Positions::rotary},  // turns keys, so it must not combine them
        {{{"features", "5"}, {"sharing", "none"}}, Positions::learned}}) {
    nn::ModelConfig config = small_config(options.empty() ? "vmean" : "linformer");
    config.attention_options = options;
    config.positions = positions;
    nn::Model model(config, DType::f64, Device::cpu, 3);
    const nn::ModelInput input = make_input({13, 0, 9}, 16, DType::f64);
    const auto run = [&](nn::StepContext step) {
      model.parameters().zero_gradients();
      Tape tape;
      const Var logits = model.logits(tape, input, step);
      std::vector<double> all = logits.value().to_vector();
      tape.backward(sum_all(square(logits)));
      for (const Parameter& p : model.parameters().parameters()) {
        if (!p.trainable) continue;
        const std::vector<double> gradient = p.grad.to_vector();
        all.insert(all.end(), gradient.begin(), gradient.end());
      }
      return all;
    };
    nn::StepContext whole = training_step();
    bool seen = false;
    whole.observe = [&](int, const attention::Inputs& in, const Tensor&) {
      CHECK(in.k.shape() == Shape{3, 2, 16, 4});  // of every position
      seen = true;
    };
    CAPTURE(config.attention);
    CHECK(test::largest_difference(run(training_step()), run(whole)) < 1e-12);
    CHECK(seen);
  }
}

TEST_CASE("splitting a batch changes no dropout mask: the chunks give the batch's logits") {
  const nn::Model model(small_config("skyformer"), DType::f64, Device::cpu, 3);
  nn::StepContext step = training_step();
  const std::vector<double> whole = logits_of(model, make_input({13, 9}, 16, DType::f64), step);
  nn::ModelInput second = make_input({13, 9}, 16, DType::f64);
  second.ids[0] = second.ids[0].slice(1, 2);
  second.mask[0] = second.mask[0].slice(1, 2);
  step.first_example = 1;
  const std::vector<double> part = logits_of(model, second, step);
  CHECK(test::largest_difference({whole.begin() + 3, whole.end()}, part) < 1e-12);
}

TEST_CASE("training draws fresh numbers each step, evaluation the same ones") {
  const nn::Model model(small_config("softmax"), DType::f64, Device::cpu, 3);
  const nn::ModelInput input = make_input({13, 9}, 16, DType::f64);
  nn::StepContext step = training_step();
  const auto at = [&](std::int32_t number) {
    step.random.step =
        Tensor::from(std::vector<std::int32_t>{number}, {1}, DType::i32, Device::cpu);
    return logits_of(model, input, step);
  };
  CHECK(at(1) == at(1));
  CHECK(at(1) != at(2));

  nn::ModelConfig config = small_config("skyformer");
  config.dropout = 0;  // landmarks alone are drawn
  const nn::Model drawing(config, DType::f64, Device::cpu, 3);
  const std::vector<double> trained = logits_of(drawing, input, step);
  step.training = false;
  CHECK(logits_of(drawing, input, step) == logits_of(drawing, input, step));
  CHECK(logits_of(drawing, input, step) != trained);
}

TEST_CASE("a model's attention drops weights in training alone") {
  nn::ModelConfig config = small_config("softmax");
  config.dropout = 0;
  nn::StepContext evaluation = training_step();
  evaluation.training = false;
  const nn::ModelInput input = make_input({13, 9}, 24, DType::f64);
  for (const char* rate : {"0", "0.5"}) {
    CAPTURE(rate);
    config.attention_options = {{"attention_dropout", rate}};
    const nn::Model model(config, DType::f64, Device::cpu, 3);
    const bool same =
        logits_of(model, input, training_step()) == logits_of(model, input, evaluation);
    CHECK(same == (rate == std::string("0")));
  }
}

TEST_CASE("each place of a model that drops entries drops others, in each layer and sequence") {
  nn::ModelConfig config = small_config("softmax", 2);
  config.norm = nn::Norm::pre;
  const nn::Model model(config, DType::f64, Device::cpu, 3);
  nn::ModelInput input = make_input({16, 16}, 16, DType::f64, 2);
  input.ids[1] = input.ids[0];
  // After the look-up a place adds what it keeps to x: which entries of x does it leave?
  std::vector<std::vector<bool>> dropped;
  std::vector<double> before;
  Tape tape;
  tape.observe([&](const TapeEvent& event) {
    const std::string op = event.op;
    const bool first = op == "look_up";
    if (!first && op != "merge_heads" && op != "mlp") return;
    const std::vector<double> x = event.tensor.to_vector();
    if (first) before.assign(x.size(), 0);
    dropped.emplace_back();
    for (std::size_t i = 0; i < x.size(); ++i) dropped.back().push_back(x[i] == before[i]);
    before = x;
  });
  (void)model.logits(tape, input, training_step());
  REQUIRE(dropped.size() == 10);  // two sequences, each a look-up and two layers of two places
  for (const std::vector<bool>& places : dropped) {
    CHECK(std::count(places.begin(), places.end(), true) > 0);
    CHECK(std::count(dropped.begin(), dropped.end(), places) == 1);
  }
}

TEST_CASE("an MLP drops hidden channels by other numbers than what it adds") {
  nn::ModelConfig config = small_config("softmax");
  config.ff_width = config.width;
  config.layers = 1;
  config.dropout = 0.5;
  nn::Model model(config, DType::f64, Device::cpu, 3);
  model.parameters().values().fill(0);
  model.parameters().find("model.transformer_0.mlpblock.0.bias")->value.fill(1);
  Tensor& out = model.parameters().find("model.transformer_0.mlpblock.3.weight")->value;
  for (std::int64_t i = 0; i < config.width; ++i) out[i].slice(i, i + 1).fill(1);
  // Each channel is dropped twice, from what is one number everywhere.
  double kept = 0, all = 0;
  Tape tape;
  tape.observe([&](const TapeEvent& event) {
    if (std::string(event.op) != "mlp") return;
    for (const double x : event.tensor.to_vector()) kept += x != 0;
    all += static_cast<double>(event.tensor.numel());
  });
  (void)model.logits(tape, make_input(std::vector<std::int64_t>(20, 16), 16, DType::f64),
                     training_step());
  REQUIRE(all == 20 * 16 * 8);
  CHECK(kept / all == doctest::Approx(0.25).epsilon(0.1));  // standard error: 0.009
}

TEST_CASE("each text of a pair has the budget of its own batch of texts") {
  nn::ModelConfig config = small_config("skein_uniform", 2);
  const nn::Model model(config, DType::f64, Device::cpu, 3);
  const nn::ModelInput input = make_input({16, 16}, 16, DType::f64, 2);
  nn::StepContext step = training_step();
  step.fewest_tokens[0] = Tensor::full({1}, 2, DType::i32, Device::cpu);
  step.fewest_tokens[1] = Tensor::full({1}, 9, DType::i32, Device::cpu);
  const std::vector<double> both = logits_of(model, input, step);
  step.fewest_tokens[1] = step.fewest_tokens[0];
  CHECK(logits_of(model, input, step) != both);
}

TEST_CASE("the same text twice in a batch has the same answer, though training draws for each") {
  const nn::Model model(small_config("skyformer"), DType::f64, Device::cpu, 3);
  nn::ModelInput input = make_input({13, 13}, 16, DType::f64);
  const std::vector<double> both = input.ids[0].to_vector();
  std::vector<std::int32_t> ids(both.begin(), both.begin() + 16);
  ids.insert(ids.end(), both.begin(), both.begin() + 16);
  input.ids[0] = Tensor::from(ids, {2, 16}, DType::i32, Device::cpu);
  const auto alike = [&](const nn::StepContext& step) {
    const std::vector<double> all = logits_of(model, input, step);  // [2, 3]
    return std::equal(all.begin(), all.begin() + 3, all.begin() + 3);
  };
  CHECK(alike(nn::answer_context(5)));
  CHECK_FALSE(alike(training_step()));
  nn::StepContext of_batch = nn::answer_context(5);
  of_batch.alone = false;  // each draws landmarks of its own
  CHECK_FALSE(alike(of_batch));
}

TEST_CASE("each draw of an answer is another one, and that of another seed another again") {
  const nn::Model model(small_config("skyformer"), DType::f64, Device::cpu, 3);
  const nn::ModelInput input = make_input({13}, 16, DType::f64);
  std::vector<std::vector<double>> said;
  for (const std::uint64_t seed : {5, 6}) {
    for (const std::int64_t draw : {0, 1, 2, 3, 7}) {
      said.push_back(logits_of(model, input, nn::answer_context(seed, draw)));
      CHECK(logits_of(model, input, nn::answer_context(seed, draw)) == said.back());
      CHECK(std::count(said.begin(), said.end(), said.back()) == 1);
    }
  }
}

TEST_CASE("the whole model's gradients pass gradcheck, of one sequence and of a dual encoder") {
  for (const int sequences : {1, 2}) {
    for (const char* attention :
         {"softmax", "kernelized", "skyformer", "vmean", "linformer", "synthesizer", "luna"}) {
      CAPTURE(attention);
      CAPTURE(sequences);
      nn::Model model(small_config(attention, sequences), DType::f64, Device::cpu, 3);
      const nn::ModelInput input = make_input({13, 9}, 16, DType::f64, sequences);
      const Tensor labels =
          Tensor::from(std::vector<std::int32_t>{2, 0}, {2}, DType::i32, Device::cpu);
      const GradcheckReport report = test::gradcheck_model(model, [&](Tape& tape) {
        return cross_entropy(model.logits(tape, input, training_step()), labels);
      });
      CHECK_MESSAGE(report.passed, report.to_string());
    }
  }
}

TEST_CASE("a few steps of AdamW lower the loss") {
  nn::Model model(small_config("softmax"), DType::f32, Device::cpu, 3);
  const nn::ModelInput input = make_input({13, 9}, 16, DType::f32);
  const Tensor labels = Tensor::from(std::vector<std::int32_t>{2, 0}, {2}, DType::i32, Device::cpu);
  constexpr int kSteps = 40;
  nn::AdamW optimizer(model.parameters(), {}, {1e-2, kSteps, 2});
  double first = 0, last = 0;
  for (int step = 0; step < kSteps; ++step) {
    model.parameters().zero_gradients();
    Tape tape;
    nn::StepContext context;  // no dropout
    const Var loss = cross_entropy(model.logits(tape, input, context), labels);
    last = loss.value().item();
    if (step == 0) first = last;
    tape.backward(loss);
    optimizer.step();
  }
  CHECK(last < 0.5 * first);
}

TEST_CASE("an evaluation holds the values of one layer, however many there are") {
  const nn::ModelInput input = make_input({24, 24}, 24, DType::f32);
  const auto peak_of = [&](const std::string& attention, int layers) {
    nn::ModelConfig config = small_config(attention);
    config.layers = layers;
    const nn::Model model(config, DType::f32, Device::cpu, 1);
    const nn::StepContext step = nn::answer_context(1);
    reset_peak_bytes(Device::cpu);
    const std::int64_t before = memory_stats(Device::cpu).live_bytes;
    (void)logits_of(model, input, step);
    return memory_stats(Device::cpu).peak_bytes - before;
  };
  for (const char* attention : {"softmax", "luna"}) {  // luna hands a state to the next layer
    CAPTURE(attention);
    CHECK(peak_of(attention, 12) == peak_of(attention, 3));
  }
}

TEST_CASE("a model refuses sizes that none has, by their name") {
  const auto refuses = [](const char* what, auto change) {
    nn::ModelConfig config = small_config("softmax");
    config.head_width = 0;
    change(config);
    CHECK_THROWS_WITH_AS(nn::Model(config, DType::f32, Device::cpu, 1), what, Error);
  };
  refuses("model: heads must be at least 1, got 0", [](auto& c) { c.heads = 0; });
  refuses("model: layers must be at least 1, got -1", [](auto& c) { c.layers = -1; });
  refuses("model: vocabulary must be at least 1, got 0", [](auto& c) { c.vocabulary = 0; });
  refuses("model: nominal_length must be at least 1, got 0", [](auto& c) { c.nominal_length = 0; });
  refuses("model: classes must be at least 1, got 0", [](auto& c) { c.classes = 0; });
  refuses("model: sequences must be 1 or 2, got 3", [](auto& c) { c.sequences = 3; });
  refuses("model: head_width must not be negative, got -4", [](auto& c) { c.head_width = -4; });
  refuses("model: width must be a multiple of heads = 3, got 8", [](auto& c) { c.heads = 3; });
  refuses("model: expected class_weights for 3 classes, got 2", [](auto& c) {
    c.class_weights = {1, 2};
  });
}

TEST_CASE("a model refuses ids that are none, texts that it lacks and draws for other layers") {
  const nn::Model model(small_config("softmax"), DType::f32, Device::cpu, 1);
  const nn::ModelInput good = make_input({24, 24}, 24, DType::f32);
  const auto refuses = [&](const char* what, const Tensor& ids, int sequence, std::size_t draws) {
    nn::ModelInput input = good;
    input.ids[0] = ids;
    nn::StepContext step;
    step.injected.resize(draws);
    Tape tape;
    CHECK_THROWS_WITH_AS((void)model.encode(tape, input, sequence, step), what, Error);
  };
  const Tensor& ids = good.ids[0];
  refuses("model: expected ids i32[B, N] of sequence 0, got undefined tensor", {}, 0, 0);
  refuses("model: expected ids i32[B, N] of sequence 0, got i32[48]@cpu", ids.reshape({48}), 0, 0);
  refuses("model: sequence 1 of 1", ids, 1, 0);
  refuses("model: sequence -1 of 1", ids, -1, 0);
  refuses("model: expected injected draws for 2 layers, got 1", ids, 0, 1);
}
