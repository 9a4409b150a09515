#include "tensor/random/dropout.hpp"

#include <omp.h>

#include <cmath>
#include <vector>

#include "tensor/random/philox.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;
using namespace skytape::tensor;

namespace {

constexpr std::uint64_t kKey = 0xfeedfacecafebeefu;

Tensor draw(const Shape& shape, std::uint64_t key, DType dtype = DType::f64) {
  return normal(shape, Random{key, {}}, dtype, Device::cpu);
}

Tensor step_tensor(int step) {
  return Tensor::from(std::vector<std::int32_t>{step}, {1}, DType::i32, Device::cpu);
}

/// Factors entry by entry, from the numbering that dropout.hpp promises.
std::vector<double> naive_factors(const Shape& shape, const Dropout& o, std::uint64_t step) {
  const std::uint32_t threshold = static_cast<std::uint32_t>(std::lround(o.rate * 65536));
  const double scale = 1 / (1 - threshold / 65536.0);
  const std::int64_t nominal = o.nominal_length == 0 ? shape[1] : o.nominal_length;
  std::vector<double> factors;
  for (std::int64_t b = 0; b < shape[0]; ++b) {
    for (std::int64_t i = 0; i < shape[1]; ++i) {
      for (std::int64_t c = 0; c < shape[2]; ++c) {
        const std::int64_t element = ((o.first_example + b) * nominal + i) * shape[2] + c;
        const bool keep = philox::dropout_bits(o.random.key, step, element) >= threshold;
        factors.push_back(keep ? scale : 0);
      }
    }
  }
  return factors;
}

double gelu(double z) { return 0.5 * z * std::erfc(-z / std::sqrt(2.0)); }
double gelu_slope(double z) {
  return 0.5 * std::erfc(-z / std::sqrt(2.0)) + z * std::exp(-0.5 * z * z) / std::sqrt(2 * M_PI);
}

void check_close(const std::vector<double>& got, const std::vector<double>& want,
                 double tolerance) {
  REQUIRE(got.size() == want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    REQUIRE(got[i] == doctest::Approx(want[i]).epsilon(tolerance));
  }
}

// Where sequences are trimmed by five rows, the last two shapes have ranges of numbers that begin with
// a chunk and end within one.
const Shape kShapes[] = {{2, 3, 5},  {1, 1, 1},   {3, 7, 128}, {2, 40, 64},
                         {4, 9, 33}, {2, 1, 300}, {3, 3, 16},  {4, 123, 5}};

}  // namespace

TEST_CASE("dropout bits are the halves of the words of 16 counters a chunk") {
  const std::uint64_t step = 9;
  for (const std::int64_t chunk : {std::int64_t{0}, std::int64_t{7}, std::int64_t{1} << 40}) {
    for (int j = 0; j < 16; ++j) {
      const philox::Words words = philox::draw(
          kKey, static_cast<std::uint64_t>(chunk) * 16 + static_cast<unsigned>(j), step);
      for (int k = 0; k < 4; ++k) {
        for (int h = 0; h < 2; ++h) {
          CHECK(philox::dropout_bits(kKey, step, chunk * 128 + (2 * k + h) * 16 + j) ==
                (words.w[k] >> (16 * h) & 0xffffu));
        }
      }
    }
  }
}

TEST_CASE("keep_factors decides like dropout_bits, also past 32-bit counters") {
  const std::uint32_t threshold = 20000;
  for (const std::int64_t first : {std::int64_t{0}, std::int64_t{3}, (std::int64_t{1} << 28) - 2}) {
    std::vector<float> f32(5 * 128);
    std::vector<double> f64(5 * 128);
    philox::keep_factors(kKey, 4, first, 5, threshold, 1.25F, f32.data());
    philox::keep_factors(kKey, 4, first, 5, threshold, 1.25, f64.data());
    for (std::int64_t e = 0; e < 5 * 128; ++e) {
      const bool keep = philox::dropout_bits(kKey, 4, first * 128 + e) >= threshold;
      REQUIRE(f32[static_cast<std::size_t>(e)] == (keep ? 1.25F : 0));
      REQUIRE(f64[static_cast<std::size_t>(e)] == (keep ? 1.25 : 0));
    }
  }
}

TEST_CASE("dropout factors follow the element numbers, trimmed, shifted or not") {
  test::for_each_device([](Device device) {
    for (const Shape& shape : kShapes) {
      for (const std::int64_t nominal : {std::int64_t{0}, shape[1], shape[1] + 5}) {
        for (const std::int64_t first : {0, 3}) {
          const Dropout o{0.3, {kKey, step_tensor(12).to(device)}, first, nominal};
          CAPTURE(shape);
          CAPTURE(nominal);
          const std::vector<double> want = naive_factors(shape, o, 12);
          CHECK(dropout_factors(shape, o, DType::f64, device).to_vector() == want);
          check_close(dropout_factors(shape, o, DType::f32, device).to_vector(), want, 1e-6);
        }
      }
    }
  });
}

