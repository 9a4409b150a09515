#include "tensor/movement/gather.hpp"

#include <omp.h>

#include <cmath>
#include <utility>
#include <vector>

#include "tensor/embedding/embedding.hpp"
#include "tensor/random/random.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;
using namespace skytape::tensor;
using skytape::test::for_each_device;
using skytape::test::for_each_kind;

namespace {

Tensor draw(const Shape& shape, std::uint64_t key, DType dtype = DType::f64) {
  return normal(shape, Random{key, {}}, dtype, Device::cpu);
}

/// Indices in [0, n), with repeats.
Tensor draw_index(const Shape& shape, std::int64_t n, std::uint64_t key) {
  std::vector<std::int32_t> values;
  for (const double u : uniform(shape, Random{key, {}}, DType::f64, Device::cpu).to_vector()) {
    values.push_back(static_cast<std::int32_t>((1 - u) * static_cast<double>(n)));
  }
  return Tensor::from(values, shape, DType::i32, Device::cpu);
}

/// Calls f(flat row of x, flat row of y) for every pick of x: [B, H, n, p], index: [.., d].
template <class F> void each_pick(const Shape& x, const Tensor& index, const F& f) {
  const std::vector<double> picks = index.to_vector();
  const std::int64_t d = index.size(-1);
  for (std::int64_t b = 0; b < x[0]; ++b) {
    for (std::int64_t h = 0; h < x[1]; ++h) {
      const std::int64_t list = index.rank() == 3 ? b * x[1] + h : (index.rank() == 2 ? b : 0);
      for (std::int64_t i = 0; i < d; ++i) {
        const auto pick = static_cast<std::int64_t>(picks[static_cast<std::size_t>(list * d + i)]);
        f((b * x[1] + h) * x[2] + pick, (b * x[1] + h) * d + i);
      }
    }
  }
}

const Shape kIndexShapes[] = {{2, 3, 11}, {2, 11}, {11}};  // per head, per example, one for all

}  // namespace

TEST_CASE("gather_rows picks the rows, with one list per head, per example or for all") {
  for (const std::int64_t p : {1, 5, 130}) {
    const Tensor x = draw({2, 3, 7, p}, 1);  // [B, H, n, p]
    for (const Shape& shape : kIndexShapes) {
      const Tensor index = draw_index(shape, 7, 2);
      const Tensor y = gather_rows(x, index);  // [B, H, d, p]
      REQUIRE(y.shape() == Shape{2, 3, 11, p});
      each_pick(x.shape(), index, [&](std::int64_t from, std::int64_t to) {
        CHECK(y.reshape({66, p})[to].to_vector() == x.reshape({42, p})[from].to_vector());
      });
    }
  }
}

TEST_CASE("scatter_add_rows adds repeated rows in order") {
  struct Case {
    Shape index;
    std::int64_t rows, width;
  };
  // The last ones have more picks than a GPU sorts at a time, of one row in all such parts, or of
  // more parts than a warp has lanes.
  std::vector<Case> cases = {
      {{11}, 3, 130}, {{2, 5000}, 600, 3}, {{3000}, 1, 2}, {{70000}, 50000, 1}};
  for (const Shape& index : kIndexShapes) {
    for (const std::int64_t width : {1, 5, 32, 36, 130}) cases.push_back({index, 7, width});
  }
  for_each_kind([&](DType dtype, Device device) {
    for (const Case& c : cases) {
      const std::int64_t picks = c.index[c.index.rank() - 1], p = c.width;
      const Shape lead = picks <= 5000 ? Shape{2, 3} : Shape{1, 1};  // [B, H]
      CAPTURE(c.index);
      CAPTURE(p);
      const Tensor index = draw_index(c.index, c.rows, 2);
      const Tensor y = draw(lead.append(picks).append(p), 3, dtype);  // [B, H, d, p]
      Tensor x = draw(lead.append(c.rows).append(p), 4, dtype);       // [B, H, n, p]
      std::vector<double> want = x.to_vector();
      const std::vector<double> rows = y.to_vector();
      each_pick(x.shape(), index, [&](std::int64_t to, std::int64_t from) {
        for (std::int64_t e = 0; e < p; ++e) {
          double& sum = want[static_cast<std::size_t>(to * p + e)];
          sum += rows[static_cast<std::size_t>(from * p + e)];
          if (dtype == DType::f32) sum = static_cast<float>(sum);
        }
      });
      Tensor sums = x.to(device).clone();
      scatter_add_rows(sums, index.to(device), y.to(device));
      CHECK(sums.to_vector() == want);
    }
  });
}

