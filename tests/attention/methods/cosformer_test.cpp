// cosFormer's weights by the paper's formula, at a length below the nominal one.
#include <cmath>
#include <numbers>

#include "tensor/kernels/elementwise.hpp"
#include "tests/attention/methods_support.hpp"
#include "tests/support/doctest.hpp"

namespace skytape::test {

TEST_CASE("cosFormer weighs keys by a quarter turn of the cosine over the nominal length") {
  const Sizes sizes{.batch = 2, .heads = 1, .n = 23, .width = 5, .nominal = 29};
  for (const std::string activation : {"relu", "elu"}) {
    CAPTURE(activation);
    const Spec& spec = attention::find("cosformer");
    const Layer layer = make_layer(spec, {{"activation", activation}}, sizes, DType::f64);
    const Problem problem = make_problem(spec, sizes, Padding::none);
    const std::vector<double> q = problem.in.q.to_vector(), k = problem.in.k.to_vector(),
                              v = problem.in.v.to_vector();
    const auto f = [&](double x) {
      return activation == "relu" ? std::max(x, 0.0) : x > 0 ? x + 1 : std::exp(x);
    };
    std::vector<double> expected;
    for (std::int64_t row = 0; row < 2 * 23; ++row) {
      const std::int64_t first = row / 23 * 23;  // of the example
      double total = 0;
      std::vector<double> sum(5);
      for (std::int64_t key = first; key < first + 23; ++key) {
        double weight = 0;
        for (std::int64_t d = 0; d < 5; ++d) weight += f(q[row * 5 + d]) * f(k[key * 5 + d]);
        weight *= std::cos(std::numbers::pi / 2 * static_cast<double>(row - key) / 29);
        total += weight;
        for (std::int64_t d = 0; d < 5; ++d) sum[d] += weight * v[key * 5 + d];
      }
      for (const double x : sum) expected.push_back(total > 0 ? x / total : 0);
    }
    const std::vector<double> out = at(run(layer, problem, Call{}), "out").to_vector();
    REQUIRE(out.size() == expected.size());
    for (std::size_t i = 0; i < out.size(); ++i) {
      CHECK(out[i] == doctest::Approx(expected[i]).epsilon(1e-9));
    }
  }
}

TEST_CASE("a row whose weights are few is divided by epsilon, a constant to the derivative") {
  const Sizes sizes;
  const Spec& spec = attention::find("cosformer");
  const Layer layer = make_layer(spec, {{"epsilon", "0.3"}}, sizes, DType::f64);
  Problem problem = make_problem(spec, sizes, Padding::mixed);
  problem.in.q = tensor::affine(problem.in.q, 1e-3);  // all rows are below epsilon
  const Draws none;
  Call call;
  call.injected = &none;
  const Outcome ours = run(layer, problem, call);
  CHECK(compare(ours, run_reference(layer, problem, call)).error < 1e-12);
  const Problem half = [&] {
    Problem p = problem;
    p.in.q = tensor::affine(p.in.q, 0.5);
    return p;
  }();
  CHECK(compare({{"out", tensor::affine(at(run(layer, half, call), "out"), 2)}},
                {{"out", at(ours, "out")}})
            .error < 1e-12);
}

TEST_CASE("elu(x) + 1 has slope 1 at zero, in the references as well") {
  for (const std::string name : {"cosformer", "linear_attention"}) {
    CAPTURE(name);
    const OptionValues options =
        name == "cosformer" ? OptionValues{{"activation", "elu"}} : OptionValues{};
    const Layer layer = make_layer(attention::find(name), options, {}, DType::f64);
    Problem problem = make_problem(attention::find(name), {}, Padding::mixed);
    for (Tensor* x : {&problem.in.q, &problem.in.k}) *x = tensor::unary(tensor::Unary::relu, *x);
    const Draws none;
    Call call;
    call.injected = &none;
    const Worst worst = compare(run(layer, problem, call), run_reference(layer, problem, call));
    INFO("worst in ", worst.name);
    CHECK(worst.error < 1e-12);
  }
}

}  // namespace skytape::test
