// A model's answer about an example is the same wherever the example stands.
#include "train/step/evaluate.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "attention/registry.hpp"
#include "data/tokenise.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;
using namespace skytape::train;
using data::synthetic::error_of;
using data::synthetic::Folder;

namespace {

constexpr std::int64_t kLength = 64;
const std::vector<int> kLengths = {20, 31, 5, 9, 64, 14, 30, 2, 47, 8, 33};

/// Kinds of attention with what the papers' code shares among the examples of a batch, too.
std::vector<std::pair<std::string, attention::OptionValues>> methods() {
  std::vector<std::pair<std::string, attention::OptionValues>> all;
  for (const attention::Spec& spec : attention::registry()) {
    attention::OptionValues options;
    if (spec.has_option("features")) options["features"] = "8";
    all.emplace_back(spec.name, options);
    for (const char* key : {"inverse_start", "form", "landmarks"}) {
      if (!spec.has_option(key) || spec.name == "local") continue;
      options[key] = "official";
      all.emplace_back(spec.name, options);
    }
  }
  return all;
}

nn::ModelConfig model_of(const std::string& attention, const attention::OptionValues& options) {
  nn::ModelConfig config;
  config.attention = attention;
  config.attention_options = options;
  config.vocabulary = 18;
  config.classes = 3;
  config.nominal_length = kLength;
  config.width = 8;
  config.ff_width = 12;
  config.head_width = 4;
  config.layers = 2;
  return config;
}

data::BatchOptions batches_of(std::int64_t batch, const nn::ModelConfig& config) {
  data::BatchOptions options;
  options.batch = batch;
  options.nominal_length = kLength;
  options.round_to = 8;
  options.trim = !attention::find(config.attention).reads_padding;
  return options;
}

/// Tokens 1 … 15, others for each example.
std::vector<std::vector<std::uint8_t>> sequences() {
  std::vector<std::vector<std::uint8_t>> all;
  for (std::size_t i = 0; i < kLengths.size(); ++i) {
    all.emplace_back();
    for (int j = 0; j < kLengths[i]; ++j) {
      all.back().push_back(
          static_cast<std::uint8_t>(1 + (5 * static_cast<int>(i) + 3 * j * j) % 15));
    }
  }
  return all;
}

data::Tokens tokens_of(const std::vector<std::uint8_t>& sequence) {
  return {std::vector<std::int32_t>(sequence.begin(), sequence.end())};
}

using Answers = std::vector<std::optional<Answer>>;

/// Answers about all sequences, so many at a time, in this order, each at its own place.
Answers answers_in(const std::vector<std::size_t>& order, std::size_t at_once,
                   const nn::Model& model, EvaluateOptions options = {}) {
  Evaluator evaluator(model);
  const auto all = sequences();
  Answers answers(order.size());
  for (std::size_t begin = 0; begin < order.size(); begin += at_once) {
    const std::size_t end = std::min(order.size(), begin + at_once);
    std::vector<data::Tokens> examples;
    for (std::size_t i = begin; i < end; ++i) examples.push_back(tokens_of(all[order[i]]));
    const auto batch = data::pad(examples, batches_of(8, model.config()));
    const Answers found = evaluator.answers(batch, options);
    for (std::size_t i = begin; i < end; ++i) answers[order[i]] = found[i - begin];
  }
  return answers;
}

std::vector<std::size_t> file_order() {
  std::vector<std::size_t> order(kLengths.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  return order;
}

double largest_difference(const Answers& a, const Answers& b) {
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t c = 0; c < a[i]->log_probabilities.size(); ++c) {
      worst = std::max(worst, std::abs(a[i]->log_probabilities[c] - b[i]->log_probabilities[c]));
    }
  }
  return worst;
}

