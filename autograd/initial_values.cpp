#include "autograd/initial_values.hpp"

#include <string_view>

#include "tensor/core/storage.hpp"
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

Tensor initial_value(const Parameter& parameter, const Random& random) {
  Tensor value = parameter.initialise(parameter.shape, random.fork(hash(parameter.name)));
  ENSURE(value.defined() && value.shape() == parameter.shape && value.dtype() == DType::f64 &&
             value.device() == Device::cpu,
         "ParameterStore::pack: the initialiser of ", parameter.name, " must return f64",
         parameter.shape, "@cpu, got ", value);
  return value;
}

}  // namespace

void ParameterStore::draw_initial_values(std::uint64_t seed) {
  const Random random = fork(Random{seed, {}}, Purpose::initialise);
  for (Parameter& p : parameters_) {
    p.value.copy_from(initial_value(p, random).to(p.value.dtype()).to(p.value.device()));
  }
  release_cached_memory(Device::cpu);  // of the values in f64, which training does not need
}

}  // namespace skytape
