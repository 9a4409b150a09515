// Routing: balanced clusters, the nearest centroid, and what a query in many clusters or none gets.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "attention/selection/clusters.hpp"
#include "attention/selection/lsh.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tensor/movement/gather.hpp"
#include "tensor/movement/layout.hpp"
#include "tests/attention/methods_support.hpp"
#include "tests/support/close.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/doctest.hpp"

namespace skytape::test {
namespace {

constexpr std::int64_t kBatch = 3, kHeads = 2, kLength = 37, kWidth = 8, kCentroids = 5,
                       kWindow = 6;

/// Cosine of two rows.
double cosine(const std::vector<double>& a, std::int64_t i, const std::vector<double>& b,
              std::int64_t j) {
  double dot = 0, of_a = 0, of_b = 0;
  for (std::int64_t d = 0; d < kWidth; ++d) {
    const double x = a[static_cast<std::size_t>(i * kWidth + d)];
    const double y = b[static_cast<std::size_t>(j * kWidth + d)];
    dot += x * y;
    of_a += x * x;
    of_b += y * y;
  }
  return dot / std::sqrt(of_a * of_b);
}

/// The last centroid of each head becomes the first one, so that tokens are as near to both.
Tensor two_alike(Tensor centroids) {
  for (std::int64_t h = 0; h < kHeads; ++h) {
    centroids[h].slice(kCentroids - 1, kCentroids).copy_from(centroids[h].slice(0, 1));
  }
  return centroids;
}

struct Tokens {
  Tensor x = random_tensor({kBatch, kHeads, kLength, kWidth});
  Tensor centroids =
      two_alike(random_tensor({kHeads, kCentroids, kWidth}, DType::f64, Device::cpu, 2));
  Tensor mask =
      make_problem(attention::find("routing"), {kBatch, kHeads, kLength, kWidth, 0}, Padding::mixed)
          .in.mask;
  std::vector<double> row = x.to_vector(), centroid = centroids.to_vector(),
                      real = mask.to_vector();

