// Parameters and operations: nothing here depends on a clock.
#include <algorithm>

#include "attention/registry.hpp"
#include "autograd/tape.hpp"
#include "nn/model.hpp"
#include "tensor/core/traffic.hpp"
#include "tensor/gemm/gemm.hpp"
#include "tensor/random/random.hpp"
#include "train/lab/studies/cost/cost.hpp"

namespace skytape::train {
namespace {

using attention::Spec;

constexpr std::uint64_t kSeed = 42;
constexpr std::int64_t kHeadWidth = 32;  // of the papers' model

/// Trainable numbers of the model on a task, or nothing if the method refuses its sizes.
std::optional<double> parameters(const CostOptions& options, const std::string& method,
                                 const std::string& task) {
  const nn::ModelConfig model = recipe_config(options, method, task).model;
  if (model.classes == 0) return std::nullopt;  // the data tell
  return static_cast<double>(
      nn::Model(model, DType::f32, Device::cpu, kSeed).parameters().parameter_count());
}

}  // namespace

RunConfig recipe_config(const CostOptions& options, const std::string& method,
                        const std::string& task) {
  Choices choices;
  choices.task = task;
  choices.attention = method;
  choices.recipe = options.recipe;
  return resolve(choices);
}

attention::Cost counted_cost(const Spec& spec, const attention::CostSizes& sizes) {
  const auto n = static_cast<std::int64_t>(sizes.n), width = static_cast<std::int64_t>(sizes.width);
  attention::OptionValues values;
  if (spec.has_option("features")) {
    values["features"] = std::to_string(static_cast<std::int64_t>(sizes.features));
  }
  ParameterStore store;
  const auto method = spec.make({0, 1, width, n, "attn.", &store, width}, values);
  store.pack(DType::f32, Device::cpu, kSeed);
  const auto numbers = [&](std::uint64_t which) {
    return tensor::normal({1, 1, n, width}, Random{which, {}}, DType::f32, Device::cpu);
  };
  attention::Call call;
  call.random.key = kSeed;
  call.fewest_tokens = Tensor::full({1}, sizes.n, DType::i32, Device::cpu);

  Tape tape;
  const Var q = tape.input(numbers(1)), v = tape.input(numbers(3));
  const Var k = spec.shared_qk ? Var() : tape.input(numbers(2));
  const Tensor mask = Tensor::full({1, n}, 1, DType::f32, Device::cpu), dout = numbers(4);
  const Var x = spec.reads_x ? tape.input(numbers(5).reshape({1, n, width})) : Var();
  const std::int64_t start = tensor::cpu_multiply_adds();
  const Var out = attention::apply(*method, {q, k, v, x}, mask, call);
  const std::int64_t middle = tensor::cpu_multiply_adds();
  tape.backward(out, dout);
  const std::int64_t end = tensor::cpu_multiply_adds();
  return {static_cast<double>(middle - start), static_cast<double>(end - middle)};
}

Table parameter_table(const CostOptions& options) {
  Table table;
  table.name = "parameters";
  table.title = "Trainable parameters of the model, recipe " + options.recipe;
  table.columns = {{"method"}};
  for (const std::string& task : options.tasks) table.columns.push_back({task, "{:.0f}"});
  for (const std::string& method : options.methods) {
    std::vector<Cell> row = {method};
    for (const std::string& task : options.tasks) {
      row.push_back(parameters(options, method, task));
    }
    table.add(std::move(row));
  }
  return table;
}

Table operation_table(const CostOptions& options) {
  const attention::CostSizes sizes{static_cast<double>(options.operations_n),
                                   static_cast<double>(options.operations_features), kHeadWidth};
  const double softmax = attention::find("softmax").cost_at(sizes).forward;
  constexpr double kMillion = 1e6;
  Table table;
  table.name = "operations";
  table.title = join("Multiply-adds (millions) of one head and example, n = ", options.operations_n,
                     ", d = ", options.operations_features, ", p = ", kHeadWidth);
  table.columns = {{"method"},
                   {"leading terms"},
                   {"paper", "{:.1f}"},
                   {"forward", "{:.1f}"},
                   {"counted", "{:.1f}"},
                   {"backward", "{:.1f}"},
                   {"counted back", "{:.1f}"},
                   {"of softmax's forward", "{:.4f}"},
                   {"sequential"}};
  for (const std::string& method : options.methods) {
    const Spec& spec = attention::find(method);
    const attention::Cost cost = spec.cost_at(sizes), counted = counted_cost(spec, sizes);
    table.add({method, spec.cost,
               spec.paper_cost ? Cell(spec.paper_cost(sizes) / kMillion) : Cell(),
               cost.forward / kMillion, counted.forward / kMillion, cost.backward / kMillion,
               counted.backward / kMillion, cost.forward / softmax, spec.sequential});
  }
  table.notes = {
      "paper: leading terms of the Skeinformer paper's Table 3, where it has the method."};
  return table;
}

}  // namespace skytape::train
