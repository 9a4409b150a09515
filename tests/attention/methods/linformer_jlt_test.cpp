// Statistics and options of the sketch of values, beyond the loop over the registry.
#include <string>

#include "tests/attention/methods_support.hpp"
#include "tests/support/doctest.hpp"

namespace skytape::test {
namespace {

const Spec& jlt() { return attention::find("linformer_jlt"); }

/// A call with its own random sequence.
Call call_with(std::uint64_t key) {
  Call call;
  call.random.key = key;
  return call;
}

}  // namespace

TEST_CASE("the sketch of the values is unbiased, and its error falls with its columns") {
  const Sizes sizes;
  const Problem problem = make_problem(jlt(), sizes, Padding::mixed);
  const Layer softmax = make_layer(attention::find("softmax"), {}, sizes, DType::f64);
  const Tensor exact = at(run(softmax, problem, Call{}), "out");
  const auto square_error = [&](const char* features) {
    const Layer layer = make_layer(jlt(), {{"features", features}}, sizes, DType::f64);
    double sum = 0;
    for (std::uint64_t key = 0; key < 20; ++key) {
      const double d = distance(at(run(layer, problem, call_with(key)), "out"), exact);
      sum += d * d / 20;
    }
    return sum;
  };
  const double few = square_error("16"), many = square_error("256");
  INFO("mean square error ", few, " with 16 columns, ", many, " with 256");
  CHECK(few / many > 11);  // 16 in the mean: nothing remains but the variance
  CHECK(few / many < 23);
}

TEST_CASE("a fixed sketch is the same at every call, a drawn one is not") {
  const Sizes sizes;
  const Problem problem = make_problem(jlt(), sizes, Padding::mixed);
  for (const char* fixed : {"0", "1"}) {
    const Layer layer =
        make_layer(jlt(), {{"features", "16"}, {"fixed", fixed}}, sizes, DType::f64);
    const Tensor first = at(run(layer, problem, call_with(1)), "out");
    const Tensor second = at(run(layer, problem, call_with(2)), "out");
    INFO("fixed = ", fixed);
    CHECK((distance(first, second) == 0) == (std::string(fixed) == "1"));
  }
}

TEST_CASE("an injected sketch with too few rows is refused") {
  const Sizes sizes;
  const Problem problem = make_problem(jlt(), sizes, Padding::none);
  const Layer layer = make_layer(jlt(), {}, sizes, DType::f64);
  Draws draws;
  draws.set("S", Tensor::zeros({sizes.n - 1, 4}, DType::f64, Device::cpu));
  Call call;
  call.injected = &draws;
  CHECK_THROWS_WITH_AS((void)run(layer, problem, call),
                       doctest::Contains("linformer_jlt: expected S of at least 37 rows"), Error);
}

}  // namespace skytape::test
