// Informer's choice of rows and its special cases, beyond the loop over the registry.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "attention/selection/informer_rows.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tests/attention/methods_support.hpp"
#include "tests/support/close.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/doctest.hpp"
#include "tests/support/numbers.hpp"
#ifdef SKYTAPE_CUDA_SIMULATED
#include "tests/cuda_simulator/simulator.hpp"
#endif

namespace skytape::test {
namespace {

/// Number of chosen rows of the first head.
std::int64_t chosen_count(const Spec& spec, const OptionValues& options, const Sizes& sizes) {
  const Layer layer = make_layer(spec, options, sizes, DType::f64);
  const Problem problem = make_problem(spec, sizes, Padding::none);
  return layer.method->draw(problem.in, Call{}).get("top").size(2);
}

}  // namespace

TEST_CASE("the measure is the largest sampled product less the sum over the length") {
  struct Case {
    std::int64_t n, width, samples;
  };
  // Widths around whole vectors and the papers' own; one group of keys, whole groups and a rest;
  // more keys than fit into a GPU's shared memory.
  std::vector<Case> cases = {{600, 40, 70}, {1100, 32, 70}};
  for (const std::int64_t width : {5, 16, 32, 37}) {
    for (const std::int64_t samples : {4, 32, 37}) cases.push_back({41, width, samples});
  }
  for (const auto& [n, width, samples] : cases) {
    for (const std::int64_t lists : {1, 2}) {
      CAPTURE(n);
      CAPTURE(width);
      CAPTURE(samples);
      const std::int64_t length = n + 9;
      const Tensor q = tensor::normal({2, 2, n, width}, Random{1, {}}, DType::f64, Device::cpu);
      const Tensor k = tensor::normal({2, 2, n, width}, Random{2, {}}, DType::f64, Device::cpu);
      std::vector<int> keys;
      for (std::int64_t e = 0; e < lists * n * samples; ++e) {
        keys.push_back(static_cast<int>(e * 7 % (n + 2) % n));
      }
      const Tensor index = integers(keys, {lists, n, samples});
      const std::vector<double> x = q.to_vector(), y = k.to_vector();
      std::vector<double> expected;
      for (std::int64_t row = 0; row < 2 * 2 * n; ++row) {
        const std::int64_t head = row / n, list = lists == 1 ? 0 : head / 2;
        double largest = -1e300, sum = 0;
        for (std::int64_t s = 0; s < samples; ++s) {
          const int key = keys[static_cast<std::size_t>((list * n + row % n) * samples + s)];
          const double dot =
              std::inner_product(x.begin() + row * width, x.begin() + (row + 1) * width,
                                 y.begin() + (head * n + key) * width, 0.0);
          largest = std::max(largest, dot);
          sum += dot;
        }
        expected.push_back(largest - sum / static_cast<double>(length));
      }
      for_each_kind([&](DType dtype, Device device) {
        const auto there = [&](const Tensor& t) { return t.to(dtype).to(device); };
        const Tensor measure =
            attention::sampled_measure(there(q), there(k), index.to(device), length);
        CHECK(relative_error(measure, expected) < (dtype == DType::f64 ? 1e-13 : 1e-5));
      });
    }
  }
}

#ifdef SKYTAPE_CUDA_SIMULATED
TEST_CASE("the measure is the same where blocks have the least shared memory") {
  const cuda_simulator::ComputeCapability sm_86(8, 6);
  for (const auto& [n, width, dtype] :
       {std::tuple(1100, 32, DType::f32), {60, 256, DType::f64}, {300, 64, DType::f64}}) {
    const Tensor q = random_tensor({1, 1, n, width}, dtype, Device::cpu, 1);
    const Tensor k = random_tensor({1, 1, n, width}, dtype, Device::cpu, 2);
    std::vector<int> keys;
    for (int e = 0; e < n * 8; ++e) keys.push_back(e * 7 % n);
    const Tensor index = integers(keys, {1, n, 8});
    const Tensor here = attention::sampled_measure(q, k, index, n);
    const Device gpu = Device::cuda;
    const Tensor there = attention::sampled_measure(q.to(gpu), k.to(gpu), index.to(gpu), n);
    CHECK(relative_error(there, here) < (dtype == DType::f64 ? 1e-13 : 1e-5));
  }
}
#endif

TEST_CASE("sampled keys lie among the tokens, at both ends of the numbers and without any token") {
  const Tensor u = f64({1e-9, 0.3, 0.5, 1.0}, {2, 2});
  const Tensor keys = attention::sampled_keys(u, f64({10, 1, 0}, {3}));
  CHECK(keys.shape() == Shape({3, 2, 2}));
  CHECK(keys.to_vector() == std::vector<double>{0, 3, 5, 9, 0, 0, 0, 0, 0, 0, 0, 0});
}

TEST_CASE("rows of negative measure give way to trimmed ones, whose measure is zero") {
  const Tensor measure = f64({-1, 3, 0, -2, 5}, {1, 1, 5});
  const auto rows = [&](std::int64_t top, std::int64_t trimmed) {
    return attention::choose_rows(measure, top, trimmed).to_vector();
  };
  CHECK(rows(4, 0) == std::vector<double>{4, 1, 2, 0});
  CHECK(rows(4, 1) == std::vector<double>{4, 1, 2, -1});
  CHECK(rows(5, 1) == std::vector<double>{4, 1, 2, 0, -1});
  CHECK(rows(3, 1) == std::vector<double>{4, 1, 2});  // before trimmed rows that measure as much
  CHECK(rows(9, 3) == std::vector<double>{4, 1, 2, 0, 3});  // room for everybody
  CHECK(rows(2, 7) == std::vector<double>{4, 1});
  const attention::ChosenRows chosen = attention::chosen_rows(
      attention::choose_rows(measure, 4, 1), Tensor::zeros({1, 1, 5, 2}, DType::f64, Device::cpu));
  CHECK(chosen.index.to_vector() == std::vector<double>{4, 1, 2, 0});
  const std::vector<double> used = chosen.used.to_vector();  // g++ 12 compiles {1, 1, 1, 0} wrongly
  CHECK(std::count(used.begin(), used.end(), 1.0) == 3);
  CHECK(used.back() == 0);
  CHECK(chosen.others.to_vector() == std::vector<double>{1, 0, 0, 1, 0});
}

TEST_CASE("informer's sizes follow the papers' rule, bounded by the length") {
  const Spec& plain = attention::find("informer");
  const Spec& masked = attention::find("informer_mask");
  const auto sizes = [](std::int64_t n) {
    return Sizes{.batch = 1, .heads = 1, .n = n, .width = 2};
  };
  CHECK(chosen_count(plain, {}, sizes(1024)) == 133);
  CHECK(chosen_count(plain, {}, sizes(2048)) == 136);
  CHECK(chosen_count(masked, {}, sizes(1024)) == 128);
  CHECK(chosen_count(plain, {}, sizes(20)) == 20);
  CHECK(chosen_count(masked, {}, sizes(1)) == 1);
  CHECK(chosen_count(plain, {}, sizes(1)) == 1);
  CHECK(chosen_count(plain, {{"top", "7"}}, sizes(1024)) == 7);
}

TEST_CASE(
    "informer gives the mean value where queries are not chosen, and chooses different rows") {
  const Sizes sizes;
  for (const char* name : {"informer", "informer_mask"}) {
    const Spec& spec = attention::find(name);
    const Problem problem = make_problem(spec, sizes, Padding::mixed);
    const Layer layer = make_layer(spec, {{"top", "5"}, {"samples", "9"}}, sizes, DType::f64);
    const std::vector<double> top =
        layer.method->draw(problem.in, training_call(problem.in)).get("top").to_vector();
    const Tensor ones = Tensor::full(problem.in.mask.shape(), 1, DType::f64, Device::cpu);
    const Tensor weights = spec.reads_padding ? ones : problem.in.mask;
    const Tensor mean = tensor::divide(  // [B, H, D]
        tensor::sum(tensor::mask_rows(problem.in.v, weights), 2),
        tensor::sum(weights, 1).reshape({sizes.batch, 1, 1}));
    const std::vector<double> expected = mean.to_vector();
    const std::vector<double> out =
        at(run(layer, problem, training_call(problem.in)), "out").to_vector();
    for (std::int64_t head = 0; head < sizes.batch * sizes.heads; ++head) {
      const std::set<double> rows(top.begin() + head * 5, top.begin() + (head + 1) * 5);
      CHECK(rows.size() == 5);
      for (std::int64_t i = 0; i < sizes.n; ++i) {
        double square = 0;
        for (std::int64_t d = 0; d < sizes.width; ++d) {
          const double difference =
              out[static_cast<std::size_t>((head * sizes.n + i) * sizes.width + d)] -
              expected[static_cast<std::size_t>(head * sizes.width + d)];
          square += difference * difference;
        }
        if (rows.count(static_cast<double>(i)) == 0) CHECK(std::sqrt(square) < 1e-12);
      }
    }
  }
}

TEST_CASE("the exact measure finds the one query that does not attend to all keys alike") {
  const Sizes sizes{.batch = 1, .heads = 1, .n = 40, .width = 4};
  for (const char* name : {"informer", "informer_mask"}) {
    const Spec& spec = attention::find(name);
    Problem problem = make_problem(spec, sizes, Padding::none);
    std::vector<double> q(static_cast<std::size_t>(sizes.n * sizes.width), 0.01);
    for (std::int64_t d = 0; d < sizes.width; ++d) {
      q[static_cast<std::size_t>(23 * sizes.width + d)] = 2;
    }
    problem.in.q = f64(q, {1, 1, sizes.n, sizes.width});
    const Layer layer = make_layer(spec, {{"top", "1"}, {"measure", "exact"}}, sizes, DType::f64);
    CHECK(layer.method->draw(problem.in, Call{}).get("top").to_vector() == std::vector<double>{23});
  }
}

TEST_CASE(
    "the exact measure is the scaled scores' log-sum-exp less their mean over the real keys") {
  const Sizes sizes{.batch = 3, .heads = 2, .n = 29, .width = 5};
  const Spec& spec = attention::find("informer_mask");
  const Layer layer = make_layer(spec, {{"top", "29"}, {"measure", "exact"}}, sizes, DType::f64);
  const Problem p = make_problem(spec, sizes, Padding::mixed);
  const std::vector<double> q = p.in.q.to_vector(), k = p.in.k.to_vector(),
                            mask = p.in.mask.to_vector();
  const std::vector<double> top =
      layer.method->draw(p.in, training_call(p.in)).get("top").to_vector();
  const auto real = [&](std::int64_t head, std::int64_t i) {
    return mask[static_cast<std::size_t>(head / 2 * 29 + i)] == 1;
  };
  for (std::int64_t head = 0; head < 6; ++head) {
    std::vector<std::pair<double, double>> measured;  // the real queries' measures and positions
    for (std::int64_t i = 0; i < 29; ++i) {
      double exponentials = 0, sum = 0, count = 0;
      for (std::int64_t j = 0; j < 29; ++j) {
        if (!real(head, j)) continue;
        const double score =
            std::inner_product(q.begin() + (head * 29 + i) * 5, q.begin() + (head * 29 + i + 1) * 5,
                               k.begin() + (head * 29 + j) * 5, 0.0) /
            std::sqrt(5.0);
        exponentials += std::exp(score);
        sum += score;
        ++count;
      }
      if (real(head, i)) measured.emplace_back(std::log(exponentials) - sum / count, i);
    }
    std::sort(measured.rbegin(), measured.rend());
    for (std::size_t rank = 0; rank < measured.size(); ++rank) {  // padded queries come last
      CHECK(top[static_cast<std::size_t>(head * 29) + rank] == measured[rank].second);
    }
  }
}

TEST_CASE("samples sets how many keys the measure reads, and not how many rows are chosen") {
  // Query 3 measures most, and more than the sample's rest, only where all keys are read.
  const Sizes sizes{.batch = 1, .heads = 1, .n = 40, .width = 1};
  const Spec& spec = attention::find("informer");
  Problem p = make_problem(spec, sizes, Padding::none);
  std::vector<double> q(40, 0), k(40, 0);
  q[3] = 1;
  k[17] = 1;
  p.in.q = f64(q, {1, 1, 40, 1});
  p.in.k = f64(k, {1, 1, 40, 1});
  const auto found = [&](const char* samples) {
    const Layer layer = make_layer(spec, {{"samples", samples}, {"top", "1"}}, sizes, DType::f64);
    int hits = 0;
    for (std::uint64_t key = 0; key < 40; ++key) {
      Call call;
      call.random.key = key;
      hits += layer.method->draw(p.in, call).get("top").item() == 3;
    }
    return hits;
  };
  CHECK(found("1") < 8);     // one key of forty
  CHECK(found("200") > 20);  // forty with repetition: 64 of 100
}

TEST_CASE("injected sampled keys that do not exist are refused") {
  const Sizes sizes{.batch = 1, .heads = 2, .n = 5, .width = 3};
  const Spec& spec = attention::find("informer");
  const Layer layer = make_layer(spec, {{"top", "2"}}, sizes, DType::f64);
  const Problem problem = make_problem(spec, sizes, Padding::none);
  Draws draws;
  Call call = training_call(problem.in);
  call.injected = &draws;
  draws.set("index_sample", integers({0, 1, 2, 3, 5}, {5, 1}));
  CHECK_THROWS_WITH_AS(
      (void)run(layer, problem, call),
      doctest::Contains("informer: draws: index_sample: index 5 is outside [0, 5)"), Error);
}

TEST_CASE("a trimmed batch chooses the rows that the padded one chooses") {
  const Sizes sizes{.batch = 6, .heads = 4, .n = 37, .width = 3, .nominal = 37};
  const std::int64_t kept = 28;
  const Spec& spec = attention::find("informer_mask");
  Problem padded = make_problem(spec, sizes, Padding::none);
  for (std::int64_t e = 0; e < padded.in.mask.numel(); ++e) {
    padded.in.mask.data<double>()[e] = e % sizes.n < kept ? 1 : 0;
  }
  for (const char* top : {"4", "15", "26"}) {
    const Layer layer = make_layer(spec, {{"top", top}, {"samples", "6"}}, sizes, DType::f64);
    const auto chosen = [&](const Problem& p) {  // the real rows of each head
      std::vector<std::set<double>> rows;
      const Tensor drawn = layer.method->draw(p.in, training_call(p.in)).get("top");
      const std::vector<double> all = drawn.to_vector();
      for (std::size_t e = 0; e < all.size(); ++e) {
        if (e % static_cast<std::size_t>(drawn.size(2)) == 0) rows.emplace_back();
        if (all[e] >= 0 && all[e] < static_cast<double>(kept)) rows.back().insert(all[e]);
      }
      return rows;
    };
    CAPTURE(top);
    CHECK(chosen(narrow(padded, kept)) == chosen(padded));
  }
}

TEST_CASE("injected rows that name one twice are refused") {
  const Sizes sizes{.batch = 1, .heads = 2, .n = 5, .width = 3};
  const Spec& spec = attention::find("informer");
  const Layer layer = make_layer(spec, {}, sizes, DType::f64);
  const Problem problem = make_problem(spec, sizes, Padding::none);
  Call call = training_call(problem.in);
  Draws draws;
  call.injected = &draws;
  draws.set("top", integers({4, 1, -1, -1, 3, 0}, {1, 2, 3}));  // unused slots are no rows
  CHECK(norm(at(run(layer, problem, call), "out")) > 0);
  draws.set("top", integers({4, 1, 2, 0, 3, 0}, {1, 2, 3}));  // its output would be added up
  CHECK_THROWS_WITH_AS((void)run(layer, problem, call),
                       doctest::Contains("informer: draws: top: expected different indices in each "
                                         "row, got 0 twice in row 1"),
                       Error);
}

TEST_CASE("informer_mask without any token gives zero output and zero gradients") {
  const Sizes sizes;
  const Spec& spec = attention::find("informer_mask");
  for (const char* measure : {"sampled", "exact"}) {
    const Layer layer = make_layer(spec, {{"measure", measure}}, sizes, DType::f64);
    const Problem problem = make_problem(spec, sizes, Padding::all);
    for (const auto& [name, tensor] : run(layer, problem, training_call(problem.in))) {
      INFO(name);
      CHECK(norm(tensor) == 0);
    }
  }
}

}  // namespace skytape::test
