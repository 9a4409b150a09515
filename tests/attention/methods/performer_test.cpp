// Random features and what the two forms of Performer promise beyond the loop over the registry.
#include <cmath>
#include <limits>

#include "attention/random_features/random_features.hpp"
#include "attention/random_features/random_features_plan.hpp"
#include "tensor/gemm/gemm.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tests/attention/methods_support.hpp"
#include "tests/support/close.hpp"
#include "tests/support/doctest.hpp"

namespace skytape::test {
namespace {

const Spec& performer() { return attention::find("performer"); }

/// Relative distance of Performer's output from that of softmax attention, for one draw of W.
double error_with(std::int64_t features, std::uint64_t seed, const Problem& problem,
                  const Sizes& sizes) {
  const Layer softmax = make_layer(attention::find("softmax"), {}, sizes, DType::f64);
  const Layer layer = make_layer(performer(), {{"epsilon", "0"}}, sizes, DType::f64);
  Call call;
  const Tensor exact = at(run(softmax, problem, call), "out");
  Draws draws;
  draws.set("projection", attention::orthogonal_features(features, sizes.width, Random{seed, {}},
                                                         DType::f64, Device::cpu));
  call.injected = &draws;
  return distance(at(run(layer, problem, call), "out"), exact) / norm(exact);
}

/// Mean value of the real tokens of each head, in every row: [B, H, N, D].
Tensor mean_of_tokens(const Problem& p) {
  const Tensor& v = p.in.v;
  const Tensor total = tensor::sum(tensor::mask_rows(v, p.in.mask), 2);  // [B, H, D]
  const Tensor count = tensor::sum(p.in.mask, 1);                        // [B]
  const Tensor mean = tensor::divide(total, count.reshape({v.size(0), 1, 1}));
  return tensor::add(zeros_like(v), mean.reshape(v.shape().with(2, 1)));
}

Problem scaled(Problem p, double factor) {
  p.in.q = tensor::affine(p.in.q, factor);
  p.in.k = tensor::affine(p.in.k, factor);
  return p;
}

}  // namespace

TEST_CASE("random features are orthogonal within a block and as long as normal vectors") {
  const std::int64_t width = 7, count = 4 * width + 3;
  double squares = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Tensor w = attention::orthogonal_features(count, width, Random{seed, {}}, DType::f64,
                                                    Device::cpu);  // [R, D]
    REQUIRE(w.shape() == Shape({count, width}));
    const std::vector<double> dots =  // [R, R]
        tensor::matmul(w, w, Op::none, Op::transpose).to_vector();
    for (std::int64_t i = 0; i < count; ++i) {
      squares += dots[static_cast<std::size_t>(i * count + i)];
      for (std::int64_t j = i / width * width; j < i; ++j) {
        CHECK(std::abs(dots[static_cast<std::size_t>(i * count + j)]) < 1e-12);
      }
    }
  }
  // 620 squared lengths, each of mean D and variance 2 D.
  CHECK(std::abs(squares / (20 * count) - width) < 4 * std::sqrt(2.0 * width / (20 * count)));
}

TEST_CASE("slowed draws change once in so many steps") {
  const auto draw = [](int step) {
    const Random random{5, Tensor::from(std::vector<int>{step}, {1}, DType::i32, Device::cpu)};
    return tensor::normal({4}, attention::slowed(random, 3), DType::f64, Device::cpu).to_vector();
  };
  CHECK(draw(6) == draw(7));
  CHECK(draw(6) == draw(8));
  CHECK(draw(8) != draw(9));
  CHECK(draw(0) == draw(2));
  CHECK_THROWS_AS((void)attention::slowed(Random{}, 0), Error);
}

TEST_CASE("stabilised products find the largest of each row and the first of equal ones") {
  const std::int64_t n = 150;
  for (const DType dtype : {DType::f32, DType::f64}) {
    Tensor x = tensor::normal({1, 2, n, 3}, Random{1, {}}, dtype, Device::cpu);
    const Tensor half = tensor::normal({5, 3}, Random{2, {}}, DType::f64, Device::cpu);
    std::vector<double> rows = half.to_vector();
    rows.insert(rows.end(), rows.begin(), rows.begin() + 15);  // every feature twice
    const Tensor w = Tensor::from(rows, {10, 3}, dtype, Device::cpu);
    const Tensor y = tensor::normal({1, 2, 10, 4}, Random{3, {}}, dtype, Device::cpu);
    attention::FeatureMaxima own, shared;
    const auto products = [&] {
      (void)attention::stabilised_features_times({x, w, {}}, y, own);
      (void)attention::stabilised_features_transposed_times({x, w, {}}, x, 2, shared);
    };
    products();
    const auto [value, position] = tensor::max(tensor::matmul(x, w, Op::none, Op::transpose), 3);
    for (const attention::FeatureMaxima& maxima : {own, shared}) {
      CHECK(distance(maxima.value, value) <= 1e-6 * norm(value));
      CHECK(maxima.feature.to_vector() == position.to_vector());
      for (const double feature : maxima.feature.to_vector()) CHECK(feature < 5);
    }
    x.fill(std::numeric_limits<double>::quiet_NaN());
    products();
    for (const attention::FeatureMaxima& maxima : {own, shared}) {
      for (const double feature : maxima.feature.to_vector()) {
        CHECK(feature == 0);  // inside, whatever it means
      }
    }
  }
}

