#include "nn/layers/pair_features.hpp"

#include <cmath>
#include <vector>

#include "autograd/gradcheck.hpp"
#include "autograd/ops.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/random/random.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;

namespace {

Tensor row(const std::vector<double>& values) {
  return Tensor::from(values, {1, std::ssize(values)}, DType::f64, Device::cpu);
}

/// The last feature of two rows: 16 cos(a - c, b - c).
double cosine_of(const std::vector<double>& a, const std::vector<double>& b,
                 const std::vector<double>& c) {
  ParameterStore store;
  const nn::PairFeatures pair(store, std::ssize(a), true);
  store.pack(DType::f64, Device::cpu, 1);
  store.find("seq_classifer.pair_centre")
      ->value.copy_from(tensor::affine(row(c), 0.1).reshape({std::ssize(c)}));
  Tape tape(Tape::Mode::eval);
  return pair(tape.input(row(a)), tape.input(row(b))).value().to_vector().back();
}

}  // namespace

TEST_CASE("the cosine of two encodings is counted from the centre") {
  CHECK(cosine_of({1, 0}, {0, 2}, {0, 0}) == doctest::Approx(0));
  CHECK(cosine_of({3, 4}, {6, 8}, {0, 0}) == doctest::Approx(16));
  // Nearly one direction from the origin, opposite ones from the centre.
  CHECK(cosine_of({10, 1}, {10, -1}, {10, 0}) == doctest::Approx(-16).epsilon(1e-4));
  CHECK(cosine_of({0, 0}, {0, 0}, {0, 0}) == 0);
}

TEST_CASE("without the cosine there are four parts and no centre") {
  ParameterStore store;
  const nn::PairFeatures pair(store, 2, false);
  store.pack(DType::f64, Device::cpu, 1);
  CHECK(store.find("seq_classifer.pair_centre") == nullptr);
  CHECK(pair.size() == 8);
  Tape tape(Tape::Mode::eval);
  CHECK(pair(tape.input(row({2, 3})), tape.input(row({5, 7}))).value().to_vector() ==
        std::vector<double>{2, 3, 5, 7, 10, 21, -3, -4});
}

TEST_CASE("the features of pairs pass gradcheck, where a vector is zero, too") {
  ParameterStore store;
  const nn::PairFeatures pair(store, 3, true);
  store.pack(DType::f64, Device::cpu, 1);
  Parameter& centre = *store.find("seq_classifer.pair_centre");
  centre.value.copy_from(
      Tensor::from(std::vector<double>{0.3, -0.2, 0.1}, {3}, DType::f64, Device::cpu));
  const auto inputs = [](std::uint64_t seed) {
    return tensor::normal({4, 3}, Random{seed, {}}, DType::f64, Device::cpu);
  };
  const std::vector<Parameter*> parameters = {&centre};
  const GradcheckReport report =
      gradcheck([&](Tape&, std::span<const Var> in) { return pair(in[0], in[1]); },
                {inputs(1), inputs(2)}, {}, {"a", "b"}, parameters);
  CHECK_MESSAGE(report.passed, report.to_string());

  centre.value.copy_from(Tensor::zeros({3}, DType::f64, Device::cpu));
  Tape tape;
  const Var zero = tape.input(Tensor::zeros({1, 3}, DType::f64, Device::cpu));
  tape.backward(sum_all(pair(zero, tape.input(row({1, 2, 3})))));
  for (const double g : tape.grad(zero).to_vector()) CHECK(std::isfinite(g));
}
