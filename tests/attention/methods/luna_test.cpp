// Luna: what a memory of one row can say, and the layers that hand it on.
#include <memory>

#include "tensor/core/error.hpp"
#include "tests/attention/methods_support.hpp"
#include "tests/support/doctest.hpp"

namespace skytape::test {

TEST_CASE("a memory of one row tells every token the same") {
  const Sizes sizes{.batch = 2, .heads = 2, .n = 37, .width = 8};
  const Spec& spec = attention::find("luna");
  const Layer layer = make_layer(spec, {{"features", "1"}}, sizes, DType::f64);
  const Problem problem = make_problem(spec, sizes, Padding::mixed);
  const Outcome outcome = run(layer, problem, training_call(problem.in));
  const std::vector<double> out = at(outcome, "out").to_vector();  // [B, H, N, D]
  const auto row = [&](std::int64_t i) {
    return std::vector<double>(out.begin() + i * sizes.width, out.begin() + (i + 1) * sizes.width);
  };
  for (std::int64_t bh = 0; bh < sizes.batch * sizes.heads; ++bh) {
    for (std::int64_t i = 1; i < sizes.n; ++i) {
      for (std::size_t c = 0; c < 8; ++c) {
        CHECK(row(bh * sizes.n + i)[c] == doctest::Approx(row(bh * sizes.n)[c]));
      }
    }
  }
  CHECK(norm(at(outcome, "dq")) < 1e-12 * norm(at(outcome, "dv")));
}

TEST_CASE("only the first layer learns a memory, and the others must be given one") {
  ParameterStore store;
  const attention::LayerContext first{0, 2, 8, 37, "first.", &store};
  const attention::LayerContext second{1, 2, 8, 37, "second.", &store};
  const Spec& spec = attention::find("luna");
  const std::unique_ptr<Method> methods[] = {spec.make(first, {}), spec.make(second, {})};
  store.pack(DType::f64, Device::cpu, 3);
  CHECK(store.find("first.memory") != nullptr);
  CHECK(store.find("second.memory") == nullptr);
  CHECK(methods[0]->parameters().size() == methods[1]->parameters().size() + 1);

  Inputs in = make_problem(spec, {}, Padding::none).in;
  CHECK_THROWS_WITH_AS((void)methods[1]->forward(in, {}, {}),
                       doctest::Contains("needs the memory that the layer before left"), Error);
  in.state = Tensor::zeros({3, 128, 8}, DType::f64, Device::cpu);
  CHECK_THROWS_WITH_AS((void)methods[1]->forward(in, {}, {}),
                       doctest::Contains("expected a memory [3, 128, 16], got"), Error);
}

}  // namespace skytape::test