TEST_CASE("stabilised products in tiles are those with the features as one array") {
  const std::int64_t g = 4, n = 1100, count = 6;  // three chunks of several tiles
  Tensor x = tensor::normal({g, n, 3}, Random{1, {}}, DType::f64, Device::cpu);
  for (std::int64_t i = 0; i < n; ++i) {  // maxima that grow within chunks and from one to the next
    Tensor row = x[2].slice(i, i + 1);
    row.copy_from(tensor::affine(row, 0.01 * static_cast<double>(i)));
  }
  const Tensor w = tensor::normal({g, count, 3}, Random{2, {}}, DType::f64, Device::cpu);
  const Tensor y = tensor::normal({g, count, 2}, Random{3, {}}, DType::f64, Device::cpu);
  const Tensor u = tensor::normal({g, n, 2}, Random{4, {}}, DType::f64, Device::cpu);
  const attention::KernelInputs in{x, w, tensor::affine(tensor::row_dot(x, x), -0.5),
                                   Tensor::zeros({g, count}, DType::f64, Device::cpu), true};
  const auto maxima = [&] {
    return attention::FeatureMaxima{Tensor::empty({g, n}, DType::f64, Device::cpu),
                                    Tensor::empty({g, n}, DType::i32, Device::cpu)};
  };
  const auto rows = maxima(), expected_rows = maxima();
  Tensor out = empty_like(u), expected = empty_like(u);
  attention::stabilised_times_tiled(in, y, rows, out);
  attention::stabilised_times_whole(in, y, expected_rows, expected);
  CHECK(relative_error(out, expected) < 1e-12);
  CHECK(relative_error(rows.value, expected_rows.value) < 1e-14);
  for (const std::int64_t scope : {1, 2, 4}) {
    CAPTURE(scope);
    Tensor sums = empty_like(y), expected_sums = empty_like(y);
    attention::stabilised_transposed_times_tiled(in, u, scope, rows, sums);
    attention::stabilised_transposed_times_whole(in, u, scope, expected_rows, expected_sums);
    for (std::int64_t head = 0; head < g; ++head) {  // their sizes differ by the stabiliser
      CHECK(relative_error(sums[head], expected_sums[head]) < 1e-11);
    }
    CHECK(rows.feature.to_vector() == expected_rows.feature.to_vector());
  }
}

TEST_CASE("performer's error against softmax attention falls with features") {
  const Sizes sizes{.batch = 2, .heads = 2, .n = 64, .width = 8};
  const Problem problem =
      scaled(make_problem(attention::find("softmax"), sizes, Padding::mixed), 0.4);
  double few = 0, many = 0;
  constexpr int kSeeds = 8;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    few += error_with(32, seed, problem, sizes) / kSeeds;
    many += error_with(2048, seed, problem, sizes) / kSeeds;
  }
  INFO("32 features ", few, ", 2048 features ", many);
  CHECK(many < few / 5);  // 64 times the features: near an eighth of the error
  CHECK(many < 0.05);
}

TEST_CASE("performer gives the mean of the tokens when norms are huge, and stays finite") {
  const Sizes sizes;
  const Problem problem =
      convert(scaled(make_problem(performer(), sizes, Padding::mixed), 1e3), DType::f32);
  const Layer layer = make_layer(performer(), {}, sizes, DType::f32);
  const Outcome outcome = run(layer, problem, Call{});
  for (const auto& [name, tensor] : outcome) CHECK(tensor::all_finite(tensor));
  const Tensor expected = mean_of_tokens(problem);
  CHECK(distance(at(outcome, "out"), expected) <= 1e-5 * norm(expected));
}

