#include "tensor/projection/heads.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "tensor/core/on_device.hpp"
#include "tensor/gemm/precision.hpp"
#include "tensor/projection/heads_plan.hpp"
#include "tests/support/close.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/doctest.hpp"
#ifdef SKYTAPE_CUDA_SIMULATED
#include "tests/cuda_simulator/simulator.hpp"
#endif

using namespace skytape;
using namespace skytape::test;

namespace {

struct Sizes {
  std::int64_t B, N, E, P, H, D;
};

// Tiles of a GPU are 128 tokens by 64 columns, and 16 or 64 of E at a time.
const Sizes kSizes[] = {{1, 1, 1, 1, 1, 1},    {2, 3, 5, 3, 2, 4},     {3, 129, 65, 3, 4, 5},
                        {2, 70, 64, 3, 2, 32}, {1, 200, 17, 3, 2, 33}, {1, 131, 130, 2, 4, 16},
                        {2, 4, 0, 2, 1, 3},    {2, 70, 128, 3, 4, 16}};

struct Operands {
  Tensor x;                             // [B, N, E]
  std::vector<Tensor> weights, biases;  // P of [H D, E] and [H D]; the second has no bias
};

Operands operands(const Sizes& s, DType dtype, Device device) {
  Operands o{random_tensor({s.B, s.N, s.E}, dtype, device, 1), {}, {}};
  for (std::int64_t p = 0; p < s.P; ++p) {
    const auto seed = static_cast<std::uint64_t>(10 + 2 * p);
    o.weights.push_back(random_tensor({s.H * s.D, s.E}, dtype, device, seed));
    o.biases.push_back(p == 1 ? Tensor() : random_tensor({s.H * s.D}, dtype, device, seed + 1));
  }
  return o;
}

/// The definition in double: [P, B, H, N, D].
std::vector<double> naive(const Sizes& s, const Operands& o) {
  const std::vector<double> x = o.x.to_vector();
  std::vector<double> y;
  for (std::int64_t p = 0; p < s.P; ++p) {
    const std::size_t at = static_cast<std::size_t>(p);
    const std::vector<double> w = o.weights[at].to_vector();
    const std::vector<double> b = o.biases[at].defined()
                                      ? o.biases[at].to_vector()
                                      : std::vector<double>(static_cast<std::size_t>(s.H * s.D));
    for (std::int64_t row = 0; row < s.B * s.H * s.N; ++row) {
      const std::int64_t token = row / (s.H * s.N) * s.N + row % s.N, h = row / s.N % s.H;
      for (std::int64_t c = h * s.D; c < (h + 1) * s.D; ++c) {
        double sum = b[static_cast<std::size_t>(c)];
        for (std::int64_t e = 0; e < s.E; ++e) {
          sum += x[static_cast<std::size_t>(token * s.E + e)] *
                 w[static_cast<std::size_t>(c * s.E + e)];
        }
        y.push_back(sum);
      }
    }
  }
  return y;
}

}  // namespace

TEST_CASE("projections by head equal the naive double loops") {
  for_each_kind([](DType dtype, Device device) {
    for (const Sizes& s : kSizes) {
      CAPTURE(s.N);
      CAPTURE(s.E);
      const Operands o = operands(s, dtype, device);
      const Tensor y = tensor::project_heads(o.x, o.weights, o.biases, s.H);
      CHECK(y.shape() == Shape{s.P, s.B, s.H, s.N, s.D});
      CHECK(relative_error(y, naive(s, o)) <= 20 * rounding(dtype));
      CHECK(tensor::project_heads(o.x, o.weights, o.biases, s.H).to_vector() == y.to_vector());
    }
  });
}

TEST_CASE("a GPU parts rows by head and gathers them, heads of whole fours and others") {
  if (!cuda_or_skip()) return;
  constexpr std::int64_t B = 2, N = 5, H = 4, P = 3;
  for (const std::int64_t D : {4, 8, 5, 6}) {
    CAPTURE(D);
    const tensor::HeadsPlan plan{B, N, 0, P, H, D};
    const Tensor rows = random_tensor({B * N, P * H * D}, DType::f32, Device::cpu);
    const Operands o = operands({B, N, 1, P, H, D}, DType::f32, Device::cuda);
    Tensor heads = Tensor::empty({P, B, H, N, D}, DType::f32, Device::cuda);
    if constexpr (kHaveCuda) {
      tensor::split_heads_on(Cuda{}, plan, rows.to(Device::cuda), o.biases, heads);
    }
    const Tensor apart = heads.to(Device::cpu);
    std::vector<Tensor> parts = {heads[0], Tensor(), heads[2]};  // none: zero
    const auto on_cpu = tensor::gather_heads(std::vector{apart[0], Tensor(), apart[2]}, DType::f32);
    for (std::int64_t i = 0; i < B * N; ++i) {
      for (std::int64_t c = 0; c < P * H * D; ++c) {
        const std::int64_t p = c / (H * D), own = c % (H * D);
        const double bias = o.biases[static_cast<std::size_t>(p)].defined()
                                ? o.biases[static_cast<std::size_t>(p)][own].item()
                                : 0;
        const double sum = static_cast<float>(rows[i][c].item() + bias);
        CHECK(apart[p][i / N][own / D][i % N][own % D].item() == sum);
        CHECK(on_cpu.rows[i][c].item() == (p == 1 ? 0 : sum));
      }
    }
    for (const DType type : {DType::f32, DType::bf16}) {
      const auto found = tensor::gather_heads(parts, type);
      CHECK(found.rows.to_vector() == on_cpu.rows.to(type).to_vector());
      CHECK(relative_error(found.sums, on_cpu.sums) <= 4 * rounding(DType::f32));
    }
  }
}