TEST_CASE("scatter_add_rows is the adjoint of gather_rows") {
  const Tensor x = draw({3, 9, 4}, 1), y = draw({3, 20, 4}, 2);
  const Tensor index = draw_index({3, 20}, 9, 3);
  Tensor scattered = Tensor::zeros(x.shape(), DType::f64, Device::cpu);  // [3, 9, 4]
  scatter_add_rows(scattered, index, y);
  const std::vector<double> gathered = gather_rows(x, index).to_vector(), vy = y.to_vector();
  const std::vector<double> vx = x.to_vector(), vs = scattered.to_vector();
  double left = 0, right = 0;
  for (std::size_t i = 0; i < vy.size(); ++i) left += gathered[i] * vy[i];
  for (std::size_t i = 0; i < vx.size(); ++i) right += vx[i] * vs[i];
  CHECK(left == doctest::Approx(right).epsilon(1e-13));
}

TEST_CASE("embedding looks rows up for ids of any shape") {
  const Tensor table = draw({5, 3}, 1);  // [V, E]
  const Tensor ids =
      Tensor::from(std::vector<std::int32_t>{4, 0, 2, 2}, {2, 2}, DType::i32, Device::cpu);
  const Tensor y = embedding(table, ids);  // [2, 2, E]
  REQUIRE(y.shape() == Shape{2, 2, 3});
  CHECK(y[0][0].to_vector() == table[4].to_vector());
  CHECK(y[0][1].to_vector() == table[0].to_vector());
  CHECK(y[1][1].to_vector() == table[2].to_vector());
}

TEST_CASE("embedding_backward sums the rows of each id") {
  for (const std::int64_t vocabulary : {1, 6, 700}) {
    for (const std::int64_t count : {0, 1, 255, 256, 257, 2000}) {
      const Tensor ids = draw_index({count}, vocabulary, 5);
      const Tensor dy = draw({count, 17}, 6);                         // [T, E]
      const Tensor dtable = embedding_backward(dy, ids, vocabulary);  // [V, E]
      std::vector<double> want(static_cast<std::size_t>(vocabulary * 17));
      const std::vector<double> id = ids.to_vector(), rows = dy.to_vector();
      for (std::size_t i = 0; i < id.size(); ++i) {
        for (std::size_t c = 0; c < 17; ++c) {
          want[static_cast<std::size_t>(id[i]) * 17 + c] += rows[i * 17 + c];
        }
      }
      const std::vector<double> got = dtable.to_vector();
      REQUIRE(got.size() == want.size());
      for (std::size_t i = 0; i < want.size(); ++i) {
        REQUIRE(got[i] == doctest::Approx(want[i]).epsilon(1e-12));
      }
    }
  }
}

TEST_CASE("embedding_backward sums the rows of each id exactly where numbers are whole") {
  // Tables that fit into a GPU's shared memory, in f32 alone or in both types, and one that does
  // not.
  for_each_device([](Device device) {
    for (const DType dtype : {DType::f32, DType::f64}) {
      for (const std::int64_t vocabulary : {1, 20, 300, 700}) {
        for (const auto& [count, width] : {std::pair(1, 3), {33, 64}, {1000, 140}, {20000, 2}}) {
          CAPTURE(vocabulary);
          CAPTURE(count);
          Tensor ids = draw_index({count}, vocabulary, 5);
          for (int i = 0; i < count; i += 3) ids.data<std::int32_t>()[i] = 0;  // a frequent one
          std::vector<double> rows, want(static_cast<std::size_t>(vocabulary * width));
          for (int i = 0; i < count * width; ++i) rows.push_back(i * 7919 % 17 - 8);
          const std::vector<double> id = ids.to_vector();
          for (std::size_t i = 0; i < rows.size(); ++i) {
            const auto w = static_cast<std::size_t>(width);
            want[static_cast<std::size_t>(id[i / w]) * w + i % w] += rows[i];
          }
          const Tensor dy = Tensor::from(rows, {count, width}, dtype, device);
          CHECK(embedding_backward(dy, ids.to(device), vocabulary).to_vector() == want);
        }
      }
    }
  });
}

TEST_CASE("a frequent id keeps the digits of its f32 gradient") {
  // One running f32 sum of 2^18 thirds would be off by more than a thousandth.
  const std::int64_t count = 1 << 18;
  const Tensor dy = Tensor::full({count, 1}, 1.0 / 3, DType::f32, Device::cpu);
  const Tensor ids = Tensor::zeros({count}, DType::i32, Device::cpu);
  const double sum = embedding_backward(dy, ids, 2).to_vector()[0];
  CHECK(sum == doctest::Approx(static_cast<double>(count) * (1.0F / 3.0F)).epsilon(2e-5));
}

TEST_CASE("the bits of scatter-adds do not depend on the number of threads") {
  const int threads = omp_get_max_threads();
  const Tensor ids = draw_index({5000}, 40, 1), dy = draw({5000, 33}, 2, DType::f32);
  const Tensor index = draw_index({3, 900}, 50, 3), y = draw({3, 900, 70}, 4, DType::f32);
  const auto run = [&](int count) {
    omp_set_num_threads(count);
    Tensor x = Tensor::zeros({3, 50, 70}, DType::f32, Device::cpu);
    scatter_add_rows(x, index, y);
    std::vector<double> all = embedding_backward(dy, ids, 40).to_vector();
    const std::vector<double> scattered = x.to_vector();
    all.insert(all.end(), scattered.begin(), scattered.end());
    return all;
  };
  const std::vector<double> one = run(1);
  CHECK(run(2) == one);
  CHECK(run(3) == one);
  omp_set_num_threads(threads);
}