TEST_CASE("official performer counts padded keys in the normaliser, corrected does not") {
  const Sizes sizes;
  const Problem problem = scaled(make_problem(performer(), sizes, Padding::mixed), 0);
  const auto out = [&](const char* form) {
    const Layer layer = make_layer(performer(), {{"form", form}}, sizes, DType::f64);
    return at(run(layer, problem, Call{}), "out");
  };
  const Tensor mean = mean_of_tokens(problem);
  const Tensor share = tensor::affine(tensor::sum(problem.in.mask, 1), 1.0 / sizes.n);  // [B]
  CHECK(distance(out("corrected"), mean) <= 1e-12 * norm(mean));
  CHECK(distance(out("official"), tensor::multiply(mean, share.reshape({sizes.batch, 1, 1, 1}))) <=
        1e-12 * norm(mean));
}

TEST_CASE("corrected performer treats examples one by one, official needs a batch at once") {
  const Sizes sizes;
  const Problem problem = make_problem(performer(), sizes, Padding::mixed);
  for (const char* form : {"corrected", "official"}) {
    const Layer layer =
        make_layer(performer(), {{"form", form}, {"epsilon", "0.1"}}, sizes, DType::f64);
    const Outcome whole = run(layer, problem, Call{});
    double worst = 0;
    for (std::int64_t b = 0; b < sizes.batch; ++b) {
      const Outcome alone = run(layer, example(problem, b), Call{});
      for (const char* name : {"out", "dq", "dk", "dv"}) {
        worst = std::max(worst, distance(at(alone, name), permute(at(whole, name), {b})));
      }
    }
    INFO(form, ", worst difference ", worst);
    CHECK((worst < 1e-10) == (std::string(form) == "corrected"));
  }
}

TEST_CASE("performer's stabilisers have a gradient only through epsilon") {
  const Sizes sizes;
  const Problem problem = make_problem(performer(), sizes, Padding::mixed);
  const auto dk = [&](const char* epsilon, const char* detach) {
    const Layer layer = make_layer(
        performer(), {{"epsilon", epsilon}, {"detach_stabiliser", detach}}, sizes, DType::f64);
    return at(run(layer, problem, Call{}), "dk");
  };
  CHECK(distance(dk("0", "0"), dk("0", "1")) == 0);
  const Tensor constant = dk("0.1", "1");
  CHECK(distance(dk("0.1", "0"), constant) > 1e-3 * norm(constant));
}

TEST_CASE("a stabiliser that is held constant is one in the reference, too") {
  const Sizes sizes;
  const Problem problem = make_problem(performer(), sizes, Padding::mixed);
  const OptionValues options = {{"epsilon", "0.1"}, {"detach_stabiliser", "1"}};
  const Layer layer = make_layer(performer(), options, sizes, DType::f64);
  const Draws none;
  Call call;
  call.injected = &none;
  CHECK(compare(run(layer, problem, call), run_reference(layer, problem, call)).error < 1e-11);
}

TEST_CASE("official performer scales queries and keys twice as much as the corrected one") {
  // The scale is all that differs with one head and without padding.
  const Sizes sizes{.batch = 1, .heads = 1, .n = 37, .width = 8};
  const Problem problem = make_problem(performer(), sizes, Padding::none);
  const auto out = [&](const char* form, const Problem& p) {
    return at(run(make_layer(performer(), {{"form", form}}, sizes, DType::f64), p, Call{}), "out");
  };
  const Tensor official = out("official", problem);
  CHECK(distance(out("corrected", scaled(problem, std::pow(8, -0.25))), official) <=
        1e-12 * norm(official));
  CHECK(distance(out("corrected", problem), official) > 1e-3 * norm(official));
}

TEST_CASE("with redraw features change every so many steps, and the store holds none") {
  const Sizes sizes;
  const Problem problem = make_problem(performer(), sizes, Padding::mixed);
  const Layer layer = make_layer(performer(), {{"redraw", "3"}}, sizes, DType::f64);
  CHECK(layer.store->find("attn.projection") == nullptr);
  const auto projection = [&](int step) {
    Call call;
    call.random.step = Tensor::from(std::vector<int>{step}, {1}, DType::i32, Device::cpu);
    return layer.method->draw(problem.in, call).get("projection");
  };
  const Tensor first = projection(3);
  for (const int step : {4, 5}) CHECK(distance(projection(step), first) == 0);
  for (const int step : {2, 6}) CHECK(distance(projection(step), first) > 1);
}

TEST_CASE("injected features of another width are refused") {
  const Sizes sizes;
  const Problem problem = make_problem(performer(), sizes, Padding::none);
  const Layer layer = make_layer(performer(), {}, sizes, DType::f64);
  Draws draws;
  draws.set("projection", Tensor::zeros({4, 7}, DType::f64, Device::cpu));
  Call call;
  call.injected = &draws;
  CHECK_THROWS_WITH_AS((void)run(layer, problem, call),
                       doctest::Contains("performer: expected a projection [features, D] for q"),
                       Error);
}

}  // namespace skytape::test
