#include "train/lab/bench/bench_parts.hpp"

#include <omp.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <numeric>
#include <string_view>
#include <vector>

#include "data/files/json.hpp"

namespace skytape::train {
namespace {

// attention_layer has its projections in it, merge_heads dropout and residual, mlp its norm, classify
// the loss, too.
constexpr std::array<std::string_view, 6> kProducts = {"linear",      "matmul", "project_heads",
                                                       "merge_heads", "mlp",    "classify"};

double StepParts::*part_of(std::string_view op) {
  if (op == "attention" || op == "attention_layer") return &StepParts::attention;
  if (op == "optimiser") return &StepParts::optimiser;
  if (op == "data") return &StepParts::data;
  return std::find(kProducts.begin(), kProducts.end(), op) != kProducts.end() ? &StepParts::products
                                                                              : &StepParts::rest;
}

/// Processor seconds of each OpenMP thread so far.
std::vector<double> thread_seconds() {
  std::vector<double> seconds(static_cast<std::size_t>(omp_get_max_threads()));
#pragma omp parallel
  {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    seconds[static_cast<std::size_t>(omp_get_thread_num())] =
        static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  }
  return seconds;
}

}  // namespace

StepParts step_parts(const OpSeconds& seconds, std::int64_t steps) {
  StepParts parts;
  for (const auto& [op, time] : seconds) {
    parts.*part_of(op) += 1e3 * time / static_cast<double>(std::max<std::int64_t>(1, steps));
  }
  return parts;
}

std::optional<double> serial_share(const std::function<void()>& f) {
  const char* const waiting = std::getenv("OMP_WAIT_POLICY");
  if (omp_get_max_threads() == 1 || waiting == nullptr || std::string_view(waiting) != "passive") {
    return std::nullopt;
  }
  const std::vector<double> before = thread_seconds();
  f();
  std::vector<double> busy = thread_seconds();
  for (std::size_t t = 0; t < busy.size(); ++t) busy[t] -= before[t];
  const double most = *std::max_element(busy.begin(), busy.end());
  const auto threads = static_cast<double>(busy.size());
  const double mean = std::accumulate(busy.begin(), busy.end(), 0.0) / threads;
  return (most - mean) / most * threads / (threads - 1);
}

data::Json to_json(const StepParts& parts) {
  return {{"attention", parts.attention},
          {"products", parts.products},
          {"rest", parts.rest},
          {"optimiser", parts.optimiser},
          {"data", parts.data}};
}

}  // namespace skytape::train