TEST_CASE("on tensor cores projections by head lose what rounded operands lose") {
  if (!cuda_or_skip()) return;
  for (const Sizes& s : kSizes) {
    CAPTURE(s.N);
    CAPTURE(s.E);
    const Operands o = operands(s, DType::f32, Device::cuda);
    const std::vector<double> exact = naive(s, o);
    // |x|, |w| <= 2: a product's operands lose up to half a unit of 8 or 11 bits each, of random
    // signs. In true f32 there is no such loss.
    for (const auto& [precision, bits] :
         {std::pair(Precision::bf16, 8), std::pair(Precision::tf32, 11)}) {
      const PrecisionScope scope(Device::cuda, precision);
      const Tensor y = tensor::project_heads(o.x, o.weights, o.biases, s.H);
      const double most = 8 * std::sqrt(static_cast<double>(s.E)) / (1 << bits) + 1e-5;
      double worst = 0;
      const std::vector<double> found = y.to_vector();
      REQUIRE(found.size() == exact.size());
      for (std::size_t i = 0; i < exact.size(); ++i) {
        worst = std::max(worst, std::abs(found[i] - exact[i]));
      }
      CHECK(worst <= most);
      if (s.E > 1) CHECK(relative_error(y, exact) > 20 * rounding(DType::f32));
      CHECK(tensor::project_heads(o.x, o.weights, o.biases, s.H).to_vector() == found);
    }
  }
}

TEST_CASE("gradients by head are gathered entry by entry, and summed over all tokens") {
  for_each_kind([](DType dtype, Device device) {
    for (const Sizes& s : kSizes) {
      CAPTURE(s.N);
      std::vector<Tensor> parts;
      for (std::int64_t p = 0; p < s.P; ++p) {
        parts.push_back(
            random_tensor({s.B, s.H, s.N, s.D}, dtype, device, static_cast<std::uint64_t>(30 + p)));
      }
      if (s.P > 1) parts[0] = Tensor();  // zeros
      const tensor::GatheredHeads g = tensor::gather_heads(parts, dtype);
      const std::int64_t columns = s.P * s.H * s.D;
      REQUIRE(g.rows.shape() == Shape{s.B * s.N, columns});
      REQUIRE(g.sums.shape() == Shape{columns});
      std::vector<double> rows(static_cast<std::size_t>(s.B * s.N * columns)),
          sums(static_cast<std::size_t>(columns));
      for (std::int64_t p = 0; p < s.P; ++p) {
        if (!parts[static_cast<std::size_t>(p)].defined()) continue;
        const std::vector<double> part = parts[static_cast<std::size_t>(p)].to_vector();
        for (std::int64_t i = 0; i < std::ssize(part); ++i) {
          const std::int64_t d = i % s.D, n = i / s.D % s.N, h = i / s.D / s.N % s.H;
          const std::int64_t b = i / s.D / s.N / s.H, column = (p * s.H + h) * s.D + d;
          rows[static_cast<std::size_t>((b * s.N + n) * columns + column)] =
              part[static_cast<std::size_t>(i)];
          sums[static_cast<std::size_t>(column)] += part[static_cast<std::size_t>(i)];
        }
      }
      CHECK(g.rows.to_vector() == rows);
      CHECK(relative_error(g.sums, sums) <= 20 * rounding(dtype));
      CHECK(tensor::gather_heads(parts, dtype).sums.to_vector() == g.sums.to_vector());
      if (device == Device::cpu || dtype != DType::f32) continue;
      const tensor::GatheredHeads rounded = tensor::gather_heads(parts, DType::bf16);
      CHECK(rounded.rows.to_vector() == g.rows.to(DType::bf16).to_vector());
      CHECK(rounded.sums.to_vector() == g.sums.to_vector());

      const Tensor one = parts.back();  // [B, H, N, D]
      Tensor merged = Tensor::empty({s.B * s.N, s.H * s.D}, DType::bf16, device);
      const tensor::HeadsPlan plan{s.B, s.N, s.E, 1, s.H, s.D};
      on_cuda([&](auto tag) { tensor::merge_rows_on(tag, plan, one, merged); });
      CHECK(merged.to_vector() == tensor::gather_heads({&one, 1}, DType::bf16).rows.to_vector());
    }
  });
}

TEST_CASE("weights are stacked one below the other") {
  for_each_kind([](DType dtype, Device device) {
    const Operands o = operands({1, 1, 5, 3, 2, 7}, dtype, device);
    std::vector<double> all;
    for (const Tensor& w : o.weights) {
      const std::vector<double> entries = w.to_vector();
      all.insert(all.end(), entries.begin(), entries.end());
    }
    CHECK(tensor::stack_weights(o.weights).to_vector() == all);
  });
}

#ifdef SKYTAPE_CUDA_SIMULATED
TEST_CASE("on CUDA projections by head are one kernel, and the sums of their biases two") {
  using cuda_simulator::LaunchesOnly;
  constexpr std::int64_t kTokens = 65536, kWidth = 64;
  const LaunchesOnly only;
  const auto somewhere = [](const Shape& shape) {
    return Tensor::empty(shape, DType::f32, Device::cuda);
  };
  const std::vector<Tensor> weights(3, somewhere({64, kWidth})), biases(3, somewhere({64}));
  const Tensor x = somewhere({32, kTokens / 32, kWidth});
  const Tensor y = tensor::project_heads(x, weights, biases, 2);
  CHECK(LaunchesOnly::all().size() == 1);
  const std::vector<Tensor> parts = {y[0], y[1], y[2]};
  (void)tensor::gather_heads(parts, DType::f32);
  CHECK(LaunchesOnly::all().size() == 3);  // the second adds the chunks' sums
}
#endif
