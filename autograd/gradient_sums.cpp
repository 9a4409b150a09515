#include "autograd/gradient_sums.hpp"

#include <algorithm>
#include <utility>

#include "tensor/kernels/elementwise.hpp"
#include "tensor/movement/gather.hpp"

namespace skytape {

// The limit bounds the memory of the gradients that wait.
constexpr std::int64_t kMostBytes = 1 << 20;

void GradientSums::add(Parameter& parameter, Tensor gradient) {
  if (waits_for(parameter)) add_waiting();
  bytes_ += static_cast<std::int64_t>(gradient.bytes());
  waiting_.push_back({&parameter, std::move(gradient)});
  if (bytes_ > kMostBytes) add_waiting();
}

void GradientSums::add_rows(Parameter& parameter, const Tensor& index, const Tensor& rows) {
  if (waits_for(parameter)) add_waiting();  // sums are made in the order in which they come
  tensor::scatter_add_rows(parameter.grad, index, rows);
  parameter.has_gradient = true;
}

bool GradientSums::waits_for(const Parameter& parameter) const {
  return std::any_of(waiting_.begin(), waiting_.end(),
                     [&](const Waiting& waiting) { return waiting.parameter == &parameter; });
}

bool GradientSums::add_waiting() {
  if (waiting_.empty()) return false;
  std::vector<tensor::Addition> additions;
  additions.reserve(waiting_.size());
  for (Waiting& waiting : waiting_) {
    additions.push_back({waiting.parameter->grad, std::move(waiting.gradient)});
  }
  tensor::accumulate_all(additions);
  for (const Waiting& waiting : waiting_) waiting.parameter->has_gradient = true;
  waiting_.clear();
  bytes_ = 0;
  return true;
}

}  // namespace skytape