TEST_CASE("on a GPU an index out of range gives rows of NaN, and backward leaves it out") {
  if (!test::cuda_or_skip()) return;
  constexpr std::int64_t kRows = 7, kPicks = 6000, kWidth = 3;
  // Most of the first 2,048, which are sorted together, and none of the others.
  const auto is_out = [](std::int64_t i) { return i < 2048 && i % 4 != 0; };
  std::vector<std::int32_t> picks;
  std::vector<std::size_t> rows;
  for (std::int64_t i = 0; i < kPicks; ++i) {
    const std::int64_t row = i * 7919 % kRows;
    const std::int64_t outside = i % 16 == 1 ? kRows + row : -1 - row;
    picks.push_back(static_cast<std::int32_t>(is_out(i) ? outside : row));
    rows.push_back(static_cast<std::size_t>(row));
  }
  const Tensor index = Tensor::from(picks, {kPicks}, DType::i32, Device::cuda);
  const Tensor x = draw({kRows, kWidth}, 1), y = draw({kPicks, kWidth}, 2);
  const std::vector<double> gathered = gather_rows(x.to(Device::cuda), index).to_vector();
  const std::vector<double> from = x.to_vector(), added = y.to_vector();
  std::vector<double> want(kRows * kWidth, 0.0);
  for (std::size_t e = 0; e < gathered.size(); ++e) {
    const std::size_t i = e / kWidth, to = rows[i] * kWidth + e % kWidth;
    const bool out = is_out(static_cast<std::int64_t>(i));
    REQUIRE(std::isnan(gathered[e]) == out);
    if (out) continue;
    REQUIRE(gathered[e] == from[to]);
    want[to] += added[e];
  }
  Tensor sums = Tensor::zeros(x.shape(), DType::f64, Device::cuda);
  scatter_add_rows(sums, index, y.to(Device::cuda));
  CHECK(sums.to_vector() == want);
}

TEST_CASE("empty gathers and scatters are legal") {
  const Tensor none = Tensor::zeros({0}, DType::i32, Device::cpu);
  CHECK(gather_rows(draw({2, 4, 3}, 1), none).shape() == Shape{2, 0, 3});
  CHECK(gather_rows(Tensor::zeros({0, 4, 3}, DType::f32, Device::cpu), none).shape() ==
        Shape{0, 0, 3});
  Tensor x = draw({4, 3}, 1);
  const std::vector<double> before = x.to_vector();
  scatter_add_rows(x, none, Tensor::zeros({0, 3}, DType::f64, Device::cpu));
  CHECK(x.to_vector() == before);
  CHECK(embedding(x, none).shape() == Shape{0, 3});
  CHECK(embedding_backward(Tensor::zeros({0, 3}, DType::f64, Device::cpu), none, 2).to_vector() ==
        std::vector<double>(6, 0.0));
}

TEST_CASE("gathers name an index out of range and shapes that do not fit") {
  const Tensor x = Tensor::zeros({2, 4, 3}, DType::f32, Device::cpu);
  const auto index = [](const std::vector<std::int32_t>& values) {
    return Tensor::from(values, {static_cast<std::int64_t>(values.size())}, DType::i32,
                        Device::cpu);
  };
  CHECK_THROWS_WITH_AS((void)gather_rows(x, index({0, 4})),
                       "gather_rows: index 4 at position 1 of i32[2]@cpu is outside [0, 4)", Error);
  CHECK_THROWS_WITH_AS((void)embedding(x[0], index({-1})),
                       "embedding: index -1 at position 0 of i32[1]@cpu is outside [0, 4)", Error);
  Tensor target = x.clone();
  CHECK_THROWS_WITH_AS(scatter_add_rows(target, index({1, 2}), x),
                       "scatter_add_rows: x f32[2, 4, 3]@cpu and index i32[2]@cpu need rows of "
                       "shape [2, 2, 3], got y f32[2, 4, 3]@cpu",
                       Error);
  CHECK_THROWS_AS((void)gather_rows(x, Tensor::zeros({3, 2}, DType::i32, Device::cpu)), Error);
  CHECK_THROWS_AS((void)gather_rows(x, Tensor::zeros({2}, DType::f32, Device::cpu)), Error);
  CHECK_THROWS_AS((void)gather_rows(x[0][0], index({0})), Error);
  CHECK_THROWS_AS((void)embedding_backward(x, index({0}), 4), Error);
  CHECK_THROWS_AS((void)embedding_backward(x[0], index({0, 1, 2, 9}), 9), Error);
}