/// Returns whether all scores are equal but for rounding, 1e-5 of the largest, and so are labels,
/// unless the two best scores are as close as that.
bool equal_but_for_rounding(const Answers& a, const Answers& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::vector<double> scores = a[i]->log_probabilities;
    double largest = 0;
    for (const double score : scores) largest = std::max(largest, std::abs(score));
    const double bound = 1e-5 * largest;
    for (std::size_t c = 0; c < scores.size(); ++c) {
      if (!(std::abs(scores[c] - b[i]->log_probabilities[c]) <= bound)) return false;
    }
    std::sort(scores.rbegin(), scores.rend());
    if (scores[0] - scores[1] > 2 * bound && a[i]->label != b[i]->label) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("what any method says of a text hangs neither on its place nor on its neighbours") {
  for (const auto& [name, values] : methods()) {
    CAPTURE(name);
    CAPTURE(values);
    const nn::ModelConfig config = model_of(name, values);
    const nn::Model model(config, DType::f32, Device::cpu, 3);
    std::vector<std::size_t> backwards = file_order();
    std::reverse(backwards.begin(), backwards.end());
    const Answers whole = answers_in(file_order(), kLengths.size(), model);
    CHECK(equal_but_for_rounding(whole, answers_in(file_order(), 1, model)));
    CHECK(equal_but_for_rounding(whole, answers_in(backwards, 3, model)));
    // The same text everywhere.
    const auto batch =
        data::pad(std::vector<data::Tokens>(8, tokens_of(sequences()[4])), batches_of(8, config));
    Evaluator evaluator(model);
    const Answers answers = evaluator.answers(batch, {});
    CHECK(equal_but_for_rounding(answers, Answers(answers.size(), answers[0])));
  }
}

TEST_CASE("an evaluation is the mean of the answers to its examples, whatever the batches") {
  const Folder folder;
  const data::Dataset split = data::synthetic::split_of(folder, sequences());
  for (const char* name : {"skyformer", "skeinformer", "reformer", "softmax"}) {
    CAPTURE(name);
    const nn::ModelConfig config = model_of(name, {});
    const nn::Model model(config, DType::f32, Device::cpu, 3);
    const Answers answers = answers_in(file_order(), kLengths.size(), model);
    double loss = 0, correct = 0;
    const std::int64_t classes = config.classes;
    std::vector<std::int64_t> confusion(static_cast<std::size_t>(classes * classes));
    for (std::size_t i = 0; i < answers.size(); ++i) {
      const auto label = split.label(static_cast<std::int64_t>(i));
      loss -= answers[i]->log_probabilities[static_cast<std::size_t>(label)];
      correct += answers[i]->label == label;
      ++confusion[static_cast<std::size_t>(label * classes + answers[i]->label)];
    }
    const auto count = static_cast<double>(answers.size());
    for (const std::int64_t batch : {1, 2, 5, 10, 11, 64}) {  // 2, 5 and 10: a last one of one
      CAPTURE(batch);
      const Evaluation e = evaluate(model, split, batches_of(batch, config), {});
      CHECK(e.examples == std::ssize(answers));
      CHECK(e.loss == doctest::Approx(loss / count).epsilon(1e-5));
      CHECK(e.accuracy == doctest::Approx(correct / count));
      CHECK(e.confusion == confusion);
    }
    EvaluateOptions first;
    first.examples = 3;
    const Evaluation part = evaluate(model, split, batches_of(2, config), first);
    loss = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      const auto label = split.label(static_cast<std::int64_t>(i));
      loss -= answers[i]->log_probabilities[static_cast<std::size_t>(label)];
    }
    CHECK(part.loss == doctest::Approx(loss / 3).epsilon(1e-5));
  }
}

TEST_CASE("several draws are averaged, and differ where the method draws") {
  const Folder folder;
  const data::Dataset split = data::synthetic::split_of(folder, sequences());
  EvaluateOptions options;
  options.draws = 4;
  for (const char* name : {"softmax", "skyformer", "skeinformer", "linformer_jlt"}) {
    CAPTURE(name);
    attention::OptionValues values;
    if (attention::find(name).has_option("features")) values["features"] = "4";
    const nn::ModelConfig config = model_of(name, values);
    const nn::Model model(config, DType::f32, Device::cpu, 3);
    const Answers one = answers_in(file_order(), 11, model);
    const Answers four = answers_in(file_order(), 11, model, options);
    const Answers again = answers_in(file_order(), 2, model, options);
    CHECK(largest_difference(four, again) < 1e-4);
    const bool draws = std::string(name) != "softmax";
    CHECK((largest_difference(one, four) > 1e-6) == draws);
    // The first draw is the one that is used alone.
    for (std::size_t i = 0; i < one.size(); ++i) CHECK(four[i]->of_draws[0] == one[i]->label);
    const Evaluation e = evaluate(model, split, batches_of(5, config), options);
    REQUIRE(e.accuracies.size() == 4);
    CHECK(e.accuracies[0] == evaluate(model, split, batches_of(5, config), {}).accuracy);
    if (!draws) CHECK(e.unanimous == 1);
  }
}

