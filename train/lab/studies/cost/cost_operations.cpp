// Parameters and operations: nothing here depends on a clock.
#include <algorithm>

#include "attention/registry.hpp"

#include <fmt/format.h>
#include "nn/model.hpp"
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
  table.title =
      fmt::format("Multiply-adds (millions) of one head and example, n = {}, d = {}, p = {}",
                  options.operations_n, options.operations_features, kHeadWidth);
  table.columns = {{"method"},
                   {"leading terms"},
                   {"paper", "{:.1f}"},
                   {"forward", "{:.1f}"},
                   {"backward", "{:.1f}"},
                   {"of softmax's forward", "{:.4f}"},
                   {"sequential"}};
  for (const std::string& method : options.methods) {
    const Spec& spec = attention::find(method);
    const attention::Cost cost = spec.cost_at(sizes);
    table.add({method, spec.cost,
               spec.paper_cost ? Cell(spec.paper_cost(sizes) / kMillion) : Cell(),
               cost.forward / kMillion, cost.backward / kMillion, cost.forward / softmax,
               spec.sequential});
  }
  table.notes = {
      "paper: leading terms of the Skeinformer paper's Table 3, where it has the method. forward "
      "and backward: the multiply-adds of the method's matrix products on a CPU, by its formula."};
  return table;
}

}  // namespace skytape::train
