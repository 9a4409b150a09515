#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "attention/registry.hpp"
#include "autograd/tape_print.hpp"
#include "nn/model.hpp"
#include "tensor/core/error.hpp"
#include "train/cli/cli.hpp"
#include "train/config/run_config.hpp"
#include "train/process/threads.hpp"

namespace skytape::train {
namespace {

struct TapeFlags {
  std::string attention = "skyformer";
  std::int64_t n = 16, batch = 2;
  bool dot = false, merge = false;
};

constexpr std::int64_t kMost = 4096;  // positions, examples
constexpr std::int64_t kFeatures = 4;

/// The model of the papers, small: one layer of two heads, each four wide.
nn::ModelConfig small_model(const TapeFlags& flags) {
  Choices choices;
  choices.attention = flags.attention;
  choices.recipe = "skyformer";
  nn::ModelConfig model = resolve(choices).model;
  model.nominal_length = flags.n;
  model.layers = 1;
  model.width = 8;
  model.ff_width = 16;
  model.heads = 2;
  model.head_width = 4;
  if (attention::find(flags.attention).has_option("features")) {
    model.attention_options["features"] = std::to_string(kFeatures);
  }
  return model;
}

/// Synthetic tokens; the last example is shorter than the others by a quarter.
nn::ModelInput tokens(const TapeFlags& flags, std::int64_t vocabulary) {
  std::vector<std::int32_t> ids;
  std::vector<double> mask;
  for (std::int64_t b = 0; b < flags.batch; ++b) {
    const std::int64_t length = b + 1 < flags.batch ? flags.n : flags.n - flags.n / 4;
    for (std::int64_t i = 0; i < flags.n; ++i) {
      ids.push_back(i < length ? static_cast<std::int32_t>(1 + (b + i) % (vocabulary - 1)) : 0);
      mask.push_back(i < length ? 1 : 0);
    }
  }
  nn::ModelInput input;
  const Shape shape{flags.batch, flags.n};
  input.ids[0] = Tensor::from(ids, shape, DType::i32, Device::cpu);    // [B, N]
  input.mask[0] = Tensor::from(mask, shape, DType::f32, Device::cpu);  // [B, N]
  return input;
}

int run(const TapeFlags& flags) {
  if (flags.merge && !flags.dot) throw UsageError("tape: --merge is for --dot");
  set_threads(1);  // the sizes are too small to share
  const nn::ModelConfig config = small_model(flags);
  const nn::Model model(config, DType::f32, Device::cpu, 1);
  const Tensor labels = Tensor::zeros({flags.batch}, DType::i32, Device::cpu);  // [B]
  nn::StepContext step;
  step.training = true;

  Tape tape;
  const nn::ModelInput input = tokens(flags, config.vocabulary);
  const auto examples = static_cast<double>(flags.batch);
  const Var loss = model.class_loss(tape, input, labels, step, examples).loss;  // scalar
  const std::string title =
      fmt::format("the tape of one training step: {}, batch {}, {} positions, width {}, one layer",
                  flags.attention, flags.batch, flags.n, config.width);
  if (flags.dot) {
    fmt::print("{}", to_dot(tape, {title + "\\nvalues flow down, gradients up; yellow: parameters, "
                                           "green: the loss",
                                   flags.merge}));
    return 0;
  }
  fmt::print("{}\n\n{}", title, to_text(tape));
  tape.backward(loss);
  fmt::print("\n{} nodes; {} trainable parameters received a gradient\n", tape.size(),
             std::ranges::count_if(model.parameters().parameters(), [](const Parameter& p) {
               return p.trainable && p.has_gradient;
             }));
  return 0;
}

}  // namespace

void add_tape(const Command& program) {
  const Command command = program.add_command(
      "tape", "print the tape of one small training step, or draw it with Graphviz");
  const auto flags = std::make_shared<TapeFlags>();
  command.add_option("--attention", flags->attention,
                     "method: `skytape info attention` lists them");
  command.add_option("--n", flags->n, "positions").between(1, kMost);
  command.add_option("--batch", flags->batch, "examples").between(1, kMost);
  command.add_flag("--dot", flags->dot,
                   "write Graphviz: skytape tape --dot | dot -Tsvg > tape.svg");
  command.add_flag("--merge", flags->merge,
                   "with --dot: parameters in their op's box, no ops that only move values");
  command.runs([flags] { return run(*flags); });
}

}  // namespace skytape::train
