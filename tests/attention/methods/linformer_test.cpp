// Linformer's windows, beyond the loop over the registry.
#include "autograd/tape.hpp"
#include "tests/attention/methods_support.hpp"
#include "tests/support/close.hpp"
#include "tests/support/doctest.hpp"

namespace skytape::test {

TEST_CASE("slots without rows take no weight, so values that are all one stay one") {
  // 65 rows in windows of two fill 33 of 64 slots, the last one by half; 64 rows fill half of 128.
  for (const auto& [n, features] : {std::pair(65, 64), {64, 128}, {64, 64}}) {
    const Sizes sizes{.batch = 1, .heads = 2, .n = n, .width = 4};
    const Spec& spec = attention::find("linformer");
    const Layer layer = make_layer(
        spec, {{"projection", "max"}, {"features", std::to_string(features)}}, sizes, DType::f64);
    Problem p = make_problem(spec, sizes, Padding::none);
    p.in.v.fill(1);
    const Outcome all = run(layer, p, training_call(p.in));
    CAPTURE(n);
    CHECK(relative_error(at(all, "out"), ones_like(p.in.v, p.in.v.shape())) < 1e-12);
  }
}

TEST_CASE("a list of sizes that ends in a colon is refused, as one with a gap is") {
  const Sizes sizes{.batch = 1, .heads = 2, .n = 8, .width = 4};
  const Spec& spec = attention::find("linformer");
  for (const char* list : {"4:", "4::4", ":4"}) {
    CHECK_THROWS_WITH_AS((void)make_layer(spec, {{"layer_features", list}}, sizes, DType::f64),
                         doctest::Contains(list), UsageError);
  }
}

TEST_CASE("projections of each head refuse queries of another number of heads") {
  const Spec& spec = attention::find("linformer");
  const Layer layer = make_layer(spec, {{"features", "4"}, {"sharing", "official"}},
                                 {.batch = 2, .heads = 2, .n = 8, .width = 4}, DType::f64);
  const Problem p = make_problem(spec, {.batch = 2, .heads = 3, .n = 8, .width = 4}, Padding::none);
  CHECK_THROWS_WITH_AS((void)run(layer, p, training_call(p.in)),
                       doctest::Contains("the projections are of 2 heads, got q f64[2, 3, 8, 4]"),
                       Error);
}

}  // namespace skytape::test
