#include "autograd/parameter.hpp"

#include <string_view>
#include <utility>

#include "tensor/core/storage.hpp"
#include "tensor/core/tensor.hpp"
#include "tensor/kernels/elementwise.hpp"

namespace skytape {

Initialiser constant_init(double value) {
  return [value](const Shape& shape, const Random&) {
    return Tensor::full(shape, value, DType::f64, Device::cpu);
  };
}

Initialiser normal_init(double standard_deviation) {
  return [standard_deviation](const Shape& shape, const Random& random) {
    return tensor::affine(tensor::normal(shape, random, DType::f64, Device::cpu),
                          standard_deviation);
  };
}

Initialiser uniform_init(double bound) {
  return [bound](const Shape& shape, const Random& random) {
    return tensor::affine(tensor::uniform(shape, random, DType::f64, Device::cpu), 2 * bound,
                          -bound);
  };
}

namespace {

/// FNV-1a, 64 bits: the same name gives the same key on every machine and in every model.
std::uint64_t hash(std::string_view text) {
  std::uint64_t h = 0xcbf29ce484222325;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return h;
}

/// First flat element at or after `end` that lies on a 64-byte boundary: a cache line, the widest
/// vector.
std::int64_t align(std::int64_t end, DType dtype) {
  const auto line = kParameterAlignment / static_cast<std::int64_t>(size_of(dtype));  // elements
  return ceil_div(end, line) * line;
}

void initialise(Parameter& parameter, const Random& random) {
  const Tensor start = parameter.initialise(parameter.shape, random.fork(hash(parameter.name)));
  ENSURE(start.defined() && start.shape() == parameter.shape && start.dtype() == DType::f64 &&
             start.device() == Device::cpu,
         "ParameterStore::pack: the initialiser of ", parameter.name, " must return f64",
         parameter.shape, "@cpu, got ", start);
  parameter.value.copy_from(start.to(parameter.value.dtype()).to(parameter.value.device()));
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

  const Random random = fork(Random{seed, {}}, Purpose::initialise);
  for (Parameter& parameter : parameters_) {
    const std::int64_t end = parameter.offset + parameter.shape.numel();
    parameter.value = values_.slice(parameter.offset, end).reshape(parameter.shape);
    if (parameter.trainable || parameter.decay > 0) {
      parameter.grad = gradients_.slice(parameter.offset, end).reshape(parameter.shape);
    }
    initialise(parameter, random);
  }
  release_cached_memory(Device::cpu);  // of initial values in f64, which training does not need
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
    tensor::accumulate(p.value, tensor::binary(tensor::Binary::subtract, p.grad, p.value),
                       1 - p.decay);
  }
}

}  // namespace skytape
