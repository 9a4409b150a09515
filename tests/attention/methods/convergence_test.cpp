// The Nystrom forms come closer to the kernel they approximate as landmarks are added. Random
// features and sampled columns have the same test next to their methods (performer_test.cpp,
// skeinformer_test.cpp, linformer_jlt_test.cpp).
#include <cmath>

#include "tests/attention/methods_support.hpp"
#include "tests/support/doctest.hpp"

namespace skytape::test {
namespace {

struct Approximation {
  std::string method, exact;
  OptionValues options;  // a converged inverse: its error is not what is measured
};

const Approximation kApproximations[] = {
    {"skyformer", "kernelized", {{"gamma", "1e-4"}, {"inverse_steps", "20"}}},
    {"nystrom_sm", "softmax", {{"solver", "exact"}}},
    {"nystrom", "softmax", {{"inverse_steps", "8"}}},
};

/// Queries and keys that change slowly along the sequence, as segment means need them.
Problem smooth(Problem p) {
  const std::int64_t n = p.in.q.size(2), width = p.in.q.size(3);
  const auto waves = [&](double phase) {
    std::vector<double> x;
    for (std::int64_t i = 0; i < p.in.q.numel(); ++i) {
      const double at = static_cast<double>(i / width % n) / static_cast<double>(n);
      const auto channel = static_cast<double>(i % width);
      x.push_back(1.5 * std::sin(3.14 * (1 + channel) * at + phase * channel));
    }
    return Tensor::from(x, p.in.q.shape(), DType::f64, Device::cpu);
  };
  p.in.q = waves(1);
  p.in.k = waves(2);
  return p;
}

/// Mean relative error of the output over seeds, f64.
double mean_error(const Approximation& a, const std::string& features, const Problem& p,
                  const Sizes& sizes) {
  constexpr std::uint64_t kSeeds = 12;
  Call call = training_call(p.in);
  const Layer exact =
      make_layer(attention::find(a.exact), {{"attention_dropout", "0"}}, sizes, DType::f64);
  const Tensor truth = at(run(exact, p, call), "out");
  OptionValues options = a.options;
  options["features"] = features;
  const Layer layer = make_layer(attention::find(a.method), options, sizes, DType::f64);
  double sum = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    call.random.key = seed;
    const Draws draws = layer.method->draw(p.in, call);
    sum += distance(layer.method->forward(p.in, draws, call).out, truth) / norm(truth);
  }
  return sum / kSeeds;
}

}  // namespace

TEST_CASE("the error of the Nystrom forms falls with their landmarks") {
  const Sizes sizes{.batch = 1, .heads = 2, .n = 96, .width = 8};
  for (const Approximation& a : kApproximations) {
    INFO(a.method);
    const Problem p = smooth(make_problem(attention::find(a.method), sizes, Padding::none));
    const double few = mean_error(a, "6", p, sizes);
    const double some = mean_error(a, "24", p, sizes);
    const double many = mean_error(a, "96", p, sizes);
    INFO(few, " ", some, " ", many);
    CHECK(some < 0.9 * few);
    CHECK(many < 0.7 * some);
  }
}

}  // namespace skytape::test
