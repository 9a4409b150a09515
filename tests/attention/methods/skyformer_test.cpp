// Skyformer beyond what the loop over the registry checks.
#include <cmath>

#include "tensor/kernels/elementwise.hpp"
#include "tests/attention/methods_support.hpp"
#include "tests/support/close.hpp"
#include "tests/support/doctest.hpp"

namespace skytape::test {
namespace {

const Spec& skyformer() { return attention::find("skyformer"); }

Tensor table(const std::vector<int>& rows, const Shape& shape) {
  return Tensor::from(rows, shape, DType::i32, Device::cpu);
}

Outcome run_with(const OptionValues& options, const Problem& problem, const Sizes& sizes,
                 const Tensor& landmarks, bool reference = false) {
  const Layer layer = make_layer(skyformer(), options, sizes, DType::f64);
  Draws draws;
  draws.set("landmarks", landmarks);
  Call call = training_call(problem.in);
  call.injected = &draws;
  return reference ? run_reference(layer, problem, call) : run(layer, problem, call);
}

constexpr Sizes kSmall{.batch = 1, .heads = 2, .n = 12, .width = 4};

}  // namespace

TEST_CASE("repeated landmarks, queries and keys in any order, equal the reference") {
  const Problem problem = make_problem(skyformer(), kSmall, Padding::none);
  const Tensor rows = table({23, 0, 0, 5, 12, 23, 23, 7}, {1, 1, 8});
  const Worst worst =
      compare(run_with({}, problem, kSmall, rows), run_with({}, problem, kSmall, rows, true));
  INFO(worst.name);
  CHECK(worst.error < 1e-11);
}

TEST_CASE("an official start equals the reference and needs a batch at once") {
  const Sizes sizes{.batch = 2, .heads = 2, .n = 12, .width = 4};
  const Problem problem = make_problem(skyformer(), sizes, Padding::none);
  const OptionValues options = {{"inverse_start", "official"}};
  const Tensor rows = table({0, 3, 5, 14, 17, 20, 2, 2, 9, 22, 13, 12}, {2, 1, 6});
  const Outcome both = run_with(options, problem, sizes, rows);
  const Worst worst = compare(both, run_with(options, problem, sizes, rows, true));
  INFO(worst.name);
  CHECK(worst.error < 1e-11);

  double difference = 0;
  for (std::int64_t b = 0; b < 2; ++b) {
    const Outcome alone = run_with(options, example(problem, b), kSmall, rows.slice(b, b + 1));
    difference += distance(at(alone, "out"), at(both, "out").slice(b, b + 1));
  }
  CHECK(difference > 1e-6);  // one of the two does not own the largest column sum
}

TEST_CASE("accumulating a set of landmarks with itself doubles the kernel matrix") {
  // A and N_S double (N_S fourfold with both sums); with gamma fourfold as well, M^ is the same,
  // R halves, and A R Z R A^T is what it was.
  const Problem problem = make_problem(skyformer(), kSmall, Padding::none);
  const std::vector<int> once = {1, 4, 13, 20}, twice = {1, 4, 13, 20, 1, 4, 13, 20};
  const Outcome one = run_with({{"gamma", "0.1"}}, problem, kSmall, table(once, {1, 1, 4}));
  const Outcome two =
      run_with({{"gamma", "0.4"}, {"accumulation", "2"}}, problem, kSmall, table(twice, {1, 2, 4}));
  const Worst worst = compare(two, one);
  INFO(worst.name);
  CHECK(worst.error < 1e-11);
}

TEST_CASE("landmarks without an axis of sets are refused: the batch would be taken for it") {
  const Sizes sizes{.batch = 2, .heads = 2, .n = 12, .width = 4};
  const Problem problem = make_problem(skyformer(), sizes, Padding::none);
  for (const Shape& shape : {Shape{2, 4}, Shape{8}}) {
    const auto rows = table({0, 5, 12, 23, 1, 6, 13, 20}, shape);
    CHECK_THROWS_WITH_AS((void)run_with({}, problem, sizes, rows),
                         doctest::Contains("expected i32 [B, A, L] or [B, H, A, L], got i32"),
                         Error);
  }
}

TEST_CASE("the default scale is the fourth root of the inverse head width") {
  const Problem problem = make_problem(skyformer(), kSmall, Padding::none);
  const Tensor rows = table({1, 4, 13, 20}, {1, 1, 4});
  const Outcome automatic = run_with({}, problem, kSmall, rows);
  const Outcome given = run_with({{"scale", "0.70710678118654752"}}, problem, kSmall, rows);
  CHECK(compare(automatic, given).error < 1e-13);
}

TEST_CASE("scale multiplies queries and keys of both Gaussian kernels") {
  const Problem problem = make_problem(skyformer(), kSmall, Padding::none);
  Problem scaled = problem;  // by 0.9, over the default scale
  for (Tensor* x : {&scaled.in.q, &scaled.in.k}) *x = tensor::affine(*x, 0.9 * std::sqrt(2.0));
  for (const char* method : {"skyformer", "kernelized"}) {
    INFO(method);
    const auto out = [&](const OptionValues& options, const Problem& p) {
      const Layer layer = make_layer(attention::find(method), options, kSmall, DType::f64);
      return at(run(layer, p, Call{}), "out");
    };
    const Tensor expected = out({}, scaled);
    CHECK(distance(out({{"scale", "0.9"}}, problem), expected) <= 1e-11 * norm(expected));
  }
}

TEST_CASE("as many sets of landmarks are drawn as accumulation says") {
  const Problem problem = make_problem(skyformer(), kSmall, Padding::none);
  const auto drawn = [&](const char* rule) {
    const OptionValues options = {{"features", "5"}, {"accumulation", "3"}, {"landmarks", rule}};
    const Layer layer = make_layer(skyformer(), options, kSmall, DType::f64);
    return layer.method->draw(problem.in, Call{}).get("landmarks").shape();
  };
  CHECK(drawn("independent") == Shape({1, 2, 3, 5}));
  CHECK(drawn("official") == Shape({1, 3, 5}));
}

TEST_CASE("an example alone has an official start of its own") {
  const Sizes sizes{.batch = 2, .heads = 2, .n = 12, .width = 4};
  const Problem problem = make_problem(skyformer(), sizes, Padding::none);
  const Layer layer = make_layer(skyformer(), {{"inverse_start", "official"}, {"features", "6"}},
                                 sizes, DType::f64);
  Call call;
  call.alone = true;
  const Outcome both = run(layer, problem, call);
  for (std::int64_t b = 0; b < 2; ++b) {
    const Outcome one = run(layer, example(problem, b), call);
    for (const auto& [name, tensor] : both) {
      INFO("example ", b, ", ", name);
      CHECK(distance(permute(tensor, {b}), at(one, name)) <= 1e-11 * norm(at(one, name)));
    }
  }
}

TEST_CASE("a Skyformer sequence without real tokens gives zeros and gets zeros") {
  const Problem problem = make_problem(skyformer(), kSmall, Padding::all);
  const Outcome outcome = run_with({}, problem, kSmall, table({0, 0, 12, 12}, {1, 1, 4}));
  for (const auto& [name, tensor] : outcome) CHECK(norm(tensor) == 0);
}

TEST_CASE("Skyformer refuses unknown options and illegal values") {
  const auto text = [](const OptionValues& options) {
    return error_text([&] { (void)make_layer(skyformer(), options, kSmall, DType::f64); });
  };
  CHECK(text({{"feature", "8"}}).find("features") != std::string::npos);
  CHECK(text({{"landmarks", "all"}}).find("official|independent|uniform") != std::string::npos);
  CHECK(text({{"features", "0"}}).find("expected 1..") != std::string::npos);
}

}  // namespace skytape::test
