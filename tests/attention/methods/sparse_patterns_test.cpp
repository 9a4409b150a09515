// Methods with fixed sparse patterns, seen through their outputs: which tokens they join.
#include <cmath>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "tensor/movement/layout.hpp"
#include "tests/attention/methods_support.hpp"
#include "tests/support/close.hpp"
#include "tests/support/doctest.hpp"

namespace skytape::test {
namespace {

constexpr std::int64_t kInputWidth = 5;  // E, of methods that read x

/// Weight of key j for query i of head h in a layer with uniform scores: [H][N][N].
class Weights {
 public:
  Weights(const std::string& method, const OptionValues& options, std::int64_t n,
          std::int64_t heads, int layer = 0)
      : n_(n), heads_(heads) {
    const Spec& spec = attention::find(method);
    ParameterStore store;
    const auto made = spec.make({layer, heads, n, n, "attn.", &store, kInputWidth}, options);
    store.pack(DType::f64, Device::cpu, 1);
    Inputs in;
    in.q = Tensor::zeros({1, heads, n, n}, DType::f64, Device::cpu);
    in.k = in.q;
    std::vector<double> identity(static_cast<std::size_t>(heads * n * n));
    for (std::int64_t e = 0; e < heads * n; ++e) {
      identity[static_cast<std::size_t>(e * n + e % n)] = 1;
    }
    in.v = Tensor::from(identity, in.q.shape(), DType::f64, Device::cpu);
    in.mask = Tensor::full({1, n}, 1, DType::f64, Device::cpu);
    if (spec.reads_x) in.x = random_tensor({1, n, kInputWidth});
    weights_ = made->forward(in, {}, training_call(in)).out.to_vector();
  }

  [[nodiscard]] double operator()(std::int64_t h, std::int64_t i, std::int64_t j) const {
    return weights_[static_cast<std::size_t>((h * n_ + i) * n_ + j)];
  }
  /// Returns whether any head joins i to j.
  [[nodiscard]] bool joined(std::int64_t i, std::int64_t j) const {
    for (std::int64_t h = 0; h < heads_; ++h) {
      if ((*this)(h, i, j) > 0) return true;
    }
    return false;
  }
  /// Returns whether head h joins exactly the pairs of a formula, from query `first` on.
  [[nodiscard]] bool is(std::int64_t h,
                        const std::function<bool(std::int64_t, std::int64_t)>& formula,
                        std::int64_t first = 0) const {
    for (std::int64_t i = first; i < n_; ++i) {
      for (std::int64_t j = 0; j < n_; ++j) {
        if (((*this)(h, i, j) > 0) != formula(i, j)) return false;
      }
    }
    return true;
  }

 private:
  std::int64_t n_, heads_;
  std::vector<double> weights_;
};

/// Returns whether every token is reached from every other through the first layer, then the
/// second.
bool two_steps_join_all(const Weights& first, const Weights& second, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      bool any = false;
      for (std::int64_t between = 0; between < n && !any; ++between) {
        any = second.joined(i, between) && first.joined(between, j);
      }
      if (!any) return false;
    }
  }
  return true;
}

constexpr std::int64_t kLength = 38;

}  // namespace

TEST_CASE("local attention joins a block, a stride as the arena's code does, or a window") {
  const Weights block("local", {{"block", "8"}}, kLength, 1);
  CHECK(block.is(0, [](auto i, auto j) { return i / 8 == j / 8; }));
  CHECK(block(0, 3, 7) == doctest::Approx(1.0 / 8));
  CHECK(block(0, 33, 37) == doctest::Approx(1.0 / 6));  // the last block is short
  const Weights official("local", {{"block", "8"}, {"form", "official"}}, kLength, 1);
  CHECK(official.is(0, [](auto i, auto j) { return i % 5 == j % 5; }));
  const Weights window("local", {{"block", "6"}, {"form", "sliding"}}, kLength, 1);
  CHECK(window.is(0, [](auto i, auto j) { return std::abs(i - j) <= 3; }));
}