  [[nodiscard]] bool is_real(std::int64_t b, std::int64_t i) const {
    return real[static_cast<std::size_t>(b * kLength + i)] != 0;
  }
  [[nodiscard]] double score(std::int64_t group, std::int64_t c, std::int64_t i) const {
    return cosine(row, group * kLength + i, centroid, group % kHeads * kCentroids + c);
  }
};

}  // namespace

TEST_CASE("a centroid takes the real tokens that point most nearly its way") {
  const Tokens t;
  for_each_device([&](Device device) {
    const Tensor mask = t.mask.to(device);
    const Tensor x = attention::unit_keys(t.x.to(device));
    const Tensor scores = attention::cluster_scores(x, t.centroids.to(device), mask);
    const attention::Clusters got = attention::balanced_clusters(scores, mask, kWindow);
    const std::vector<double> token = got.token.to_vector(), used = got.used.to_vector();
    for (std::int64_t group = 0; group < kBatch * kHeads; ++group) {
      for (std::int64_t c = 0; c < kCentroids; ++c) {
        std::vector<std::int64_t> order(kLength);
        std::iota(order.begin(), order.end(), 0);
        std::erase_if(order, [&](std::int64_t i) { return !t.is_real(group / kHeads, i); });
        std::stable_sort(order.begin(), order.end(), [&](std::int64_t i, std::int64_t j) {
          return t.score(group, c, i) > t.score(group, c, j);
        });
        for (std::int64_t s = 0; s < kWindow; ++s) {
          const auto at = static_cast<std::size_t>((group * kCentroids + c) * kWindow + s);
          CHECK(token[at] == static_cast<double>(order[static_cast<std::size_t>(s)]));
          CHECK(used[at] == 1);
        }
      }
    }
  });
}

TEST_CASE("a cluster that is larger than its example has unused places") {
  const Tensor x = random_tensor({1, 1, 4, 3}), c = random_tensor({1, 2, 3});
  const Tensor mask =
      Tensor::from(std::vector<double>{0, 1, 0, 1}, {1, 4}, DType::f64, Device::cpu);
  const attention::Clusters got =
      attention::balanced_clusters(attention::cluster_scores(x, c, mask), mask, 3);
  CHECK(got.used.to_vector() == std::vector<double>{1, 1, 0, 1, 1, 0});
  // Tokens 1 and 3 are in both clusters.
  CHECK(got.weight.to_vector() == std::vector<double>{.5, .5, 0, .5, .5, 0});
}

TEST_CASE("centroids get the sums of the unit tokens that are nearest to them") {
  const Tokens t;
  std::vector<double> expected(kHeads * kCentroids * kWidth, 0);
  for (std::int64_t group = 0; group < kBatch * kHeads; ++group) {
    for (std::int64_t i = 0; i < kLength; ++i) {
      if (!t.is_real(group / kHeads, i)) continue;
      std::int64_t nearest = 0;
      for (std::int64_t c = 1; c < kCentroids; ++c) {
        if (t.score(group, c, i) > t.score(group, nearest, i)) nearest = c;
      }
      double squares = 0;
      const auto from = static_cast<std::size_t>((group * kLength + i) * kWidth);
      for (std::size_t d = 0; d < kWidth; ++d) squares += t.row[from + d] * t.row[from + d];
      const auto to = static_cast<std::size_t>((group % kHeads * kCentroids + nearest) * kWidth);
      for (std::size_t d = 0; d < kWidth; ++d) {
        expected[to + d] += t.row[from + d] / std::sqrt(squares);
      }
    }
  }
  for_each_device([&](Device device) {
    const Tensor x = attention::unit_keys(t.x.to(device)), mask = t.mask.to(device);
    const Tensor scores = attention::cluster_scores(x, t.centroids.to(device), mask);
    // A product may round the scores of the two centroids that are alike differently.
    for (std::int64_t group = 0; group < kBatch * kHeads; ++group) {
      const Tensor of_group = scores[group / kHeads][group % kHeads];  // [C, N]
      of_group.slice(kCentroids - 1, kCentroids).copy_from(of_group.slice(0, 1));
    }
    const std::vector<double> got = attention::nearest_sums(x, scores, mask).to_vector();
    for (std::size_t e = 0; e < got.size(); ++e) {
      CHECK(got[e] == doctest::Approx(expected[e]).epsilon(1e-5));  // lengths have an epsilon
    }
  });
}

TEST_CASE("who owns a token finds all of its slots, in their order") {
  // Longer than what a warp, or one block of nearest_sums, takes alone; wider than a warp's
  // columns.
  const Tensor x = random_tensor({2, 2, 1100, 36}), centroids = random_tensor({2, 9, 36});
  Tensor mask = Tensor::full({2, 1100}, 1, DType::f64, Device::cpu);
  for (std::int64_t i = 900; i < 1100; ++i) mask.data<double>()[i] = 0;
  const Tensor directions = attention::unit_keys(x);
  const Tensor scores = attention::cluster_scores(directions, centroids, mask);
  const Tensor sums = attention::nearest_sums(directions, scores, mask);  // [H, C, D]
  for_each_device([&](Device device) {
    const attention::Clusters got =
        attention::balanced_clusters(scores.to(device), mask.to(device), 130);
    const Tensor slots = random_tensor({2, 2, 9 * 130, 36}, DType::f64, device, 3);
    Tensor expected = Tensor::zeros(x.shape(), DType::f64, device);
    tensor::scatter_add_rows(expected, got.token, slots);
    CHECK(attention::from_slots(slots, got).to_vector() == expected.to_vector());
    const Tensor weighted = tensor::multiply(attention::to_slots(x.to(device), got), got.weight);
    CHECK(attention::to_weighted_slots(x.to(device), got).to_vector() == weighted.to_vector());
    const Tensor nearest =
        attention::nearest_sums(directions.to(device), scores.to(device), mask.to(device));
    CHECK(relative_error(nearest, sums.to_vector()) < 1e-14);
  });
}

TEST_CASE("a centroid that has faded still points its way") {
  const Tokens t;
  const Tensor faint = tensor::affine(t.centroids, 1e-12);
  const std::vector<double> x = attention::cluster_scores(t.x, t.centroids, t.mask).to_vector();
  const std::vector<double> y = attention::cluster_scores(t.x, faint, t.mask).to_vector();
  for (std::size_t e = 0; e < x.size(); ++e) {
    if (std::isfinite(x[e])) CHECK(y[e] == doctest::Approx(x[e]).epsilon(1e-5));
  }
  // Squares of these vanish in f32.
  for_each_device([&](Device device) {
    const Tensor fainter = tensor::affine(t.centroids, 1e-30).to(DType::f32).to(device);
    const Tensor all = Tensor::full(t.mask.shape(), 1, DType::f32, device);
    const auto scores = [&](const Tensor& centroids) {
      return attention::cluster_scores(t.x.to(DType::f32).to(device), centroids, all).to_vector();
    };
    const std::vector<double> near = scores(t.centroids.to(DType::f32).to(device));
    CHECK(relative_error(scores(fainter), near) < 1e-6);
    for (const double score : scores(zeros_like(fainter))) CHECK(score == 0);
  });
}

TEST_CASE("a query in no cluster gets zero, and passes nothing back") {
  const Spec& spec = attention::find("routing");
  const Sizes sizes{.batch = 1, .heads = 1, .n = kLength, .width = kWidth};
  const Layer layer = make_layer(spec, {{"clusters", "2"}, {"window", "3"}}, sizes, DType::f64);
  const Problem problem = make_problem(spec, sizes, Padding::none);
  const Outcome outcome = run(layer, problem, training_call(problem.in));
  const std::vector<double> out = at(outcome, "out").to_vector(),
                            dq = at(outcome, "dq").to_vector();
  int silent = 0;
  for (std::size_t i = 0; i < kLength; ++i) {
    const auto zero = [&](const std::vector<double>& x) {
      return std::all_of(x.begin() + static_cast<std::ptrdiff_t>(i * kWidth),
                         x.begin() + static_cast<std::ptrdiff_t>((i + 1) * kWidth),
                         [](double value) { return value == 0; });
    };
    CHECK(zero(out) == zero(dq));
    silent += zero(out);
  }
  CHECK(silent >= kLength - 6);
  CHECK(silent < kLength);
}

TEST_CASE("clusters and their places follow from the nominal length unless they are told") {
  const Spec& spec = attention::find("routing");
  for (const auto& [n, clusters, window] : {std::tuple(63, 4, 16), {64, 8, 8}, {65, 8, 9}}) {
    const Sizes sizes{.batch = 1, .heads = 1, .n = n, .width = 4};
    const Layer layer = make_layer(spec, {}, sizes, DType::f64);
    CHECK(layer.method->averages().at(0)->shape == Shape({1, clusters, 4}));
    const OptionValues told = {{"clusters", std::to_string(clusters)},
                               {"window", std::to_string(window)}};
    const Problem p = make_problem(spec, sizes, Padding::none);
    const Layer same = make_layer(spec, told, sizes, DType::f64);
    CHECK(compare(run(layer, p, Call{}), run(same, p, Call{})).error == 0);
  }
}

TEST_CASE("clusters with places for more than all tokens give softmax attention") {
  const Sizes sizes;
  const Problem p = make_problem(attention::find("routing"), sizes, Padding::mixed);
  const auto outcome = [&](const char* method, const OptionValues& options) {
    return run(make_layer(attention::find(method), options, sizes, DType::f64), p, Call{});
  };
  const Tensor ours = at(outcome("routing", {{"clusters", "2"}, {"window", "50"}}), "out");
  const Tensor exact = tensor::mask_rows(at(outcome("softmax", {}), "out"), p.in.mask);
  CHECK(distance(tensor::mask_rows(ours, p.in.mask), exact) <= 1e-12 * norm(exact));
}

TEST_CASE("the length of queries and keys does not move them to other clusters") {
  const Spec& spec = attention::find("routing");
  const Sizes sizes{.batch = kBatch, .heads = kHeads, .n = kLength, .width = kWidth};
  const Layer layer = make_layer(spec, {{"clusters", "5"}, {"window", "4"}}, sizes, DType::f64);
  Problem p = make_problem(spec, sizes, Padding::none);
  const auto routed = [&] {  // 1 where a query is in a cluster
    std::vector<bool> any;
    const Tensor out = at(run(layer, p, Call{}), "out");
    for (const double square : tensor::row_dot(out, out).to_vector()) any.push_back(square > 0);
    return any;
  };
  const std::vector<bool> before = routed();
  for (std::int64_t i = 0; i < p.in.q.numel(); ++i) {
    p.in.q.data<double>()[i] *= static_cast<double>(10 + i / kWidth % 7);
  }
  CHECK(routed() == before);
}

TEST_CASE("centroids get the sums of queries and keys, and move by their own decay") {
  const Spec& spec = attention::find("routing");
  const Sizes sizes{.batch = kBatch, .heads = kHeads, .n = kLength, .width = kWidth};
  const Layer layer = make_layer(spec, {{"clusters", "5"}, {"decay", "0.7"}}, sizes, DType::f64);
  const Problem p = make_problem(spec, sizes, Padding::mixed);
  Parameter& centroids = *layer.method->averages().at(0);
  const Tensor before = centroids.value.clone();
  const auto share = [&](const Tensor& x) {
    const Tensor directions = attention::unit_keys(x);
    return attention::nearest_sums(
        directions, attention::cluster_scores(directions, before, p.in.mask), p.in.mask);
  };
  const Tensor sums = tensor::add(share(p.in.q), share(p.in.k));
  (void)run(layer, p, training_call(p.in));
  CHECK(distance(centroids.grad, sums) <= 1e-13 * norm(sums));
  layer.store->update_averages();
  const Tensor expected = tensor::add(tensor::affine(before, 0.7), tensor::affine(sums, 0.3));
  CHECK(distance(centroids.value, expected) <= 1e-13 * norm(expected));
}

TEST_CASE("only training calls hand sums to the centroids, and none changes them") {
  const Spec& spec = attention::find("routing");
  const Sizes sizes{.batch = kBatch, .heads = kHeads, .n = kLength, .width = kWidth};
  const Layer layer = make_layer(spec, {}, sizes, DType::f64);
  const Problem problem = make_problem(spec, sizes, Padding::mixed);
  const Parameter& centroids = *layer.method->averages().at(0);
  const std::vector<double> before = centroids.value.to_vector();
  Call call = training_call(problem.in);
  call.training = false;
  (void)run(layer, problem, call);
  CHECK_FALSE(centroids.has_gradient);
  call.training = true;
  (void)run(layer, problem, call);
  CHECK(centroids.has_gradient);
  CHECK(norm(centroids.grad) > 1);
  CHECK(centroids.value.to_vector() == before);
}

}  // namespace skytape::test
