// Linformer's windows, beyond the loop over the registry.
#include <memory>
#include <string>
#include <vector>

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

namespace {

/// The parameters of two layers.
std::vector<std::string> parameters_of_two(const OptionValues& options) {
  ParameterStore store;
  std::vector<std::unique_ptr<Method>> layers;
  for (const int layer : {0, 1}) {
    const std::string prefix = "layer" + std::to_string(layer) + ".";
    layers.push_back(attention::find("linformer").make({layer, 3, 4, 20, prefix, &store}, options));
  }
  std::vector<std::string> all;
  for (const Parameter& p : store.parameters()) {
    all.push_back(join(p.name, " ", p.shape, p.trainable ? "" : " constant"));
  }
  return all;
}

}  // namespace

TEST_CASE("sharing says which projections of two layers with three heads are one") {
  using Names = std::vector<std::string>;
  const auto with = [](const char* sharing) {
    return parameters_of_two({{"features", "5"}, {"sharing", sharing}});
  };
  CHECK(with("none") == Names{"layer0.E [3, 5, 20]", "layer0.F [3, 5, 20]", "layer1.E [3, 5, 20]",
                              "layer1.F [3, 5, 20]"});
  CHECK(with("headwise") ==
        Names{"layer0.E [5, 20]", "layer0.F [5, 20]", "layer1.E [5, 20]", "layer1.F [5, 20]"});
  CHECK(with("keyvalue") == Names{"layer0.E [5, 20]", "layer1.E [5, 20]"});
  CHECK(with("layerwise") == Names{"model.attn.E [5, 20]"});
  CHECK(with("official") == Names{"layer0.E [3, 5, 20]", "layer1.E [3, 5, 20]"});
}

TEST_CASE("frozen projections and kernels are constants") {
  for (const char* projection : {"learned", "conv"}) {
    const auto all = parameters_of_two(
        {{"features", "5"}, {"sharing", "none"}, {"projection", projection}, {"frozen", "1"}});
    CHECK(all.size() == 4);
    for (const std::string& parameter : all) CHECK(parameter.ends_with(" constant"));
  }
}

TEST_CASE("each layer has the length that layer_features gives it") {
  CHECK(parameters_of_two({{"layer_features", "5:7"}}) ==
        std::vector<std::string>{"layer0.E [5, 20]", "layer1.E [7, 20]"});
  CHECK_THROWS_WITH_AS((void)parameters_of_two({{"layer_features", "5"}}),
                       doctest::Contains("linformer.layer_features: no entry for layer 1 in '5'"),
                       UsageError);
  CHECK_THROWS_WITH_AS(
      (void)parameters_of_two({{"layer_features", "5:7"}, {"sharing", "layerwise"}}),
      doctest::Contains("layerwise sharing needs one L for all layers"), UsageError);
}

TEST_CASE("head_features has a number for each head, none beyond L") {
  for (const char* numbers : {"5:5", "5:5:6"}) {
    CHECK_THROWS_WITH_AS(
        (void)parameters_of_two({{"features", "5"}, {"head_features", numbers}}),
        doctest::Contains("linformer.head_features: expected 3 numbers up to L = 5, got '"),
        UsageError);
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
