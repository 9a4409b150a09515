// Reformer: hashing, sorting, rounds, and what its chunks must do.
#include <algorithm>
#include <cmath>

#include "attention/selection/lsh.hpp"
#include "autograd/gradcheck.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/movement/layout.hpp"
#include "tests/attention/methods_support.hpp"
#include "tests/support/close.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/doctest.hpp"
#include "tests/support/numbers.hpp"

namespace skytape::test {
namespace {

Problem reformer_problem(const Sizes& sizes, Padding padding = Padding::none) {
  return make_problem(attention::find("reformer"), sizes, padding);
}

}  // namespace

TEST_CASE("a bucket is the axis, with its sign, that the rotated token points along most") {
  // Two axes, rotation = identity: buckets 0, 1 for +x, +y and 2, 3 for -x, -y; 4 for padding.
  const Tensor x = f64({2, 1, /**/ 1, 2, /**/ -2, 1, /**/ 1, -2, /**/ 5, 5}, {1, 1, 5, 2});
  const Tensor rotation = f64({1, 0, 0, 1}, {1, 2, 1, 2});
  const Tensor mask = f64({1, 1, 1, 1, 0}, {1, 5});
  CHECK(attention::negative_buckets(x, rotation, mask, {4}).to_vector() ==
        std::vector<double>{0, -1, -2, -3, -4});
  // A zero token has all alike, of which the first counts.
  CHECK(attention::negative_buckets(zeros_like(x), rotation, mask, {4}).to_vector() ==
        std::vector<double>{0, 0, 0, 0, -4});
  // Two factors of one axis each: signs of x and y; padding comes after all four.
  CHECK(attention::negative_buckets(x, rotation, mask, {2, 2}).to_vector() ==
        std::vector<double>{0, 0, -1, -2, -4});
}

TEST_CASE("sorting by bucket is stable, fills rounds up with nothing, and knows its inverse") {
  const Tensor negative = f64({-2, 0, -1, 0, -2, /**/ -1, -1, -1, -1, 0}, {1, 1, 2, 5});
  for_each_device([&](Device device) {
    const attention::SortedSlots s = attention::sort_slots(negative.to(device), 6);
    CHECK(s.token.to_vector() == std::vector<double>{1, 3, 2, 0, 4, -1, /**/ 4, 0, 1, 2, 3, -1});
    CHECK(s.slot.to_vector() == std::vector<double>{3, 0, 2, 1, 4, /**/ 7, 8, 9, 10, 6});
  });
}

TEST_CASE("rounds are weighted by their row sums, and the weights' gradient is right") {
  const Tensor slot = integers({0, 2, /**/ 5, 4}, {1, 1, 2, 2});  // slots 1 and 3 hold no token
  const Tensor out = random_tensor({1, 1, 6, 3}),
               lse = random_tensor({1, 1, 6}, DType::f64, Device::cpu, 2);
  const Tensor y = attention::combine_rounds(out, lse, slot);
  const std::vector<double> o = out.to_vector(), l = lse.to_vector(), got = y.to_vector();
  const double a = std::exp(l[0]), b = std::exp(l[5]);
  CHECK(got[1] == doctest::Approx((a * o[1] + b * o[16]) / (a + b)));
  // Weights of rounds that are far apart: any e^lse would overflow.
  const Tensor apart = f64({-3000, 0, 2000, 0, -2000, 3000}, {1, 1, 6});
  const std::vector<double> alone = attention::combine_rounds(out, apart, slot).to_vector();
  CHECK(alone == std::vector<double>{o[15], o[16], o[17], o[6], o[7], o[8]});
  const Function f = [&](Tape&, std::span<const Var> x) {
    return record(
        "combine", {x[0], x[1]}, attention::combine_rounds(x[0].value(), x[1].value(), slot),
        [=, u = x[0].value(), w = x[1].value()](const Tensor& dy, Grads& g) {
          const attention::RoundGradients d = attention::combine_rounds_backward(u, w, slot, dy);
          g.add(0, d.dout);
          g.add(1, d.dlse);
        });
  };
  const GradcheckReport report = gradcheck(f, {out, lse});
  CHECK_MESSAGE(report.passed, report.to_string());
}

TEST_CASE("more rounds than a kernel holds are an error that says how many it does") {
  const Tensor slot = Tensor::zeros({1, 1, 65, 1}, DType::i32, Device::cpu);
  CHECK_THROWS_WITH_AS((void)attention::combine_rounds(random_tensor({1, 1, 65, 2}),
                                                       random_tensor({1, 1, 65}), slot),
                       doctest::Contains("combine_rounds: at most 64 rounds, got"), Error);
}

TEST_CASE("keys have unit length, and a zero token stays finite") {
  Tensor x = random_tensor({4, 6});
  x.slice(0, 1).fill(0);
  const std::vector<double> k = attention::unit_keys(x).to_vector();
  double length = 0;
  for (std::size_t c = 6; c < 12; ++c) length += k[c] * k[c];
  CHECK(length == doctest::Approx(1).epsilon(1e-5));  // the epsilon in rho
  CHECK(k[0] == 0);
  CHECK(tensor::all_finite(attention::unit_keys_backward(x, x)));
}

TEST_CASE("of two tokens each takes the other's value") {
  const Sizes sizes{.batch = 2, .heads = 2, .n = 2, .width = 4};
  const Layer layer = make_layer(attention::find("reformer"), {}, sizes, DType::f64);
  const Problem p = reformer_problem(sizes);
  const Tensor out = at(run(layer, p, training_call(p.in)), "out");
  for (std::int64_t b = 0; b < 2; ++b) {
    CHECK(relative_error(out[b][0][0], p.in.v[b][0][1]) < 1e-14);
    CHECK(relative_error(out[b][0][1], p.in.v[b][0][0]) < 1e-14);
  }
}

TEST_CASE("tokens that point the same way find each other wherever they stand") {
  // 32 directions, each taken by two tokens far apart; values tell who was attended to.
  const Sizes sizes{.batch = 1, .heads = 1, .n = 64, .width = 32};
  std::vector<double> x(64 * 32), v(64 * 32);
  for (std::size_t i = 0; i < 64; ++i) {
    x[i * 32 + (i * 7) % 32] = 40;
    v[i * 32] = static_cast<double>((i * 7) % 32);
  }
  Problem p = reformer_problem(sizes);
  p.in.q = f64(x, {1, 1, 64, 32});
  p.in.v = f64(v, {1, 1, 64, 32});
  const Layer layer =
      make_layer(attention::find("reformer"), {{"chunk", "4"}, {"hashes", "8"}}, sizes, DType::f64);
  const std::vector<double> out = at(run(layer, p, training_call(p.in)), "out").to_vector();
  for (std::size_t i = 0; i < 64; ++i) CHECK(out[i * 32] == doctest::Approx(v[i * 32]));
}

TEST_CASE("injected buckets replace hashing, whatever number their rounds start at") {
  const Sizes sizes{.batch = 2, .heads = 2, .n = 24, .width = 4};
  const Layer layer = make_layer(attention::find("reformer"), {{"chunk", "4"}}, sizes, DType::f64);
  const Problem p = reformer_problem(sizes, Padding::mixed);
  Call call = training_call(p.in);
  const Draws draws = layer.method->draw(p.in, call);
  const Tensor negative =
      attention::negative_buckets(p.in.q, draws.get("rotations"), p.in.mask, {8});
  std::vector<std::int32_t> buckets;
  for (const double b : negative.to_vector()) {
    const auto round = static_cast<std::int32_t>(buckets.size() / 24 % 2);
    buckets.push_back(static_cast<std::int32_t>(-b) + 9 * round);
  }
  Draws injected = draws;
  injected.set("buckets", integers(buckets, {2, 2, 48}));
  const Outcome hashed = run(layer, p, call);
  call.injected = &injected;
  CHECK(compare(run(layer, p, call), hashed).error == 0);
}

TEST_CASE("a chunk sees itself and the one before it, the first one the last") {
  const Sizes sizes{.batch = 1, .heads = 1, .n = 6, .width = 6};
  const Layer layer =
      make_layer(attention::find("reformer"), {{"chunk", "2"}, {"hashes", "1"}}, sizes, DType::f64);
  Problem p = reformer_problem(sizes);
  p.in.q.fill(1);  // all scores are alike
  p.in.v.fill(0);
  for (std::int64_t i = 0; i < 6; ++i) p.in.v.data<double>()[i * 7] = 1;
  Draws draws;
  draws.set("buckets", integers({0, 0, 0, 0, 0, 0}, {1, 1, 6}));  // chunks of neighbours
  Call call = training_call(p.in);
  call.injected = &draws;
  const std::vector<double> out = at(run(layer, p, call), "out").to_vector();
  for (std::int64_t i = 0; i < 6; ++i) {
    for (std::int64_t j = 0; j < 6; ++j) {
      const bool seen = i != j && (j / 2 == i / 2 || j / 2 == (i / 2 + 2) % 3);
      CHECK(out[static_cast<std::size_t>(i * 6 + j)] == doctest::Approx(seen ? 1.0 / 3 : 0));
    }
  }
  draws.set("buckets", integers({0, 0, 0, 0, 0}, {1, 1, 5}));
  CHECK_THROWS_WITH_AS((void)run(layer, p, call),
                       doctest::Contains("reformer: expected buckets i32[B, H, R N] = 6 of them"),
                       Error);
}

TEST_CASE("up to a chunk of tokens there is nothing to hash") {
  for (const std::int64_t n : {7, 8, 9}) {
    const Sizes sizes{.batch = 1, .heads = 1, .n = n, .width = 4};
    const Layer layer =
        make_layer(attention::find("reformer"), {{"chunk", "8"}}, sizes, DType::f64);
    const Problem p = reformer_problem(sizes);
    CHECK(layer.method->draw(p.in, training_call(p.in)).all().empty() == (n <= 8));
  }
}

TEST_CASE("an odd number of buckets is refused by name") {
  const auto make = [] {
    (void)make_layer(attention::find("reformer"), {{"buckets", "7"}}, {}, DType::f64);
  };
  CHECK(error_text(make).find("reformer.buckets") != std::string::npos);
}

TEST_CASE("long sequences hash in two parts") {
  // 2 n / c = 1024 buckets exceed 2 max(sqrt(n / c), c) = 44: factors 32 and 32.
  const Sizes sizes{.batch = 1, .heads = 1, .n = 1024, .width = 4};
  const Layer layer = make_layer(attention::find("reformer"), {{"chunk", "2"}}, sizes, DType::f32);
  const Problem p = convert(reformer_problem(sizes), DType::f32);
  const Draws draws = layer.method->draw(p.in, training_call(p.in));
  CHECK(draws.get("rotations").shape() == Shape({1, 4, 2, 32}));
  CHECK(tensor::all_finite(at(run(layer, p, training_call(p.in)), "dq")));
}

}  // namespace skytape::test
