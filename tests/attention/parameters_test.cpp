// The parameters that methods add to a store: which of them are constants, and their first values.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/attention/methods_support.hpp"
#include "tests/support/doctest.hpp"

namespace skytape::test {

TEST_CASE("a parameter is trained where a method differentiates it, and else it is a constant") {
  each_sample([](const Spec& spec, const OptionValues& options) {
    const Layer layer = make_layer(spec, options, first_served(spec, options), DType::f64);
    const std::vector<Parameter*> differentiated = layer.method->parameters();
    for (Parameter& p : layer.store->parameters()) {
      INFO(p.name);
      const bool known = std::ranges::find(differentiated, &p) != differentiated.end();
      const auto asked = [&](const char* option, const char* value) {
        const auto found = options.find(option);
        return found != options.end() && found->second == value;
      };
      CHECK(p.trainable == (known && !asked("frozen", "1") && !asked("trained", "0")));
    }
  });
}

TEST_CASE("parameters begin as large as their method says") {
  // Numbers between -b and b have the deviation b / sqrt 3. N = 64, H = 2, D = 16, C = H D = 32,
  // and x is 35 wide.
  const double uniform = 1 / std::sqrt(3.0);
  struct Case {
    std::string method;
    OptionValues options;
    std::string parameter;
    double deviation;
  };
  const std::vector<Case> cases = {
      {"linformer", {{"features", "9"}}, "E", 1 / std::sqrt(9.0)},
      {"linformer", {{"features", "9"}, {"init_std", "0.02"}}, "E", 0.02},
      {"linformer", {{"features", "9"}, {"sharing", "none"}}, "F", 1 / std::sqrt(9.0)},
      {"linformer", {{"features", "4"}, {"projection", "conv"}}, "Wk", uniform / std::sqrt(16.0)},
      {"linformer_jlt", {{"features", "9"}, {"fixed", "1"}}, "S", 1 / std::sqrt(9.0)},
      {"longformer", {}, "key_global.weight", uniform / std::sqrt(35.0)},
      {"luna", {}, "memory", 1 / std::sqrt(32.0)},
      {"luna", {}, "pack.weight", uniform / std::sqrt(32.0)},
      {"nystrom", {{"conv_kernel", "101"}}, "conv.weight", uniform / std::sqrt(101.0)},
      {"routing", {}, "centroids", 1 / std::sqrt(16.0)},
      {"sinkhorn", {{"block", "4"}}, "sort", 1 / std::sqrt(16.0)},
      {"synthesizer", {{"logits", "random"}}, "random", 1 / std::sqrt(2 * 64.0)},
      {"synthesizer", {{"rank", "9"}}, "random1", 1 / std::sqrt(2 * 64.0)},
      {"synthesizer", {{"rank", "9"}}, "random2", 1 / std::sqrt(2 * 9.0)},
      {"synthesizer", {{"logits", "dense"}}, "hidden.weight", 1 / std::sqrt(35.0)},
      {"synthesizer", {{"logits", "dense"}, {"hidden", "9"}}, "logits.weight", 1 / std::sqrt(9.0)},
  };
  for (const Case& c : cases) {
    INFO(c.method, ", ", c.parameter);
    const Layer layer = make_layer(attention::find(c.method), c.options,
                                   {.heads = 2, .n = 64, .width = 16}, DType::f64);
    const Parameter* const p = layer.store->find("attn." + c.parameter);
    REQUIRE(p != nullptr);
    const double size = norm(p->value) / std::sqrt(static_cast<double>(p->shape.numel()));
    CHECK(std::abs(size / c.deviation - 1) < 0.15);
  }
}

}  // namespace skytape::test
