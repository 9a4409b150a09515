#include <fmt/format.h>

#include <array>
#include <vector>

#include "attention/registry.hpp"
#include "autograd/ops.hpp"
#include "nn/model.hpp"
#include "nn/optimizer.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "train/lab/goldens/golden_case.hpp"

namespace skytape {
namespace {

constexpr int kSteps = 3;  // training steps of a case

struct Setting {
  nn::ModelConfig model;
  nn::AdamWConfig adamw;
  nn::Schedule schedule;
  std::int64_t microbatches = 1;  // of a batch (gradient accumulation)
};

/// The model's own options are taken out of the case's; the rest are the attention method's.
Setting read_setting(const GoldenCase& c) {
  attention::OptionValues options = c.options;
  const auto take = [&](const std::string& key) {
    const auto found = options.find(key);
    if (found == options.end()) {
      throw DataError("goldens: model case without option '" + key + "'");
    }
    return options.extract(found).mapped();
  };
  const auto real = [&](const std::string& key) { return std::stod(take(key)); };
  const auto integer = [&](const std::string& key) -> std::int64_t {
    return std::stoll(take(key));
  };
  Setting s;
  s.model.attention = take("attention");
  s.model.vocabulary = integer("vocabulary");
  s.model.classes = integer("classes");
  s.model.nominal_length = integer("nominal_length");
  s.model.sequences = take("two_towers") == "1" ? 2 : 1;
  s.model.layers = static_cast<int>(integer("layers"));
  s.model.width = integer("width");
  s.model.ff_width = integer("ff_width");
  s.model.heads = integer("heads");
  s.model.head_width = integer("head_width");
  s.model.dropout = real("dropout");
  s.schedule = {real("lr"), integer("schedule_steps"), integer("warmup")};
  s.adamw.weight_decay = real("weight_decay");
  s.adamw.clip_value = real("clip_value");
  s.microbatches = integer("accumulate");
  (void)take("batch");
  const std::string mask = take("mask");
  ENSURE(mask == "nonzero", "goldens: model case with mask rule '", mask, "', expected nonzero");
  // No dropout of attention weights is given for all methods, also for those that have none.
  const auto dropout = options.find("attention_dropout");
  if (dropout != options.end() && std::stod(dropout->second) == 0 &&
      !attention::find(s.model.attention).has_option("attention_dropout")) {
    options.erase(dropout);
  }
  s.model.attention_options = options;
  return s;
}

/// Examples [begin, end) of step `step`, with mask = (id != 0).
nn::ModelInput read_input(const GoldenCase& c, int sequences, int step, std::int64_t begin,
                          std::int64_t end, DType dtype, Device device) {
  nn::ModelInput input;
  for (int t = 0; t < sequences; ++t) {
    const auto sequence = static_cast<std::size_t>(t);
    const Tensor ids =
        c.get(fmt::format("input_ids_{}_step{}", t, step)).tensor(DType::i32);  // [B, N]
    input.ids[sequence] = ids.slice(begin, end).clone().to(device);
    std::vector<double> mask;
    for (const double id : input.ids[sequence].to_vector()) mask.push_back(id != 0 ? 1 : 0);
    input.mask[sequence] = Tensor::from(mask, input.ids[sequence].shape(), dtype, device);
  }
  return input;
}

/// One training step with accumulation; checks the microbatches' logits and returns the loss.
double run_step(const GoldenCase& c, const Setting& setting, nn::Model& model, int step,
                Comparison& comparison) {
  const DType dtype = model.parameters().values().dtype();
  const Device device = model.parameters().values().device();
  const Tensor labels =
      c.get(fmt::format("label_step{}", step)).tensor(DType::i32).to(device);  // [B]
  const std::int64_t size = labels.size(0) / setting.microbatches;
  double loss_sum = 0;
  model.parameters().zero_gradients();
  for (std::int64_t microbatch = 0; microbatch < setting.microbatches; ++microbatch) {
    const std::int64_t begin = microbatch * size, end = begin + size;
    nn::StepContext context;  // dropout is 0 in all cases
    context.first_example = begin;
    for (int layer = 0; layer < setting.model.layers; ++layer) {
      attention::Draws draws;
      const std::string landmarks = fmt::format("rand_landmarks_step{}_layer{}", step, layer);
      if (c.has(landmarks)) {
        draws.set("landmarks", c.get(landmarks).tensor(DType::i32).slice(begin, end).to(device));
      }
      context.injected.push_back(std::move(draws));
    }
    const nn::ModelInput input =
        read_input(c, setting.model.sequences, step, begin, end, dtype, device);
    Tape tape;
    const Var logits = model.logits(tape, input, context);  // [B, C]
    const std::string name = fmt::format("logits_step{}", step);
    comparison.check(setting.microbatches == 1 ? name : fmt::format("{}_chunk{}", name, microbatch),
                     logits.value());
    const Var loss =
        affine(cross_entropy(logits, labels.slice(begin, end)), 1.0 / setting.microbatches);
    loss_sum += loss.value().item();
    tape.backward(loss);
  }
  return loss_sum;
}

}  // namespace

void run_golden_model(const GoldenCase& c, DType dtype, Device device, Comparison& comparison) {
  const Setting setting = read_setting(c);
  nn::Model model(setting.model, dtype, device, 1);
  for (Parameter& p : model.parameters().parameters()) {
    p.value.copy_from(c.get("param." + p.name).tensor(dtype).to(device));
  }
  nn::AdamW optimizer(model.parameters(), setting.adamw, setting.schedule);

  std::vector<double> losses, rates, momenta;
  for (int step = 0; step < kSteps; ++step) {
    rates.push_back(setting.schedule.lr(step));
    momenta.push_back(setting.schedule.beta1(step));
    losses.push_back(run_step(c, setting, model, step, comparison));
    if (step == 0) {
      for (const Parameter& p : model.parameters().parameters()) {
        comparison.check("grad." + p.name, p.grad);
      }
    }
    optimizer.step();
  }
  rates.push_back(setting.schedule.lr(kSteps));
  momenta.push_back(setting.schedule.beta1(kSteps));
  comparison.check("loss", losses);
  comparison.check("lr", rates);
  comparison.check("beta1", momenta);
  for (const Parameter& p : model.parameters().parameters()) {
    // Shift invariance of softmax makes these gradients rounding noise, which AdamW amplifies.
    const bool noise = setting.model.attention == "softmax" && p.name.ends_with("W_k.bias");
    if (noise && dtype == DType::f32) continue;
    comparison.check("after3." + p.name, p.value);
  }
}

}  // namespace skytape
