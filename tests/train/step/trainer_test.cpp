#include "train/step/trainer.hpp"

#include <cmath>

#include "data/tokenise.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"
#include "train/formats/safetensors.hpp"
#include "train/run/checkpoint.hpp"
#include "train/step/evaluate.hpp"

using namespace skytape;
using namespace skytape::train;
using data::Tokens;
using data::synthetic::error_of;
using data::synthetic::Folder;

namespace {

nn::ModelConfig small_model(const std::string& attention, double dropout) {
  nn::ModelConfig config;
  config.attention = attention;
  if (attention == "softmax") {
    config.attention_options["attention_dropout"] = std::to_string(dropout);
  } else {
    config.attention_options["features"] = "8";
  }
  config.vocabulary = 16;
  config.classes = 2;
  config.nominal_length = 32;
  config.width = 8;
  config.ff_width = 12;
  config.head_width = 4;
  config.dropout = dropout;
  return config;
}

data::Batch make_batch(const std::vector<int>& lengths, int first_token = -1) {
  std::vector<Tokens> examples;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    std::vector<std::int32_t> ids;
    for (int j = 0; j < lengths[i]; ++j) {
      ids.push_back(1 + (5 * static_cast<int>(i) + 3 * j) % 15);
    }
    examples.push_back({ids});
  }
  data::BatchOptions options;
  options.nominal_length = 32;
  options.first_token = first_token;
  data::Batch batch = pad(examples, options);
  for (std::size_t i = 0; i < lengths.size(); ++i) batch.labels[i] = static_cast<int>(i) % 2;
  return batch;
}

std::vector<double> gradients_after_step(const MicrobatchLimits& limits, const data::Batch& batch,
                                         const nn::ModelConfig& config = small_model("softmax",
                                                                                     0.1)) {
  nn::Model model(config, DType::f32, Device::cpu, 3);
  Trainer trainer(model, {}, {1e-3, 10, 2}, 3, limits);
  trainer.step(batch);
  return model.parameters().gradients().to_vector();
}

}  // namespace

TEST_CASE("accumulating microbatches gives the gradient of the large batch, dropout included") {
  const data::Batch batch = make_batch({20, 7, 32, 11, 5, 9, 14});
  const std::vector<double> whole = gradients_after_step({}, batch);
  double norm = 0;
  for (const double g : whole) norm += g * g;
  REQUIRE(norm > 1e-4);
  // 2 and 3 split seven examples unevenly; 40 positions hold one long or several short ones.
  for (const MicrobatchLimits limits : {MicrobatchLimits{2}, {3}, {7}, {1, 40}, {2, 40}, {1, 1}}) {
    const std::vector<double> parts = gradients_after_step(limits, batch);
    double difference = 0;
    for (std::size_t i = 0; i < whole.size(); ++i) {
      difference += (whole[i] - parts[i]) * (whole[i] - parts[i]);
    }
    CAPTURE(limits.accumulate);
    CAPTURE(limits.positions);
    CHECK(std::sqrt(difference / norm) < 1e-5);
  }
}

TEST_CASE("microbatches of every pooling, rotary positions and smoothed labels make up the batch") {
  for (const nn::Pooling pooling : {nn::Pooling::nominal, nn::Pooling::mean, nn::Pooling::first,
                                    nn::Pooling::cls, nn::Pooling::max, nn::Pooling::attention}) {
    CAPTURE(static_cast<int>(pooling));
    nn::ModelConfig config = small_model("softmax", 0.1);
    config.pooling = pooling;
    config.positions = nn::Positions::rotary;
    config.label_smoothing = 0.2;
    const bool token = pooling == nn::Pooling::cls;
    data::Batch batch = make_batch({20, 7, 32, 11, 5, 9, 14}, token ? 16 : -1);
    const std::vector<double> whole = gradients_after_step({}, batch, config);
    batch.round_to = 8;  // parts as narrow as their longest sequence
    double norm = 0;
    for (const double g : whole) norm += g * g;
    REQUIRE(norm > 1e-4);
    for (const MicrobatchLimits limits : {MicrobatchLimits{2}, {1, 40}}) {
      const std::vector<double> parts = gradients_after_step(limits, batch, config);
      double difference = 0;
      for (std::size_t i = 0; i < whole.size(); ++i) {
        difference += (whole[i] - parts[i]) * (whole[i] - parts[i]);
      }
      CHECK(std::sqrt(difference / norm) < 1e-5);
    }
  }
}