TEST_CASE("blockbert's heads see one block each, shifted in turn or as often as told") {
  const Weights turns("blockbert", {{"blocks", "3"}}, 36, 4);
  for (std::int64_t h = 0; h < 4; ++h) {
    CHECK(turns.is(h, [&](auto i, auto j) { return j / 12 == (i / 12 + h) % 3; }));
  }
  const Weights told("blockbert", {{"blocks", "3"}, {"head_counts", "3:1"}}, 36, 4);
  for (std::int64_t h = 0; h < 4; ++h) {
    CHECK(told.is(h, [&](auto i, auto j) { return j / 12 == (i / 12 + (h == 3)) % 3; }));
  }
  const auto refused = [](const std::string& counts) {
    return error_text([&] {
      (void)Weights("blockbert", {{"blocks", "3"}, {"head_counts", counts}}, 36, 4);
    });
  };
  CHECK(refused("3:2").find("blockbert.head_counts: expected at most 3 counts") == 0);
  const Weights three("blockbert", {{"blocks", "4"}}, 6, 4);  // of two tokens each
  CHECK(three.is(3, [](auto i, auto j) { return i / 2 == j / 2; }));
  CHECK(refused("1:1:1:1").find("got 1:1:1:1") != std::string::npos);
}

TEST_CASE("sparse patterns are those of the paper, without its causal half") {
  const auto own = [](auto i, auto j) { return i / 6 == j / 6; };
  const auto summary = [](auto, auto j) { return j % 6 >= 4; };
  const OptionValues fixed = {{"stride", "6"}, {"summary", "2"}};
  const Weights merged("sparse_transformer", fixed, kLength, 2);
  CHECK(merged.is(1, [&](auto i, auto j) { return own(i, j) || summary(i, j); }));
  OptionValues turns = fixed;
  turns["heads"] = "interleaved";
  const Weights first("sparse_transformer", turns, kLength, 2, 0),
      second("sparse_transformer", turns, kLength, 1, 1);
  CHECK(first.is(0, own));
  CHECK(first.is(1, summary));
  CHECK(second.is(0, summary));  // a single head takes the other part in the next layer
  turns["pattern"] = "strided";
  const Weights strided("sparse_transformer", turns, kLength, 2);
  CHECK(strided.is(0, [](auto i, auto j) { return std::abs(i - j) <= 6; }));
  CHECK(strided.is(1, [](auto i, auto j) { return (i - j) % 6 == 0; }));
  CHECK(error_text([] {
          (void)Weights("sparse_transformer", {{"pattern", "strided"}}, kLength, 2);
        }).find("needs sparse_transformer.heads=interleaved") != std::string::npos);
}

TEST_CASE("longformer's heads have their windows, and all tokens see the global ones") {
  const auto near = [](std::int64_t i, std::int64_t j, std::int64_t step) {
    return std::abs(i - j) <= 3 * step && (i - j) % step == 0;
  };
  const OptionValues options = {{"window", "6"}, {"globals", "2"}, {"dilation", "1:4"}};
  const Weights weights("longformer", options, kLength, 2);
  for (const std::int64_t h : {0, 1}) {
    CHECK(weights.is(
        h, [&](auto i, auto j) { return j < 2 || near(i, j, h == 0 ? 1 : 4); }, 2));
  }
  CHECK(weights(0, 2, 2) == doctest::Approx(1.0 / 6));  // 0 and 1 once, though near as well
  CHECK(error_text([] {
          (void)Weights("longformer", {{"dilation", "1:2:3"}}, kLength, 2);
        }).find("longformer.dilation: expected a number for each of the 2 heads") == 0);
}

