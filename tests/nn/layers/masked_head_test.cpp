// Masked-token prediction: the head, and the loss of a model over parts of a batch.
#include "nn/layers/masked_head.hpp"

#include <cmath>
#include <utility>

#include "autograd/gradcheck.hpp"
#include "autograd/initial_values.hpp"
#include "nn/model.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/random/random.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/doctest.hpp"
#include "tests/support/model_gradcheck.hpp"
#include "tests/support/numbers.hpp"

using namespace skytape;
using test::integers;

namespace {

constexpr std::int64_t kWidth = 6, kIds = 5;

/// A head with its table of embeddings, and encodings x [2, 4, E].
struct Fixture {
  ParameterStore store;
  Parameter& table;
  nn::MaskedHead head;
  Tensor x, at, ids;

  explicit Fixture(bool pixels, DType dtype = DType::f64, Device device = Device::cpu)
      : table(store.add("table", {pixels ? 256 : kIds, kWidth}, normal_init(1))),
        head(store, kWidth, kIds, pixels) {
    store.pack(dtype, device, 5);
    x = tensor::normal({2, 4, kWidth}, Random{6, {}}, DType::f64, Device::cpu).to(dtype).to(device);
    at = integers({3, 0, 1, 1}, {2, 2}).to(device);
    ids = integers(pixels ? std::vector<std::int32_t>{250, 3, 0, 128}
                          : std::vector<std::int32_t>{4, 3, 0, 2},
                   {2, 2})
              .to(device);
  }
  [[nodiscard]] nn::MaskedHead::Answers answers(Tape& tape) const {
    return head(tape.input(x), table, at, ids);
  }
};

nn::ModelConfig masked_model() {
  nn::ModelConfig config;
  config.attention = "softmax";
  config.vocabulary = 16;
  config.nominal_length = 8;
  config.width = 8;
  config.ff_width = 8;
  config.heads = 2;
  config.head_width = 4;
  config.dropout = 0;
  config.objective = nn::Objective::predict_masked;
  return config;
}

}  // namespace

TEST_CASE("the masked head passes gradcheck for ids and for pixels") {
  for (const bool pixels : {false, true}) {
    CAPTURE(pixels);
    Fixture f(pixels);
    std::vector<Parameter*> parameters;
    for (Parameter& p : f.store.parameters()) {
      if (p.trainable && !(pixels && p.name == "table")) parameters.push_back(&p);
    }
    const GradcheckReport report = gradcheck(
        [&](Tape&, std::span<const Var> v) { return f.head(v[0], f.table, f.at, f.ids).losses; },
        {f.x}, {}, {"x"}, parameters);
    CHECK_MESSAGE(report.passed, report.to_string());
  }
}

TEST_CASE("the masked loss of a whole model passes gradcheck: its table is read twice") {
  for (const bool pixels : {false, true}) {
    CAPTURE(pixels);
    nn::ModelConfig config = masked_model();
    config.pixels = pixels;
    config.sequences = pixels ? 1 : 2;
    nn::Model model(config, DType::f64, Device::cpu, 3);
    nn::ModelInput input;
    nn::MaskedTargets targets;
    for (std::size_t t = 0; t < static_cast<std::size_t>(config.sequences); ++t) {
      input.ids[t] = integers({1, 2, 15, 4, 5, 6, 15, 8, 9, 1, 15, 3, 0, 0, 0, 0}, {2, 8});
      input.mask[t] = Tensor::full({2, 8}, 1, DType::f64, Device::cpu);
      for (int j = 12; j < 16; ++j) input.mask[t].data<double>()[j] = 0;
      targets.at[t] = integers({2, 6, 2, 0}, {2, 2});
      targets.ids[t] = integers({3, 7, 2, 0}, {2, 2});
      targets.weight[t] = Tensor::full({2, 2}, 1.0 / 3, DType::f64, Device::cpu);
      targets.weight[t].data<double>()[3] = 0;  // the second sequence has one target
    }
    const GradcheckReport report = test::gradcheck_model(
        model, [&](Tape& tape) { return model.masked_loss(tape, input, targets, {}).loss; });
    CHECK_MESSAGE(report.passed, report.to_string());
  }
}

