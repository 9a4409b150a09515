#include "autograd/parameter.hpp"

#include <utility>

#include "tensor/kernels/elementwise.hpp"

namespace skytape {

namespace {

/// First flat element at or after `end` that lies on a 64-byte boundary: a cache line, the widest
/// vector.
std::int64_t align(std::int64_t end, DType dtype) {
  const auto line = kParameterAlignment / static_cast<std::int64_t>(size_of(dtype));  // elements
  return ceil_div(end, line) * line;
}

}  // namespace

Parameter& ParameterStore::add(const std::string& name, const Shape& shape, Initialiser initialise,
                               bool trainable) {
  ENSURE(!packed(), "ParameterStore::add: ", name, " comes after pack()");
  ENSURE(!name.empty() && find(name) == nullptr, "ParameterStore::add: the name '", name,
         "' is empty or taken");
  ENSURE(initialise != nullptr, "ParameterStore::add: ", name, " has no initialiser");
  Parameter& parameter = parameters_.emplace_back();
  parameter.name = name;
  parameter.shape = shape;
  parameter.initialise = std::move(initialise);
  parameter.trainable = trainable;
  return parameter;
}

Parameter& ParameterStore::add_average(const std::string& name, const Shape& shape,
                                       Initialiser initialise, double decay) {
  ENSURE(decay > 0 && decay < 1, "ParameterStore::add_average: ", name,
         ": expected a decay between 0 and 1, got ", decay);
  Parameter& parameter = add(name, shape, std::move(initialise), false);
  parameter.decay = decay;
  return parameter;
}

Parameter* ParameterStore::find(const std::string& name) {
  for (Parameter& parameter : parameters_) {
    if (parameter.name == name) return &parameter;
  }
  return nullptr;
}

void ParameterStore::pack(DType dtype, Device device, std::uint64_t seed) {
  ENSURE(!packed(), "ParameterStore::pack: called twice");
  ENSURE(dtype != DType::i32, "ParameterStore::pack: expected f32 or f64, got i32");
  std::int64_t size = 0;  // flat elements so far
  const auto place = [&](auto&& belongs) {
    for (Parameter& parameter : parameters_) {
      if (!belongs(parameter)) continue;
      parameter.offset = size;
      size = align(size + parameter.shape.numel(), dtype);
    }
    return size;
  };
  trainable_size_ = place([](const Parameter& p) { return p.trainable; });
  const std::int64_t with_averages = place([](const Parameter& p) { return p.decay > 0; });
  place([](const Parameter& p) { return !p.trainable && p.decay == 0; });
  values_ = Tensor::zeros({size}, dtype, device);
  gradients_ = Tensor::zeros({with_averages}, dtype, device);

  for (Parameter& parameter : parameters_) {
    const std::int64_t end = parameter.offset + parameter.shape.numel();
    parameter.value = values_.slice(parameter.offset, end).reshape(parameter.shape);
    if (parameter.trainable || parameter.decay > 0) {
      parameter.grad = gradients_.slice(parameter.offset, end).reshape(parameter.shape);
    }
  }
  draw_initial_values(seed);
}

std::int64_t ParameterStore::parameter_count() const {
  std::int64_t count = 0;
  for (const Parameter& parameter : parameters_) {
    if (parameter.trainable) count += parameter.shape.numel();
  }
  return count;
}

void ParameterStore::zero_gradients() {
  ENSURE(packed(), "ParameterStore::zero_gradients: pack() comes first");
  gradients_.fill(0);
  for (Parameter& parameter : parameters_) parameter.has_gradient = false;
}

void ParameterStore::update_averages() {
  for (Parameter& p : parameters_) {
    if (p.decay == 0 || !p.has_gradient) continue;
    tensor::accumulate(p.value, tensor::subtract(p.grad, p.value), 1 - p.decay);
  }
}

}  // namespace skytape
