#include "tests/autograd/op_samples.hpp"

#include "tensor/kernels/elementwise.hpp"
#include "tensor/random/random.hpp"

namespace skytape::test::op {

Tensor normal(const Shape& shape, std::uint64_t seed) {
  return tensor::normal(shape, Random{seed, {}}, DType::f64, Device::cpu);
}

Tensor uniform(const Shape& shape, std::uint64_t seed) {
  return tensor::uniform(shape, Random{seed, {}}, DType::f64, Device::cpu);
}

Tensor positive(const Shape& shape, std::uint64_t seed) {
  return tensor::affine(uniform(shape, seed), 2, 0.5);
}

Tensor nonzero(const Shape& shape, std::uint64_t seed) {
  Tensor x = uniform(shape, seed);
  double* const values = x.data<double>();
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    values[i] = 2 * values[i] - 1;
    values[i] += values[i] < 0 ? -0.2 : 0.2;
  }
  return x;
}

Tensor distinct(const Shape& shape) {
  Tensor x = Tensor::empty(shape, DType::f64, Device::cpu);
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    x.data<double>()[i] = 0.37 * static_cast<double>((i * 101 + 17) % 211) - 30;
  }
  return x;
}

Tensor scrambled_ids(std::int64_t count, std::int64_t n) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < count; ++i) {
    ids.push_back(static_cast<std::int32_t>((i * i + 3 * i) % n));
  }
  return integers(ids, {count});
}

Tensor mask(std::int64_t n, const std::vector<std::int64_t>& real) {
  Tensor m = Tensor::zeros({static_cast<std::int64_t>(real.size()), n}, DType::f64, Device::cpu);
  for (std::size_t b = 0; b < real.size(); ++b) {
    for (std::int64_t i = 0; i < real[b]; ++i) {
      m.data<double>()[static_cast<std::int64_t>(b) * n + i] = 1;
    }
  }
  return m;
}

Tensor beside(Var x, const Tensor& t) {
  const Tensor moved = t.to(x.value().device());
  return t.dtype() == DType::i32 ? moved : moved.to(x.value().dtype());
}

Dropout dropping(double rate) {
  return {.rate = rate, .random = Random{77, {}}, .first_example = 2, .nominal_length = 140};
}

Var zeros(Tape& tape, const Shape& shape) {
  return tape.input(Tensor::zeros(shape, DType::f64, Device::cpu));
}

}  // namespace skytape::test::op
