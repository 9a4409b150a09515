#include "train/bench_parts.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

namespace skytape::train {
namespace {

// swap_middle takes heads apart and puts them together around the projections.
constexpr std::array<std::string_view, 4> kProducts = {"linear", "matmul", "swap_middle",
                                                       "bias_gelu_dropout"};

double StepParts::*part_of(std::string_view op) {
  if (op == "attention") return &StepParts::attention;
  if (op == "optimiser") return &StepParts::optimiser;
  if (op == "data") return &StepParts::data;
  return std::find(kProducts.begin(), kProducts.end(), op) != kProducts.end() ? &StepParts::products
                                                                              : &StepParts::rest;
}

}  // namespace

StepParts step_parts(const OpSeconds& seconds, std::int64_t steps) {
  StepParts parts;
  for (const auto& [op, time] : seconds) {
    parts.*part_of(op) += 1e3 * time / static_cast<double>(std::max<std::int64_t>(1, steps));
  }
  return parts;
}

nlohmann::json to_json(const StepParts& parts) {
  return {{"attention", parts.attention},
          {"products", parts.products},
          {"rest", parts.rest},
          {"optimiser", parts.optimiser},
          {"data", parts.data}};
}

}  // namespace skytape::train