TEST_CASE("trimming a batch or splitting it changes no mask") {
  const Dropout whole{0.4, {kKey, {}}, 0, 20};
  const Tensor all = dropout_factors({6, 20, 7}, whole, DType::f64, Device::cpu);  // [6, 20, 7]
  Dropout part = whole;
  part.first_example = 4;
  CHECK(dropout_factors({2, 20, 7}, part, DType::f64, Device::cpu).to_vector() ==
        all.slice(4, 6).to_vector());
  const Tensor trimmed = dropout_factors({6, 11, 7}, whole, DType::f64, Device::cpu);
  for (std::int64_t b = 0; b < 6; ++b) {
    CHECK(trimmed[b].to_vector() == all[b].slice(0, 11).to_vector());
  }
}

TEST_CASE("the dropout fusions multiply by the factors") {
  for (const Shape& shape : kShapes) {
    const Random random{kKey, step_tensor(3)};
    const Dropout o{0.25, random, 1, shape[1] + 2};
    const std::vector<double> keep = naive_factors(shape, o, 3);
    for (const DType dtype : {DType::f32, DType::f64}) {
      const double tolerance = dtype == DType::f32 ? 2e-6 : 1e-14;
      const Tensor x = draw(shape, 1, dtype), r = draw(shape, 2, dtype), dy = draw(shape, 3, dtype);
      const Tensor bias = draw({shape[2]}, 4, dtype);
      const std::vector<double> vx = x.to_vector(), vr = r.to_vector(), vdy = dy.to_vector();
      const std::vector<double> vb = bias.to_vector();
      std::vector<double> y(keep.size()), sum(keep.size()), biased(keep.size());
      std::vector<double> activated(keep.size()), dx(keep.size());
      for (std::size_t i = 0; i < keep.size(); ++i) {
        const double z = vx[i] + vb[i % vb.size()];
        y[i] = vx[i] * keep[i];
        sum[i] = vr[i] + y[i];
        biased[i] = vr[i] + z * keep[i];
        activated[i] = gelu(z) * keep[i];
        dx[i] = vdy[i] * keep[i] * gelu_slope(z);
      }
      CAPTURE(shape);
      check_close(dropout(x, o).to_vector(), y, tolerance);
      check_close(add_dropout(r, x, {}, o).to_vector(), sum, tolerance);
      check_close(add_dropout(r, x, bias, o).to_vector(), biased, tolerance);
      check_close(bias_gelu_dropout(x, bias, o).to_vector(), activated, tolerance);
      check_close(bias_gelu_dropout_backward(x, bias, o, dy).to_vector(), dx, tolerance);
      if (dtype == DType::f64) continue;
      const auto rounded = [](const Tensor& t) { return t.to(DType::bf16); };
      const auto read = [&](const Tensor& t) { return rounded(t).to(DType::f32); };
      CHECK(bias_gelu_dropout(rounded(x), bias, o).to_vector() ==
            rounded(bias_gelu_dropout(read(x), bias, o)).to_vector());
      CHECK(bias_gelu_dropout_backward(rounded(x), bias, o, rounded(dy)).to_vector() ==
            rounded(bias_gelu_dropout_backward(read(x), bias, o, read(dy))).to_vector());
    }
  }
}

TEST_CASE("rate 0 is the identity, needs no step and shares the memory") {
  const Tensor x = draw({2, 5, 30}, 1), bias = draw({30}, 2);
  const Dropout none;
  const Tensor y = dropout(x, none);
  CHECK(y.to_vector() == x.to_vector());
  CHECK(y.raw() == x.raw());
  CHECK(dropout_factors(x.shape(), none, DType::f64, Device::cpu).to_vector() ==
        std::vector<double>(300, 1.0));
  const std::vector<double> vx = x.to_vector(), vb = bias.to_vector();
  const std::vector<double> activated = bias_gelu_dropout(x, bias, none).to_vector();
  const std::vector<double> doubled = add_dropout(x, x, {}, none).to_vector();
  for (std::size_t i = 0; i < vx.size(); ++i) {
    CHECK(activated[i] == doctest::Approx(gelu(vx[i] + vb[i % 30])).epsilon(1e-12));
    CHECK(doubled[i] == 2 * vx[i]);
  }
}

