// Skeinformer: what is drawn, how many of it, and the traps of the method.
#include <algorithm>
#include <cmath>

#include "attention/sampling/skein_slots.hpp"
#include "attention/tiled/tiled.hpp"
#include "tensor/gemm/gemm.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tensor/movement/gather.hpp"
#include "tensor/movement/layout.hpp"
#include "tensor/norm/softmax.hpp"
#include "tests/attention/methods_support.hpp"
#include "tests/support/close.hpp"
#include "tests/support/doctest.hpp"
#include "tests/support/numbers.hpp"

namespace skytape::test {
namespace {

const std::vector<std::string> kFamily = {"skeinformer", "skein_nopilot", "skein_uniform",
                                          "skein_simplenorm", "skein_nonorm"};

/// i32[B] of slots in use, counted in a drawn table.
std::vector<std::int64_t> used_slots(const Tensor& table) {
  const std::vector<double> all = table.to_vector();
  std::vector<std::int64_t> used;
  const auto each = static_cast<std::ptrdiff_t>(all.size()) / table.size(0);
  for (std::int64_t b = 0; b < table.size(0); ++b) {
    const auto begin = all.begin() + b * each;
    used.push_back(std::count_if(begin, begin + each, [](double i) { return i >= 0; }));
  }
  return used;
}

/// A method's output and gradients with the draws given.
Outcome run_with(const std::string& name, const OptionValues& options, const Problem& problem,
                 const Draws& draws) {
  const auto& shape = problem.in.q.shape();
  const Sizes sizes{shape[0], shape[1], shape[2], shape[3]};
  const Layer layer = make_layer(attention::find(name), options, sizes, problem.in.q.dtype());
  Call call = training_call(problem.in);
  call.injected = &draws;
  return run(layer, problem, call);
}

/// Two pilots of one example, and two columns of each of its two heads.
Draws given_columns() {
  Draws draws;
  draws.set("pilot", integers({2, 0}, {1, 2}));
  draws.set("columns", integers({1, 3, 0, 2}, {1, 2, 2}));
  return draws;
}

/// column_weights of pilots with q as it is and their row sums as tiled attention finds them.
Tensor column_weights(const Problem& p, const Tensor& pilots, double scale) {
  const Tensor index = attention::pilot_slots(pilots, p.in.mask, false).index;
  const Tensor rows = tensor::gather_rows(p.in.q, index);  // [B, H, S, D]
  const attention::TiledOptions options{attention::Score::softmax, scale, {}};
  const Tensor lse = attention::tiled_forward(rows, p.in.k, {}, p.in.mask, options).lse;
  return attention::column_weights(rows, lse, p.in.k, p.in.v, p.in.mask, pilots, scale);
}

Problem problem_of(const Sizes& sizes, Padding padding = Padding::none) {
  return make_problem(attention::find("skeinformer"), sizes, padding);
}

}  // namespace

TEST_CASE(
    "a pilot row counts once, for the gradient as often as it was drawn, unused slots never") {
  const Tensor pilots =
      Tensor::from(std::vector<int>{2, 0, 2, -1, /**/ 1, 1, 3, 1}, {2, 4}, DType::i32, Device::cpu);
  const Tensor mask = Tensor::full({2, 4}, 1, DType::f64, Device::cpu);
  const std::vector<double> once = {1, 1, 0, 0, /**/ 1, 0, 1, 0};
  for (const bool repeats : {false, true}) {
    const attention::PilotSlots slots = attention::pilot_slots(pilots, mask, repeats);
    CHECK(slots.index.to_vector() == std::vector<double>{2, 0, 2, 0, /**/ 1, 1, 3, 1});
    CHECK(slots.first.to_vector() == once);
    CHECK(slots.gradient.to_vector() ==
          (repeats ? std::vector<double>{1, 1, 1, 0, /**/ 1, 1, 1, 1} : once));
    CHECK(slots.others.to_vector() == std::vector<double>{0, 1, 0, 1, /**/ 1, 0, 1, 0});
  }
}

TEST_CASE("column weights are the column norms of the pilot rows times the value norms") {
  const Problem p = problem_of({.batch = 2, .heads = 2, .n = 21, .width = 5}, Padding::mixed);
  const Tensor pilots = integers({3, 7, 3, -1, 1, 0, 2, 13}, {2, 4});
  const Tensor weights = column_weights(p, pilots, 0.5);
  const Tensor index = integers({3, 7, 3, 0, 1, 0, 2, 13}, {2, 4});
  const Tensor bias = tensor::unary(tensor::Unary::log, p.in.mask).reshape({2, 1, 1, 21});
  const Tensor scores = tensor::affine(
      tensor::matmul(tensor::gather_rows(p.in.q, index), p.in.k, Op::none, Op::transpose), 0.5);
  Tensor rows = tensor::softmax(tensor::add(scores, bias));  // [B, H, S, N]
  const Tensor used = Tensor::from<double>(std::vector<double>{1, 1, 1, 0, 1, 1, 1, 1}, {2, 4},
                                           DType::f64, Device::cpu);
  rows = tensor::mask_rows(rows, used);
  const Tensor norms =
      tensor::unary(tensor::Unary::sqrt,
                    tensor::multiply(tensor::sum(tensor::unary(tensor::Unary::square, rows), 2),
                                     tensor::row_dot(p.in.v, p.in.v)));
  const Tensor expected = tensor::multiply(norms, p.in.mask.reshape({2, 1, 21}));
  CHECK(relative_error(weights, expected) < 1e-12);
}

TEST_CASE("first columns are drawn in proportion to their weights") {
  const Sizes sizes{.batch = 1, .heads = 1, .n = 8, .width = 4};
  const Layer layer =
      make_layer(attention::find("skeinformer"), {{"features", "3"}}, sizes, DType::f64);
  const Problem p = problem_of(sizes);
  Draws pilots;
  pilots.set("pilot", integers({1, 4, 6}, {1, 3}));
  const std::vector<double> expected =
      attention::normalise(column_weights(p, pilots.get("pilot"), 0.5)).to_vector();
  std::vector<double> share(8);
  constexpr int kSeeds = 4000;  // standard error <= 0.008
  for (int seed = 0; seed < kSeeds; ++seed) {
    Call call = training_call(p.in);
    call.random.key = static_cast<std::uint64_t>(seed);
    call.injected = &pilots;
    const Tensor columns = layer.method->draw(p.in, call).get("columns");
    share[static_cast<std::size_t>(columns.to_vector()[0])] += 1.0 / kSeeds;
  }
  for (std::size_t i = 0; i < 8; ++i) CHECK(std::abs(share[i] - expected[i]) < 0.04);
}

TEST_CASE("the shortest example of the batch bounds the slots, or each example its own") {
  const Problem p = problem_of({.batch = 3, .heads = 2, .n = 20, .width = 4}, Padding::mixed);
  Tensor mask = p.in.mask.clone();  // tokens: 20, 14 and, with holes, fewer
  const std::vector<double> tokens = tensor::sum(mask, 1).to_vector();
  const auto shortest = static_cast<std::int64_t>(*std::min_element(tokens.begin(), tokens.end()));
  const auto number = [](double value) {
    return Tensor::full({1}, value, DType::i32, Device::cpu);
  };
  const auto draw = [&](const OptionValues& options, const Tensor& fewest) {
    const Layer layer = make_layer(attention::find("skein_uniform"), options,
                                   {.batch = 3, .heads = 2, .n = 20, .width = 4}, DType::f64);
    Call call = training_call(p.in);
    call.fewest_tokens = fewest;
    std::vector<std::int64_t> used = used_slots(layer.method->draw(p.in, call).get("columns"));
    for (std::int64_t& u : used) u /= 2;  // heads
    return used;
  };
  using Slots = std::vector<std::int64_t>;
  CHECK(draw({{"features", "5"}}, {}) == Slots{5, 5, 5});
  CHECK(draw({}, {}) == Slots(3, shortest - 1));
  CHECK(draw({}, number(4)) ==
        Slots{3, 3, 3});  // another example of the full batch has four tokens
  CHECK(draw({}, number(1)) == Slots{1, 1, 1});  // never less than one
  CHECK(draw({}, number(0)) == Slots{1, 1, 1});  // no example has a token
  // An example without tokens needs no columns, and bounds nobody's.
  CHECK(attention::slots_in_use({128, false},
                                Tensor::from(std::vector<double>{1, 1, 1, 0, 0, 0, 1, 1, 1}, {3, 3},
                                             DType::f64, Device::cpu),
                                Call{})
            .to_vector() == std::vector<double>{2, 0, 2});
  const OptionValues own = {{"feature_limit", "example"}};
  CHECK(draw(own, number(4)) == Slots{static_cast<std::int64_t>(tokens[0]) - 1,
                                      static_cast<std::int64_t>(tokens[1]) - 1,
                                      static_cast<std::int64_t>(tokens[2]) - 1});
}

TEST_CASE("an example without tokens uses no slot and gives zero, its neighbours do not mind") {
  const Sizes sizes{.batch = 2, .heads = 2, .n = 16, .width = 4};
  Problem p = problem_of(sizes);
  std::vector<double> mask(32, 1);
  std::fill(mask.begin() + 16, mask.end(), 0);
  p.in.mask = Tensor::from(mask, {2, 16}, DType::f64, Device::cpu);
  for (const std::string& name : kFamily) {
    INFO(name);
    const Layer layer =
        make_layer(attention::find(name), {{"feature_limit", "example"}, {"features", "5"}}, sizes,
                   DType::f64);
    const Outcome o = run(layer, p, training_call(p.in));
    for (const auto& [array, tensor] : o) {
      INFO(array);
      CHECK(norm(tensor[1]) == 0);
      CHECK(norm(tensor[0]) > 0);
      CHECK(std::isfinite(norm(tensor[0])));
    }
  }
}

TEST_CASE("more columns than an example has tokens leave no rest to stand for") {
  const Tensor mask =
      Tensor::from(std::vector<double>{1, 1, 0, 0}, {1, 4}, DType::f64, Device::cpu);
  const attention::ColumnSlots slots =
      attention::column_slots(integers({0, 1, 2}, {1, 1, 3}), mask);
  CHECK(slots.weights.to_vector() == std::vector<double>{1, 1, 1, 0});
  CHECK(slots.inverse_rest.to_vector() == std::vector<double>{0});
}

TEST_CASE("unused slots change nothing") {
  const Sizes sizes{.batch = 1, .heads = 2, .n = 19, .width = 4};
  const Problem p = problem_of(sizes);
  Draws tight, loose;
  tight.set("columns", integers({4, 9, 2, 17, 0, 5}, {1, 2, 3}));
  loose.set("columns", integers({4, 9, 2, -1, -1, 17, 0, 5, -1, -1}, {1, 2, 5}));
  tight.set("pilot", integers({8, 3, 3}, {1, 3}));
  loose.set("pilot", integers({8, 3, 3, -1, -1}, {1, 5}));
  for (const std::string& name : kFamily) {
    INFO(name);
    const Outcome a = run_with(name, {}, p, tight), b = run_with(name, {}, p, loose);
    CHECK(compare(b, a).error < 1e-13);
  }
}

TEST_CASE("the official pilot gradient counts a row as often as it was drawn") {
  const Problem p = problem_of({.batch = 1, .heads = 2, .n = 19, .width = 4});
  Draws draws;
  draws.set("columns", integers({4, 9, 2, 17, 0, 5}, {1, 2, 3}));
  draws.set("pilot", integers({8, 3, 8, 8}, {1, 4}));
  const Outcome truth = run_with("skeinformer", {}, p, draws);
  const Outcome official = run_with("skeinformer", {{"pilot_gradient", "official"}}, p, draws);
  CHECK(distance(at(official, "out"), at(truth, "out")) == 0);
  // A pilot row's query gets its gradient from the pilot alone.
  const Tensor row8 = tensor::narrow(at(truth, "dq"), 2, 8, 9);
  const Tensor row3 = tensor::narrow(at(truth, "dq"), 2, 3, 4);
  CHECK(relative_error(tensor::narrow(at(official, "dq"), 2, 8, 9), tensor::affine(row8, 3)) <
        1e-13);
  CHECK(relative_error(tensor::narrow(at(official, "dq"), 2, 3, 4), row3) < 1e-13);
}

TEST_CASE("scores far beyond the range of exp stay finite in f32") {
  const Sizes sizes{.batch = 2, .heads = 2, .n = 24, .width = 8};
  Problem p = problem_of(sizes, Padding::mixed);
  p.in.q = tensor::affine(p.in.q, 200);
  const Problem p32 = convert(p, DType::f32);
  for (const std::string& name : kFamily) {
    INFO(name);
    const Layer layer = make_layer(attention::find(name), {{"features", "6"}}, sizes, DType::f32);
    for (const auto& [array, tensor] : run(layer, p32, training_call(p32.in))) {
      INFO(array);
      CHECK(tensor::all_finite(tensor));
    }
  }
}

TEST_CASE("with importance weights the mean over draws is exact attention") {
  const Sizes sizes{.batch = 1, .heads = 1, .n = 16, .width = 4};
  const Problem p = problem_of(sizes);
  const Layer exact =
      make_layer(attention::find("softmax"), {{"attention_dropout", "0"}}, sizes, DType::f64);
  const Layer layer = make_layer(attention::find("skein_nonorm"),
                                 {{"weighted", "1"}, {"features", "8"}}, sizes, DType::f64);
  Call call = training_call(p.in);
  const Tensor truth = at(run(exact, p, call), "out");
  Tensor mean = zeros_like(truth);
  double one_error = 0;
  constexpr int kSeeds = 400;
  for (int seed = 0; seed < kSeeds; ++seed) {
    call.random.key = 1000 + static_cast<std::uint64_t>(seed);
    const Tensor out = layer.method->forward(p.in, layer.method->draw(p.in, call), call).out;
    tensor::accumulate(mean, out, 1.0 / kSeeds);
    one_error = std::max(one_error, distance(out, truth));
  }
  CHECK(distance(mean, truth) < 0.15 * norm(truth));
  CHECK(one_error > 0.3 * norm(truth));  // a single draw is far off: the mean does the work
}

TEST_CASE("a slot without a column has no weight, however rare the first column is") {
  const Sizes sizes{.batch = 1, .heads = 1, .n = 4, .width = 3};
  const Problem p = problem_of(sizes);
  const auto outcome = [&](double first) {  // its share, of which a slot without a column reads
    Draws draws;
    draws.set("pilot", integers({2, -1}, {1, 2}));
    draws.set("columns", integers({1, -1}, {1, 1, 2}));
    draws.set("prob", Tensor::from(std::vector<double>{first, 0.5, 0.25, 0.25}, {1, 1, 4},
                                   DType::f64, Device::cpu));
    return run_with("skein_nonorm", {{"weighted", "1"}, {"features", "2"}}, p, draws);
  };
  const Outcome usual = outcome(0.25);
  for (const auto& [name, tensor] : outcome(1e-310)) {  // 1 / p is infinite
    INFO(name);
    CHECK(distance(tensor, at(usual, name)) == 0);
  }
}

TEST_CASE("columns that are given without their shares get those that would be drawn") {
  const Sizes sizes{.batch = 1, .heads = 2, .n = 4, .width = 3};
  const Problem p = problem_of(sizes);
  const OptionValues options{{"weighted", "1"}, {"features", "2"}};
  Draws draws = given_columns();
  const Tensor out = at(run_with("skein_nonorm", options, p, draws), "out");
  draws.set("prob",
            attention::normalise(column_weights(p, draws.get("pilot"), 1 / std::sqrt(3.0))));
  const Tensor expected = at(run_with("skein_nonorm", options, p, draws), "out");
  CHECK(relative_error(out, expected) < 1e-12);
}

TEST_CASE("keep_pilot gives the pilot rows exact attention") {
  const Sizes sizes{.batch = 1, .heads = 2, .n = 19, .width = 4};
  const Problem p = problem_of(sizes);
  Draws draws;
  draws.set("columns", integers({4, 9, 2, 17, 0, 5}, {1, 2, 3}));
  draws.set("pilot", integers({8, 3, 8}, {1, 3}));
  const Tensor exact = at(run_with("softmax", {{"attention_dropout", "0"}}, p, {}), "out");
  for (const char* name : {"skein_uniform", "skein_simplenorm", "skein_nonorm"}) {
    INFO(name);
    const auto rows = [&](const char* keep, std::int64_t row) {
      const Tensor out = at(run_with(name, {{"keep_pilot", keep}}, p, draws), "out");
      return relative_error(tensor::narrow(out, 2, row, row + 1),
                            tensor::narrow(exact, 2, row, row + 1));
    };
    for (const std::int64_t pilot : {3, 8}) {
      CHECK(rows("1", pilot) < 1e-12);
      CHECK(rows("0", pilot) > 1e-3);
    }
    CHECK(rows("1", 4) > 1e-3);
  }
}

TEST_CASE("a token whose value is zero is drawn before padding") {
  Problem p = problem_of({.batch = 1, .heads = 1, .n = 21, .width = 5});
  p.in.mask.data<double>()[20] = 0;
  p.in.v[0][0][7].fill(0);
  const std::vector<double> weights = column_weights(p, integers({3, 0}, {1, 2}), 0.5).to_vector();
  CHECK(weights[7] > 0);
  CHECK(weights[20] == 0);
}

TEST_CASE("columns are drawn by other numbers than pilots") {
  // The column with the largest number comes first, as columns are uniform. Were the pilots'
  // numbers the same, the pilot of that place would be among the last rows.
  const Sizes sizes{.batch = 1, .heads = 1, .n = 16, .width = 2};
  const Problem p = problem_of(sizes);
  const Layer layer =
      make_layer(attention::find("skein_uniform"), {{"keep_pilot", "1"}}, sizes, DType::f64);
  int last = 0, counted = 0;
  for (std::uint64_t key = 0; key < 60; ++key) {
    Call call;
    call.random.key = key;
    const Draws draws = layer.method->draw(p.in, call);
    const auto first = static_cast<std::size_t>(draws.get("columns").to_vector()[0]);
    const std::vector<double> pilots = draws.get("pilot").to_vector();
    if (pilots[first] < 0) continue;  // a place that is not used
    ++counted;
    last += pilots[first] >= 12;
  }
  CHECK(counted > 40);
  CHECK(last < counted / 2);  // a quarter in the mean
}

TEST_CASE("injected columns and shares that do not fit are refused") {
  const Sizes sizes{.batch = 1, .heads = 2, .n = 4, .width = 3};
  const Problem p = problem_of(sizes);
  const OptionValues options{{"weighted", "1"}, {"features", "2"}};
  Draws draws = given_columns();
  draws.set("prob", Tensor::full({1, 2, 3}, 0.25, DType::f64, Device::cpu));
  CHECK_THROWS_WITH_AS((void)run_with("skein_nonorm", options, p, draws),
                       doctest::Contains("expected prob [B, H, N] = [1, 2, 4]"), Error);
  draws.set("prob", Tensor::full({1, 2, 4}, 0.25, DType::f64, Device::cpu));
  CHECK(norm(at(run_with("skein_nonorm", options, p, draws), "out")) > 0);
  draws.set("columns", integers({1, 3, 0, -1}, {1, 2, 2}));
  CHECK_THROWS_WITH_AS((void)run_with("skein_nonorm", options, p, draws),
                       doctest::Contains("slot 1 of example 0 holds 3 in head 0, -1 in head 1"),
                       Error);
  draws.set("columns", integers({1, 4, 0, 2}, {1, 2, 2}));
  CHECK_THROWS_WITH_AS((void)run_with("skein_nonorm", options, p, draws),
                       doctest::Contains("column_slots: row 4 is outside [-1, 4)"), Error);
  draws.set("pilot", integers({2, 4}, {1, 2}));
  CHECK_THROWS_WITH_AS((void)run_with("skein_nonorm", options, p, draws),
                       doctest::Contains("draws: pilot: index 4 is outside [-1, 4)"), Error);
}

TEST_CASE("the error falls with the number of features") {
  const Sizes sizes{.batch = 1, .heads = 2, .n = 96, .width = 8};
  const Problem p = problem_of(sizes);
  const Layer exact =
      make_layer(attention::find("softmax"), {{"attention_dropout", "0"}}, sizes, DType::f64);
  Call call = training_call(p.in);
  const Tensor truth = at(run(exact, p, call), "out");
  for (const std::string& name : kFamily) {
    INFO(name);
    const auto error = [&](const char* features) {
      const Layer layer =
          make_layer(attention::find(name), {{"features", features}}, sizes, DType::f64);
      double sum = 0;
      for (std::uint64_t seed = 0; seed < 20; ++seed) {
        call.random.key = seed;
        sum +=
            distance(layer.method->forward(p.in, layer.method->draw(p.in, call), call).out, truth);
      }
      return sum;
    };
    CHECK(error("64") < 0.75 * error("8"));
  }
}

TEST_CASE("half a batch draws and computes what the whole one does") {
  const Sizes sizes{.batch = 4, .heads = 2, .n = 22, .width = 4};
  const Problem p = problem_of(sizes, Padding::mixed);
  for (const std::string& name : kFamily) {
    INFO(name);
    const Layer layer = make_layer(attention::find(name), {{"features", "7"}}, sizes, DType::f64);
    Call call = training_call(p.in);  // fewest_tokens of the full batch
    const Outcome whole = run(layer, p, call);
    call.first_example = 2;
    const Outcome half = run(layer, permute(p, {2, 3}), call);
    for (const auto& [array, tensor] : half) {
      INFO(array);
      CHECK(relative_error(tensor, at(whole, array).slice(2, 4)) < 1e-12);
    }
  }
}

}  // namespace skytape::test
