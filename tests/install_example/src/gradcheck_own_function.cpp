// Checks the derivative of a function of your own. Built against an installed skytape with
// -IPREFIX/include/skytape, -LPREFIX/lib -lskytape and the libraries that skytape uses.
#include <iostream>

#include "autograd/gradcheck.hpp"
#include "tensor/kernels/elementwise.hpp"

using namespace skytape;

// y = x³, dx = 3 x² dy.
Var cube(Var x) {
  const auto power = [x = x.value()](const Tensor& t) {
    return tensor::multiply(t, tensor::multiply(x, x));  // t x²
  };
  return record("cube", {x}, power(x.value()),
                [power](const Tensor& dy, Grads& g) { g.add(0, tensor::affine(power(dy), 3)); });
}

int main() {
  const Tensor x = Tensor::from<double>({-1.5, 0.0, 0.25, 2.0}, {2, 2}, DType::f64, Device::cpu);
  const auto report = gradcheck([](Tape&, std::span<const Var> v) { return cube(v[0]); }, {x});
  std::cout << report.to_string();
  return report.passed ? 0 : 1;
}