TEST_CASE("the share of dropped elements is the rate, in every eighth of a chunk") {
  for (const double rate : {0.1, 0.5, 0.9}) {
    const std::int64_t n = 1 << 18;
    const std::vector<double> f =
        dropout_factors({1, n, 1}, {rate, {kKey, {}}}, DType::f64, Device::cpu).to_vector();
    std::vector<double> dropped(8);
    double sum = 0;
    for (std::size_t i = 0; i < f.size(); ++i) {
      dropped[i % 128 / 16] += f[i] == 0 ? 1 : 0;
      sum += f[i];
    }
    const double sigma = std::sqrt(rate * (1 - rate) / (static_cast<double>(n) / 8));
    for (const double count : dropped) {
      CHECK(std::abs(count / (static_cast<double>(n) / 8) - rate) < 5 * sigma);
    }
    CHECK(std::abs(sum / static_cast<double>(n) - 1) < 5 * sigma / (1 - rate));
  }
}

TEST_CASE("masks of different steps, keys and runs are different") {
  const auto mask = [](std::uint64_t key, int step) {
    return dropout_factors({1, 64, 4}, {0.5, {key, step_tensor(step)}}, DType::f32, Device::cpu)
        .to_vector();
  };
  CHECK(mask(kKey, 1) == mask(kKey, 1));
  CHECK(mask(kKey, 1) != mask(kKey, 2));
  CHECK(mask(kKey, 1) != mask(kKey + 1, 1));
}

TEST_CASE("the bits of dropout do not depend on the number of threads") {
  const int threads = omp_get_max_threads();
  const Tensor x = draw({3, 500, 60}, 1, DType::f32), bias = draw({60}, 2, DType::f32);
  const Dropout o{0.1, {kKey, {}}, 2, 700};
  omp_set_num_threads(1);
  const std::vector<double> one = bias_gelu_dropout(x, bias, o).to_vector();
  omp_set_num_threads(3);
  CHECK(bias_gelu_dropout(x, bias, o).to_vector() == one);
  omp_set_num_threads(threads);
}

TEST_CASE("empty tensors pass through dropout") {
  const Dropout o{0.5, {kKey, {}}};
  for (const Shape& shape : {Shape{0, 3, 4}, Shape{2, 0, 4}, Shape{2, 3, 0}}) {
    const Tensor x = Tensor::zeros(shape, DType::f32, Device::cpu);
    const Tensor bias = Tensor::zeros({shape[2]}, DType::f32, Device::cpu);
    CHECK(dropout(x, o).shape() == shape);
    CHECK(bias_gelu_dropout(x, bias, o).shape() == shape);
  }
}

TEST_CASE("threshold and scale round the rate to 1/65536") {
  CHECK(dropout_threshold("test", 0) == 0);
  CHECK(dropout_threshold("test", 0.25) == 16384);
  CHECK(dropout_threshold("test", 0.9999999) == 65535);
  CHECK(dropout_scale(16384) == doctest::Approx(4.0 / 3).epsilon(1e-15));
}

TEST_CASE("dropout refuses wrong rates, shapes and lengths") {
  const Tensor x = Tensor::zeros({2, 8, 4}, DType::f32, Device::cpu);
  CHECK_THROWS_WITH_AS((void)dropout(x, {1.0, {}}),
                       "dropout: the dropout rate must be in [0, 1), got 1", Error);
  CHECK_THROWS_AS((void)dropout(x, {-0.1, {}}), Error);
  CHECK_THROWS_AS((void)dropout(x, {std::nan(""), {}}), Error);
  CHECK_THROWS_WITH_AS((void)dropout(x.reshape({16, 4}), {0.1, {}}),
                       "dropout: expected a shape [B, N, E], got [16, 4]", Error);
  CHECK_THROWS_WITH_AS((void)dropout(x, {0.1, {}, 0, 7}),
                       "dropout: nominal_length 7 is shorter than the sequences of [2, 8, 4]",
                       Error);
  CHECK_THROWS_WITH_AS((void)add_dropout(x, x.reshape({4, 4, 4}), {}, {0.1, {}}),
                       doctest::Contains("add_dropout: shapes differ: residual f32[2, 8, 4]@cpu"),
                       Error);
  const Tensor bias = Tensor::zeros({3}, DType::f32, Device::cpu);
  CHECK_THROWS_WITH_AS((void)bias_gelu_dropout(x, bias, {0.1, {}}),
                       "bias_gelu_dropout: expected a bias [F] for x f32[2, 8, 4]@cpu, got "
                       "f32[3]@cpu",
                       Error);
}