TEST_CASE(
    "an answer averages probabilities, not scores, and nothing is left of what is no number") {
  const std::vector<double> scores = {0, std::log(3.0), std::log(9.0), 0};  // 1/4 3/4, 9/10 1/10
  const std::optional<Answer> answer = answer_of(scores, 2);
  REQUIRE(answer.has_value());
  CHECK(std::exp(answer->log_probabilities[0]) == doctest::Approx((0.25 + 0.9) / 2));
  CHECK(answer->label == 0);
  CHECK(answer->of_draws == std::vector<std::int64_t>{1, 0});
  CHECK_FALSE(answer->unanimous());
  CHECK(answer_of(std::vector<double>{2, 2}, 1)->label == 0);
  // Far apart: the loss is a number all the same.
  CHECK(answer_of(std::vector<double>{0, 2000}, 1)->log_probabilities[0] == doctest::Approx(-2000));
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
        -std::numeric_limits<double>::infinity()}) {
    for (const std::size_t place : {0u, 1u, 2u, 3u}) {
      std::vector<double> broken = scores;
      broken[place] = bad;
      CHECK_FALSE(answer_of(broken, 2).has_value());
    }
  }
}

TEST_CASE("an evaluation names the first example whose scores are not finite") {
  const Folder folder;
  auto all = sequences();
  all[6][3] = all[8][0] = 17;  // the token whose embedding is broken below
  const data::Dataset split = data::synthetic::split_of(folder, all);
  for (const char* name : {"softmax", "skyformer"}) {
    const nn::ModelConfig config = model_of(name, {});
    nn::Model model(config, DType::f32, Device::cpu, 3);
    Parameter& table = *model.parameters().find("model.embeddings.word_embeddings.weight");
    table.value[17].fill(std::numeric_limits<double>::quiet_NaN());
    EvaluateOptions options;
    options.what = "test";
    for (const std::int64_t batch : {1, 4, 64}) {
      const std::string said = error_of<NonFiniteError>(
          [&] { (void)evaluate(model, split, batches_of(batch, config), options); });
      CAPTURE(said);
      CHECK(said.find("test: example 7") != std::string::npos);
    }
  }
}

TEST_CASE(
    "what is not finite reaches the scores of its example alone, in every method and pooling") {
  const auto check = [](const nn::ModelConfig& config, Device device) {
    nn::Model model(config, DType::f32, device, 3);
    Parameter& table = *model.parameters().find("model.embeddings.word_embeddings.weight");
    table.value[17].fill(std::numeric_limits<double>::quiet_NaN());
    auto all = sequences();
    all[6][13] = 17;
    std::vector<data::Tokens> examples;
    for (const auto& sequence : all) examples.push_back(tokens_of(sequence));
    Evaluator evaluator(model);
    data::BatchOptions options = batches_of(16, config);
    if (config.pooling == nn::Pooling::cls) options.first_token = 0;
    const Answers answers = evaluator.answers(data::pad(examples, options), {});
    for (std::size_t i = 0; i < answers.size(); ++i) {
      CAPTURE(i);
      CHECK(answers[i].has_value() == (i != 6));
    }
  };
  test::for_each_device([&](Device device) {
    for (const auto& [name, values] : methods()) {
      CAPTURE(name);
      CAPTURE(values);
      check(model_of(name, values), device);
    }
    for (const nn::Pooling pooling :
         {nn::Pooling::mean, nn::Pooling::max, nn::Pooling::attention}) {
      CAPTURE(static_cast<int>(pooling));
      nn::ModelConfig config = model_of("softmax", {});
      config.pooling = pooling;
      check(config, device);
    }
  });
}

TEST_CASE("a GPU, replaying or not, says what the CPU says") {
  if (!test::cuda_or_skip()) return;
  const Folder folder;
  const data::Dataset split = data::synthetic::split_of(folder, sequences());
  EvaluateOptions options;
  options.draws = 2;
  for (const char* name :
       {"skyformer", "skeinformer", "reformer", "informer_mask", "linformer_jlt"}) {
    CAPTURE(name);
    attention::OptionValues values;
    if (attention::find(name).has_option("features")) values["features"] = "8";
    const nn::ModelConfig config = model_of(name, values);
    const nn::Model host(config, DType::f32, Device::cpu, 3),
        there(config, DType::f32, Device::cuda, 3);
    const Evaluation expected = evaluate(host, split, batches_of(4, config), options);
    Evaluator evaluator(there);
    for (int pass = 0; pass < 3; ++pass) {
      const Evaluation e = evaluator(split, batches_of(4, config), options);
      CHECK(e.loss == doctest::Approx(expected.loss).epsilon(1e-4));
      CHECK(e.accuracies == expected.accuracies);
    }
    CHECK(evaluator.graphs().counts().replayed > 0);
  }
}