TEST_CASE("global tokens attend to all of x by their own projections, and nothing else does") {
  const Spec& spec = attention::find("longformer");
  const Sizes sizes{.batch = 2, .heads = 2, .n = 30, .width = 4};
  const Layer layer = make_layer(spec, {{"window", "4"}, {"globals", "2"}}, sizes, DType::f64);
  const Problem p = make_problem(spec, sizes, Padding::none);
  const auto outcome = [&](const Problem& problem) {
    return run(layer, problem, training_call(problem.in));
  };
  const auto rows = [](const Outcome& o, std::int64_t begin, std::int64_t end) {
    return tensor::narrow(at(o, "out"), 2, begin, end);
  };
  const Outcome here = outcome(p);
  Problem other = make_problem(spec, sizes, Padding::none, 2);
  other.in.x = p.in.x;
  CHECK(distance(rows(outcome(other), 0, 2), rows(here, 0, 2)) == 0);
  CHECK(distance(rows(outcome(other), 2, 30), rows(here, 2, 30)) > 1);
  other = p;
  other.in.x = make_problem(spec, sizes, Padding::none, 2).in.x;
  CHECK(distance(rows(outcome(other), 0, 2), rows(here, 0, 2)) > 0.1);
  CHECK(distance(rows(outcome(other), 2, 30), rows(here, 2, 30)) == 0);
  other = p;
  other.dout = tensor::narrow_backward(tensor::narrow(p.dout, 2, 1, 2), 2, 1, 30);
  const Outcome of_second = outcome(other);  // the second token's output alone has a cotangent
  CHECK(norm(tensor::narrow(at(of_second, "dx"), 1, 29, 30)) > 1e-3);
  CHECK(norm(at(of_second, "dv")) == 0);
}

TEST_CASE("a window of more keys than are packed at a time equals the reference") {
  const Spec& spec = attention::find("local");
  const Sizes sizes{.batch = 1, .heads = 1, .n = 1300, .width = 2};
  const Layer layer = make_layer(spec, {{"form", "sliding"}, {"block", "1100"}}, sizes, DType::f64);
  const Problem p = make_problem(spec, sizes, Padding::none);
  const Draws none;
  Call call;
  call.injected = &none;
  CHECK(compare(run(layer, p, call), run_reference(layer, p, call)).error < 1e-11);
}

TEST_CASE("with more global tokens than there are, all are global") {
  const Spec& spec = attention::find("longformer");
  const Sizes sizes{.batch = 2, .heads = 2, .n = 6, .width = 4};
  const Problem p = make_problem(spec, sizes, Padding::mixed);
  const auto outcome = [&](const char* globals) {
    const Layer layer = make_layer(spec, {{"globals", globals}}, sizes, DType::f64);
    return run(layer, p, training_call(p.in));
  };
  CHECK(compare(outcome("9"), outcome("6")).error == 0);
}

TEST_CASE("two layers of a sparse pattern join every token with every other") {
  struct Case {
    std::string method;
    OptionValues options;
    std::int64_t heads;
  };
  const std::vector<Case> cases = {
      {"sparse_transformer", {{"stride", "6"}, {"summary", "1"}}, 1},
      {"sparse_transformer", {{"stride", "6"}, {"summary", "1"}, {"heads", "interleaved"}}, 1},
      {"sparse_transformer",
       {{"stride", "6"}, {"pattern", "strided"}, {"heads", "interleaved"}},
       1},
      {"sparse_transformer",
       {{"stride", "6"}, {"pattern", "strided"}, {"heads", "interleaved"}},
       2},
      {"blockbert", {{"blocks", "3"}}, 2},
  };
  for (const Case& c : cases) {
    INFO(c.method, " with ", c.heads, " heads");
    const Weights first(c.method, c.options, 36, c.heads, 0),
        second(c.method, c.options, 36, c.heads, 1);
    CHECK(two_steps_join_all(first, second, 36));
  }
  const Weights local("local", {{"block", "6"}}, 36, 1);
  CHECK_FALSE(two_steps_join_all(local, local, 36));  // blocks never meet
}

TEST_CASE("patterns refuse a batch that is longer than the length they are made for") {
  for (const char* name : {"local", "blockbert", "sparse_transformer", "longformer"}) {
    INFO(name);
    const Spec& spec = attention::find(name);
    const Layer layer =
        make_layer(spec, {}, {.batch = 1, .heads = 2, .n = 7, .width = 3}, DType::f64);
    const Problem p =
        make_problem(spec, {.batch = 1, .heads = 2, .n = 8, .width = 3}, Padding::none);
    CHECK_THROWS_WITH_AS((void)run(layer, p, training_call(p.in)),
                         doctest::Contains("expected at most 7 tokens"), Error);
  }
}

}  // namespace skytape::test
