// Synthesizer: given the logits of softmax attention it is softmax attention, and what its forms
// learn grows as they say.
#include <cmath>

#include "tensor/gemm/gemm.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tests/attention/methods_support.hpp"
#include "tests/support/doctest.hpp"

namespace skytape::test {
namespace {

constexpr Sizes kSizes{.batch = 1, .heads = 2, .n = 37, .width = 8};

/// softmax attention on one example with holes, without dropout.
struct Truth {
  Problem problem = example(make_problem(attention::find("softmax"),
                                         {3, kSizes.heads, kSizes.n, kSizes.width}, Padding::mixed),
                            2);
  Outcome outcome;
  Truth() {
    Call call = training_call(problem.in);
    call.training = false;
    outcome = run(make_layer(attention::find("softmax"), {}, kSizes, DType::f64), problem, call);
  }
};

/// The layer's outcome once its parameters have these values: [H, ..] for [1, H, ..].
Outcome outcome_with(const OptionValues& options, const Problem& problem,
                     const std::vector<std::pair<std::string, Tensor>>& values) {
  const Layer layer = make_layer(attention::find("synthesizer"), options, kSizes, DType::f64);
  for (const auto& [name, value] : values) {
    Parameter* const parameter = layer.store->find(name);
    REQUIRE_MESSAGE(parameter != nullptr, name);
    parameter->value.copy_from(value.reshape(parameter->shape));
  }
  return run(layer, problem, training_call(problem.in));
}

void check_close(const Tensor& ours, const Tensor& expected) {
  CHECK(distance(ours.reshape(expected.shape()), expected) <= 1e-12 * norm(expected));
}

}  // namespace

TEST_CASE("a table with the logits of softmax attention gives softmax attention") {
  const Truth truth;
  const Inputs& in = truth.problem.in;
  const double scale = 1 / std::sqrt(static_cast<double>(kSizes.width));
  const Tensor logits =
      tensor::affine(tensor::matmul(in.q, in.k, Op::none, Op::transpose), scale);  // [1, H, N, N]
  const Outcome ours =
      outcome_with({{"logits", "random"}}, truth.problem, {{"attn.random", logits}});
  check_close(at(ours, "out"), at(truth.outcome, "out"));
  check_close(at(ours, "dv"), at(truth.outcome, "dv"));
  const Tensor dlogits = at(ours, "dattn.random").reshape(logits.shape());
  check_close(tensor::affine(tensor::matmul(dlogits, in.k), scale), at(truth.outcome, "dq"));
  check_close(tensor::affine(tensor::matmul(dlogits, in.q, Op::transpose, Op::none), scale),
              at(truth.outcome, "dk"));
}

TEST_CASE("factors that are the queries and keys give softmax attention") {
  const Truth truth;
  const Inputs& in = truth.problem.in;
  const double scale = 1 / std::sqrt(static_cast<double>(kSizes.width));
  const Outcome ours =
      outcome_with({{"logits", "factorised"}, {"rank", "8"}}, truth.problem,
                   {{"attn.random1", tensor::affine(in.q, scale)}, {"attn.random2", in.k}});
  check_close(at(ours, "out"), at(truth.outcome, "out"));
  check_close(tensor::affine(at(ours, "dattn.random1"), scale), at(truth.outcome, "dq"));
  check_close(at(ours, "dattn.random2"), at(truth.outcome, "dk"));
}

TEST_CASE("a table that is not trained has no gradient, and the same output") {
  const Truth truth;
  const Outcome trained = outcome_with({{"logits", "random"}}, truth.problem, {});
  const Outcome fixed = outcome_with({{"logits", "random"}, {"trained", "0"}}, truth.problem, {});
  CHECK(distance(at(fixed, "out"), at(trained, "out")) == 0);
  CHECK(fixed.size() == trained.size() - 1);
}

TEST_CASE("tables and maps have the sizes that the method states") {
  const auto count = [](const OptionValues& options, std::int64_t n) {
    Sizes sizes = kSizes;
    sizes.n = n;
    return make_layer(attention::find("synthesizer"), options, sizes, DType::f64)
        .store->parameter_count();
  };
  CHECK(count({{"logits", "random"}}, 64) == 2 * 64 * 64);
  CHECK(count({{"logits", "factorised"}, {"rank", "5"}}, 64) == 2 * 2 * 64 * 5);
  // As long again: a map's rows, with their bias, for each head or for all.
  const auto growth = [&](const char* shared) {
    const OptionValues options = {{"logits", "dense"}, {"hidden", "6"}, {"shared", shared}};
    return count(options, 128) - count(options, 64);
  };
  CHECK(growth("0") == 2 * 64 * 7);
  CHECK(growth("1") == 64 * 7);
}

TEST_CASE("tables of more rows than are made at a time equal the reference") {
  const Spec& spec = attention::find("synthesizer");
  const Sizes sizes{.batch = 2, .heads = 1, .n = 600, .width = 2};  // 436 rows at a time
  const Problem p = make_problem(spec, sizes, Padding::mixed);
  const Draws none;
  Call call;
  call.injected = &none;
  for (const char* logits : {"random", "factorised"}) {
    const Layer layer = make_layer(spec, {{"logits", logits}, {"rank", "3"}}, sizes, DType::f64);
    const Worst worst = compare(run(layer, p, call), run_reference(layer, p, call));
    INFO(logits, ", worst in ", worst.name);
    CHECK(worst.error < 1e-11);
  }
}

TEST_CASE("tables refuse values of other heads, or of more positions than they have") {
  const Spec& spec = attention::find("synthesizer");
  for (const char* logits : {"random", "factorised"}) {
    const Layer layer = make_layer(spec, {{"logits", logits}}, kSizes, DType::f64);
    for (const Sizes& other : {Sizes{.batch = 1, .heads = 3, .n = kSizes.n, .width = 8},
                               Sizes{.batch = 1, .heads = 2, .n = kSizes.n + 1, .width = 8}}) {
      const Problem p = make_problem(spec, other, Padding::none);
      CHECK_THROWS_WITH_AS((void)run(layer, p, training_call(p.in)),
                           doctest::Contains("the tables have 2 heads and 37 positions, got v"),
                           Error);
    }
  }
}

}  // namespace skytape::test