TEST_CASE("microbatches hold each example once, sorted by length, as narrow as their longest") {
  data::Batch batch = make_batch({20, 7, 32, 11, 5, 9, 14});
  batch.round_to = 8;
  const std::vector<Microbatch> microbatches = microbatches_of(batch, {1, 48});
  std::vector<std::int64_t> rows, widths;
  for (const Microbatch& microbatch : microbatches) {
    CHECK(microbatch.first == std::ssize(rows));
    if (microbatch.rows.size() > 1) {
      CHECK(std::ssize(microbatch.rows) * microbatch.width <= 48);
    }
    rows.insert(rows.end(), microbatch.rows.begin(), microbatch.rows.end());
    widths.push_back(microbatch.width);
  }
  CHECK(rows == std::vector<std::int64_t>{2, 0, 6, 3, 5, 1, 4});
  CHECK(widths == std::vector<std::int64_t>{32, 24, 16, 8});
  CHECK(microbatches_of(batch, {3}).size() == 3);
  CHECK(microbatches_of(batch, {}).size() == 1);
  batch.round_to = 0;  // not trimmed
  CHECK(microbatches_of(batch, {1, 48}).size() == 7);
  CHECK_THROWS_AS((void)microbatches_of(batch, {8}), Error);

  const DeviceBatch on_device = upload(batch, {{6, 4}, 0, 16}, Device::cpu);
  CHECK(on_device.input.mask[0].shape() == Shape{2, 16});
  double tokens = 0;
  for (const double one : on_device.input.mask[0].to_vector()) tokens += one;
  CHECK(tokens == 19);
  CHECK(on_device.input.ids[0].to_vector()[16] == 6);  // first token of example 4
}

TEST_CASE("training lowers the loss and the metrics are means since the last reading") {
  const data::Batch batch = make_batch({20, 7, 32, 11});
  nn::Model model(small_model("skyformer", 0), DType::f32, Device::cpu, 5);
  Trainer trainer(model, {}, {3e-3, 60, 4}, 5, {2});
  for (int i = 0; i < 5; ++i) trainer.step(batch);
  const TrainMetrics early = trainer.take_metrics();
  for (int i = 0; i < 50; ++i) trainer.step(batch);
  (void)trainer.take_metrics();
  for (int i = 0; i < 5; ++i) trainer.step(batch);
  const TrainMetrics late = trainer.take_metrics();
  CHECK(early.steps == 5);
  CHECK(late.steps == 5);
  CHECK(early.loss > 0.4);
  CHECK(late.loss < 0.5 * early.loss);
  CHECK(late.accuracy == doctest::Approx(1));
}

TEST_CASE("evaluating twice gives the same bits and covers a short last batch") {
  const Folder folder;
  const data::Dataset split =
      data::synthetic::split_of(folder, data::synthetic::sequences_of({20, 31, 5, 9, 14, 30, 2}));
  nn::Model model(small_model("skyformer", 0.1), DType::f32, Device::cpu, 5);
  data::BatchOptions batches;
  batches.batch = 3;
  batches.nominal_length = 32;
  EvaluateOptions options;
  std::int64_t last = 0;
  options.progress = [&](std::int64_t done, std::int64_t) { last = done; };
  const Evaluation once = evaluate(model, split, batches, options);
  const Evaluation again = evaluate(model, split, batches, options);
  CHECK(once.loss == again.loss);
  CHECK(once.examples == 7);
  CHECK(last == 7);
  CHECK(std::isfinite(once.loss));
  options.examples = 4;
  CHECK(evaluate(model, split, batches, options).examples == 4);
  options.stop = [] { return true; };
  CHECK(evaluate(model, split, batches, options).interrupted);
}