TEST_CASE("the masked head gives on every device what it gives in f64 on the CPU") {
  for (const bool pixels : {false, true}) {
    CAPTURE(pixels);
    Fixture exact(pixels);
    Tape tape(Tape::Mode::eval);
    const auto expected = exact.answers(tape);
    const std::vector<double> losses = expected.losses.value().to_vector();
    test::for_each_device([&](Device device) {
      Fixture f(pixels, DType::f32, device);
      Tape own(Tape::Mode::eval);
      const auto answers = f.answers(own);
      CHECK(answers.correct.to_vector() == expected.correct.to_vector());
      const std::vector<double> found = answers.losses.value().to_vector();
      for (std::size_t i = 0; i < losses.size(); ++i) {
        CHECK(found[i] == doctest::Approx(losses[i]).epsilon(1e-5));
      }
    });
  }
}

TEST_CASE("the masked head knows what is right, and reads hidden places alone") {
  Fixture f(false);
  Tape tape(Tape::Mode::eval);
  const auto before = f.answers(tape);
  const std::vector<double> losses = before.losses.value().to_vector();
  const std::vector<double> correct = before.correct.to_vector();
  REQUIRE(losses.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(losses[i] > 0);
    if (losses[i] > std::log(2.0)) continue;  // more than half of the probability: the largest
    CHECK(correct[i] == 1);
  }
  for (const std::int64_t row : {2, 4, 6, 7}) {  // of the 2 x 4 rows, those that no place names
    for (std::int64_t e = 0; e < kWidth; ++e) f.x.data<double>()[row * kWidth + e] += 1;
  }
  Tape again(Tape::Mode::eval);
  CHECK(f.answers(again).losses.value().to_vector() == losses);
}

TEST_CASE("a pixel is right within half an intensity") {
  Fixture f(true);
  for (Parameter& p : f.store.parameters()) {
    if (p.name == "masked_head.weight") p.value.fill(0);
  }
  Parameter& bias = *f.store.find("masked_head.bias");
  for (const double grey : {126.9, 127.4, 127.6, 128.4, 128.6, 129.1}) {  // the truth is 128
    CAPTURE(grey);
    bias.value.fill(grey / 255);
    Tape tape(Tape::Mode::eval);
    const auto answers = f.answers(tape);
    const double right = std::abs(grey - 128) < 0.5 ? 1 : 0;
    CHECK(answers.correct.to_vector() == std::vector<double>{0, 0, 0, right});
    CHECK(answers.losses.value().to_vector()[0] == doctest::Approx((250 - grey) / 255));
  }
}

TEST_CASE("a model's masked loss is the sum over its places, and weights of 0 count for nothing") {
  nn::ModelConfig config = masked_model();
  config.sequences = 2;
  nn::Model model(config, DType::f64, Device::cpu, 3);
  nn::ModelInput input;
  nn::MaskedTargets targets;
  for (const std::size_t t : {0, 1}) {
    input.ids[t] = integers({1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 0, 0, 0, 0}, {2, 8});
    input.mask[t] = Tensor::full({2, 8}, 1, DType::f64, Device::cpu);
  }
  targets.at = {integers({1, 5, 2, 0}, {2, 2}), integers({7, 3, 0, 2}, {2, 2})};
  targets.ids = {integers({2, 6, 2, 9}, {2, 2}), integers({8, 4, 9, 2}, {2, 2})};
  using Weights = std::vector<double>;
  const auto score = [&](const Weights& first, const Weights& second) {
    targets.weight = {Tensor::from(first, {2, 2}, DType::f64, Device::cpu),
                      Tensor::from(second, {2, 2}, DType::f64, Device::cpu)};
    Tape tape(Tape::Mode::eval);
    const nn::Scored scored = model.masked_loss(tape, input, targets, {});
    return std::pair(scored.loss.value().item(), scored.correct.item());
  };
  const Weights none(4), all = {0.25, 0.125, 0.5, 0.375};
  const double whole = score(all, all).first;
  CHECK(score({0.25, 0, 0.5, 0}, none).first + score({0, 0.125, 0, 0.375}, all).first ==
        doctest::Approx(whole).epsilon(1e-12));
  CHECK(score(all, none).first > 0);
  CHECK(score(none, none).first == 0);

  double right = 0;  // of all ids, one at each place
  for (std::int32_t id = 0; id < config.token_rows(); ++id) {
    for (Tensor& ids : targets.ids) ids.fill(id);
    right += score(all, all).second;
  }
  CHECK(right == 2.5);
}

TEST_CASE("a model predicts hidden tokens or classes, and says which") {
  nn::Model model(masked_model(), DType::f32, Device::cpu, 3);
  Tape tape;
  CHECK_THROWS_WITH_AS((void)model.logits(tape, {}, {}), doctest::Contains("no classes"), Error);
  CHECK(model.parameters().find("seq_classifer.mlpblock.0.weight") == nullptr);
  CHECK(model.parameters().find("masked_head.dense.weight") != nullptr);
}
