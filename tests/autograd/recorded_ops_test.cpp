#include <set>
#include <string>
#include <vector>

#include "attention/registry.hpp"
#include "autograd/ops.hpp"
#include "autograd/tape_print.hpp"
#include "nn/model.hpp"
#include "tests/autograd/op_table.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;

namespace {

nn::ModelConfig small_config(const std::string& attention, int sequences) {
  nn::ModelConfig config;
  config.attention = attention;
  config.vocabulary = 7;
  config.classes = 3;
  config.nominal_length = 16;
  config.sequences = sequences;
  config.width = 8;
  config.ff_width = 12;
  config.head_width = 4;
  return config;
}

/// Names of the nodes of one training step, loss included.
std::vector<std::string> recorded_by(const std::string& attention, int sequences) {
  const nn::Model model(small_config(attention, sequences), DType::f64, Device::cpu, 1);
  nn::ModelInput input;
  for (std::size_t sequence = 0; sequence < static_cast<std::size_t>(sequences); ++sequence) {
    input.ids[sequence] = Tensor::full({2, 16}, 3, DType::i32, Device::cpu);
    input.mask[sequence] = Tensor::full({2, 16}, 1, DType::f64, Device::cpu);
  }
  nn::StepContext step;
  step.training = true;
  Tape tape;
  const Var logits = model.logits(tape, input, step);
  (void)cross_entropy(logits, Tensor::zeros({2}, DType::i32, Device::cpu));
  return names(tape);
}

}  // namespace

TEST_CASE("every op that a model records has a row in the op table") {
  // The coarse op of the methods has the registry's own loop of checks.
  const std::set<std::string> elsewhere = {"leaf", "attention"};
  std::set<std::string> recorded;
  for (const attention::Spec& spec : attention::registry()) {
    for (const int sequences : {1, 2}) {
      for (const std::string& name : recorded_by(spec.name, sequences)) recorded.insert(name);
    }
  }
  CHECK(recorded.size() > elsewhere.size());
  for (const std::string& name : recorded) {
    CHECK_MESSAGE((elsewhere.count(name) == 1 || test::find_op(name) != nullptr), name,
                  " is recorded by a model, but has no row in the op table");
  }
}