TEST_CASE("a checkpoint brings back weights, moments, sums and state") {
  const Folder folder;
  const auto path = folder.path() / "last.safetensors";
  const data::Batch batch = make_batch({20, 7, 32, 11});
  nn::Model model(small_model("softmax", 0.1), DType::f32, Device::cpu, 5);
  Trainer trainer(model, {}, {1e-3, 20, 4}, 5, {});
  for (int i = 0; i < 3; ++i) trainer.step(batch);
  RunState state;
  state.step = 3;
  state.cursor = {2, 17};
  state.best_metric = 0.1 + 0.2;  // must come back bit for bit
  save_checkpoint(path, model, trainer, state, {{"seed", 5}});

  nn::Model other(small_model("softmax", 0.1), DType::f32, Device::cpu, 6);
  Trainer second(other, {}, {1e-3, 20, 4}, 5, {});
  const SafetensorsFile file = read_safetensors(path);
  const CheckpointFacts facts = read_facts(file, path);
  CHECK(facts.state.cursor == state.cursor);
  CHECK(facts.state.best_metric == state.best_metric);
  load_training(file, path, other, second);
  trainer.step(batch);
  second.step(batch);
  CHECK(model.parameters().values().to_vector() == other.parameters().values().to_vector());
  CHECK(trainer.take_metrics().loss == second.take_metrics().loss);
}

TEST_CASE("a state that its run cannot reach is refused by file, key, range and value") {
  const Folder folder;
  const auto path = folder.path() / "last.safetensors";
  nn::Model model(small_model("softmax", 0), DType::f32, Device::cpu, 5);
  Trainer trainer(model, {}, {1e-3, 20, 4}, 5, {});
  RunState state;
  state.step = 15;
  state.cursor = {6, 3};
  state.best_step = state.evaluated = 10;
  save_checkpoint(path, model, trainer, state,
                  {{"settings", {{"steps", {{"value", "20"}}}, {"batch", {{"value", "3"}}}}},
                   {"data", {{"train", {{"examples", 7}}}}}});
  const SafetensorsFile good = read_safetensors(path);
  CHECK(read_facts(good, path).state.best_step == 10);
  const auto refusal = [&](const char* key, const data::Json& value) {
    SafetensorsFile file = good;
    data::Json said = data::parse_json(good.metadata.at("skytape.state"));
    said[key] = value;
    file.metadata["skytape.state"] = data::json_text(said);
    std::string text = error_of<DataError>([&] { (void)read_facts(file, path); });
    const std::string front = path.string() + ": skytape.state: " + key + ": expected ";
    return text.starts_with(front) ? text.substr(front.size()) : text;
  };
  CHECK(refusal("step", 20) == "");
  CHECK(refusal("peak_bytes", -1) == "a natural number, got -1");
  CHECK(refusal("step", 21) == "a number in 0..20, got 21");
  CHECK(refusal("step", -1) == "a natural number, got -1");
  CHECK(refusal("step", 1.5) == "a natural number, got 1.5");
  CHECK(refusal("epoch", 7) == "a number in 0..6, got 7");
  CHECK(refusal("position", 7) == "a number in 0..6, got 7");
  CHECK(refusal("best_step", -2) == "a number in -1..15, got -2");
  for (const char* key : {"evaluated", "best_step", "stale", "summed_steps"}) {
    CAPTURE(key);
    CHECK(refusal(key, 16).ends_with("..15, got 16"));
  }
  CHECK(refusal("selecting", 3) == "true or false, got 3");
  CHECK(refusal("train_seconds", -0.5) == "a number of 0 or more, got -0.5");
}

