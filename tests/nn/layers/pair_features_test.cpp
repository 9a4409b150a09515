#include "nn/layers/pair_features.hpp"

#include <cmath>
#include <vector>

#include "autograd/gradcheck.hpp"
#include "autograd/ops.hpp"
#include "tensor/random/random.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;

namespace {

Tensor row(const std::vector<double>& values) {
  return Tensor::from(values, {1, std::ssize(values)}, DType::f64, Device::cpu);
}

/// The last feature of two rows, whose centre is the mean of `number` vectors with that sum.
double cosine_of(const std::vector<double>& a, const std::vector<double>& b,
                 std::vector<double> sum, double number) {
  ParameterStore store;
  const nn::PairFeatures pair(store, std::ssize(a), true);
  store.pack(DType::f64, Device::cpu, 1);
  sum.push_back(number);
  Tensor& mean = store.find("seq_classifer.pair_centre")->value;
  mean.copy_from(Tensor::from(sum, {std::ssize(sum)}, DType::f64, Device::cpu));
  Tape tape(Tape::Mode::eval);
  return pair(tape.input(row(a)), tape.input(row(b))).value().to_vector().back();
}

}  // namespace

TEST_CASE("the cosine of two encodings is counted from the mean encoding") {
  CHECK(cosine_of({1, 0}, {0, 2}, {0, 0}, 0) == doctest::Approx(0));
  CHECK(cosine_of({3, 4}, {6, 8}, {0, 0}, 0) == doctest::Approx(4));
  // Nearly one direction from the origin, opposite ones from the mean.
  CHECK(cosine_of({10, 1}, {10, -1}, {50, 0}, 5) == doctest::Approx(-4));
  CHECK(cosine_of({0, 0}, {0, 0}, {0, 0}, 0) == 0);
}

TEST_CASE("without the cosine there are four parts and no mean") {
  ParameterStore store;
  const nn::PairFeatures pair(store, 2, false);
  store.pack(DType::f64, Device::cpu, 1);
  CHECK(store.find("seq_classifer.pair_centre") == nullptr);
  CHECK(pair.size() == 8);
  Tape tape(Tape::Mode::eval);
  CHECK(pair(tape.input(row({2, 3})), tape.input(row({5, 7}))).value().to_vector() ==
        std::vector<double>{2, 3, 5, 7, 10, 21, -3, -4});
}

TEST_CASE("the features of pairs pass gradcheck, and no gradient is infinite") {
  ParameterStore store;
  const nn::PairFeatures pair(store, 3, true);
  store.pack(DType::f64, Device::cpu, 1);
  Tensor& mean = store.find("seq_classifer.pair_centre")->value;
  mean.copy_from(Tensor::from(std::vector<double>{3, -2, 1, 10}, {4}, DType::f64, Device::cpu));
  const auto inputs = [](std::uint64_t seed) {
    return tensor::normal({4, 3}, Random{seed, {}}, DType::f64, Device::cpu);
  };
  const GradcheckReport report =
      gradcheck([&](Tape&, std::span<const Var> in) { return pair(in[0], in[1]); },
                {inputs(1), inputs(2)}, {}, {"a", "b"});
  CHECK_MESSAGE(report.passed, report.to_string());

  mean.fill(0);
  Tape tape;
  const Var zero = tape.input(Tensor::zeros({1, 3}, DType::f64, Device::cpu));
  tape.backward(sum_all(pair(zero, tape.input(row({1, 2, 3})))));
  for (const double g : tape.grad(zero).to_vector()) CHECK(std::isfinite(g));
}

TEST_CASE("the mean follows the encodings of every step, whatever the loss") {
  ParameterStore store;
  const nn::PairFeatures pair(store, 2, true);
  store.pack(DType::f64, Device::cpu, 1);
  const Tensor a = Tensor::from(std::vector<double>{1, 2, 3, 6}, {2, 2}, DType::f64, Device::cpu);
  const Tensor b = Tensor::from(std::vector<double>{0, 1, 4, 7}, {2, 2}, DType::f64, Device::cpu);
  for (const double scale : {1.0, 5.0}) {  // of the loss
    Tape tape;
    tape.backward(affine(sum_all(pair(tape.input(a), tape.input(b))), scale));
    store.update_averages();
    store.zero_gradients();
  }
  const std::vector<double> mean = store.find("seq_classifer.pair_centre")->value.to_vector();
  CHECK(mean[0] / mean[2] == doctest::Approx(2));  // (1 + 3 + 0 + 4) / 4
  CHECK(mean[1] / mean[2] == doctest::Approx(4));
  CHECK(mean[2] == doctest::Approx(4 * (1 - 0.81)));
}