TEST_CASE("weights that are not finite are never written over good ones") {
  const Folder folder;
  const auto path = folder.path() / "last.safetensors";
  nn::Model model(small_model("softmax", 0), DType::f32, Device::cpu, 5);
  Trainer trainer(model, {}, {1e-3, 20, 4}, 5, {});
  save_checkpoint(path, model, trainer, {}, {});
  const std::string before = data::synthetic::read_file(path);
  model.parameters().parameters().front().value.fill(std::nan(""));
  CHECK(error_of<NonFiniteError>([&] {
          save_checkpoint(path, model, trainer, {}, {});
        }).find("not finite") != std::string::npos);
  CHECK(data::synthetic::read_file(path) == before);
}

TEST_CASE("weights of another model are refused by the tensor's name") {
  const Folder folder;
  const auto path = folder.path() / "w.safetensors";
  nn::Model model(small_model("softmax", 0), DType::f32, Device::cpu, 5);
  std::vector<NamedTensor> tensors;
  for (const Parameter& p : model.parameters().parameters()) tensors.emplace_back(p.name, p.value);
  const auto refusal = [&](const std::vector<NamedTensor>& changed) {
    write_safetensors(path, changed, {});
    return error_of<DataError>([&] { load_weights(read_safetensors(path), path, model); });
  };
  CHECK(refusal(tensors) == "");
  std::vector<NamedTensor> whole_numbers = tensors;
  whole_numbers[3].second = whole_numbers[3].second.to(DType::i32);
  CHECK(refusal(whole_numbers).find(tensors[3].first + " is i32") != std::string::npos);
  std::vector<NamedTensor> missing(tensors.begin() + 1, tensors.end());
  CHECK(refusal(missing).find("no tensor " + tensors.front().first) != std::string::npos);
  std::vector<NamedTensor> extra = tensors;
  extra.emplace_back("stranger", Tensor::zeros({1}, DType::f32, Device::cpu));
  CHECK(refusal(extra).find("stranger") != std::string::npos);
  std::vector<NamedTensor> reshaped = tensors;
  reshaped.front().second = Tensor::zeros({3}, DType::f32, Device::cpu);
  CHECK(refusal(reshaped).find("expected f32[") != std::string::npos);
}

TEST_CASE("lines become tokens by the task's rules") {
  const data::TaskInfo& listops = data::find_task("listops");
  CHECK(tokenise(listops, nullptr, "( ( ( [MAX 2 ) 9 ) ] )", "x:1") == Tokens{{12, 3, 10, 15}});
  CHECK(error_of<DataError>([&] {
          (void)tokenise(listops, nullptr, "[MAX two ]", "x:7");
        }).find("x:7") != std::string::npos);
  CHECK(error_of<DataError>([&] { (void)tokenise(listops, nullptr, "", "x:8"); }).find("empty") !=
        std::string::npos);
  data::TaskInfo bytes = listops;
  bytes.name = "letters";
  bytes.tokens = data::TokenKind::bytes;
  bytes.token_offset = 1;
  CHECK(tokenise(bytes, nullptr, "AB", "x:1") == Tokens{{66, 67}});
  bytes.sequences = 2;
  CHECK(tokenise(bytes, nullptr, "A\tB", "x:1") == Tokens{{66}, {67}});
  CHECK(error_of<DataError>([&] { (void)tokenise(bytes, nullptr, "AB", "x:1"); }).find("tab") !=
        std::string::npos);
  data::TaskInfo pixels = listops;
  pixels.name = "grey";
  pixels.tokens = data::TokenKind::pixels;
  CHECK(tokenise(pixels, nullptr, "0 255 7", "x:1") == Tokens{{0, 255, 7}});
  CHECK(error_of<DataError>([&] { (void)tokenise(pixels, nullptr, "0 256", "x:1"); }).find("256") !=
        std::string::npos);
}
