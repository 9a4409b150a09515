// The iterative inverse on a GPU, one block or two a matrix: as exact as the chain of library
// products, but for what bf16's planes leave out.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "attention/inverse/iterative_inverse.hpp"
#include "attention/inverse/iterative_inverse_plan.hpp"
#include "attention/landmarks/scaled_inverse.hpp"
#include "tensor/core/on_device.hpp"
#include "tensor/gemm/precision.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/norm/softmax.hpp"
#include "tests/support/close.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/doctest.hpp"
#ifdef SKYTAPE_CUDA_SIMULATED
#include "tests/cuda_simulator/simulator.hpp"
#endif

namespace skytape::test {
namespace {

using attention::InverseConfig;
using attention::InverseKept;
using attention::InverseSaved;
using attention::InverseTrace;

constexpr Precision kPrecisions[] = {Precision::fp32, Precision::tf32, Precision::bf16};

/// M, V_0 and dZ of some matrices; [G, L, L] of f32 on the CPU.
struct Problem {
  Tensor m, start, dz;
};

/// V_0 = M^T / the largest column sum.
Problem problem_of(const std::vector<double>& m, std::int64_t count, std::int64_t size) {
  std::vector<double> start(m.size());
  for (std::int64_t g = 0; g < count; ++g) {
    const std::int64_t first = g * size * size;
    double largest = 0;
    for (std::int64_t j = 0; j < size; ++j) {
      double sum = 0;
      for (std::int64_t i = 0; i < size; ++i) sum += m[first + i * size + j];
      largest = std::max(largest, sum);
    }
    for (std::int64_t e = 0; e < size * size; ++e) {
      start[first + e] = m[first + e % size * size + e / size] / largest;
    }
  }
  const Shape shape{count, size, size};
  return {Tensor::from(m, shape, DType::f32, Device::cpu),
          Tensor::from(start, shape, DType::f32, Device::cpu),
          random_tensor(shape, DType::f32, Device::cpu, 8, -1, 1)};
}

/// Rows that are softmax weights, as Nystromformer inverts them.
Problem softmax_problem(std::int64_t count, std::int64_t size) {
  const Tensor m = tensor::softmax(random_tensor({count, size, size}));
  return problem_of(m.to_vector(), count, size);
}

/// Points whose Gaussian kernel is inverted: [size, width], entries below `reach`.
struct Points {
  std::int64_t width;
  double reach;
  double gamma;  // added to the kernel's diagonal
};
/// Close together: most eigenvalues are below what f32 can tell from zero.
constexpr Points kClose = {4, 0.7, 0};
/// Skyformer's landmarks of 32 channels times 32^(-1/4): normal entries reach so far.
Points landmarks_of(double deviation) {
  return {32, deviation * std::sqrt(3.0) * std::pow(32.0, -0.25), 0.1};
}

/// R (K + gamma I) R, K the Gaussian kernel of points, R 1 = ((K + gamma I) 1)^(-1/2): Skyformer's
/// matrices.
Problem kernel_problem(std::int64_t count, std::int64_t size, const Points& points = kClose) {
  const std::vector<double> x = random_tensor({count, size, points.width}, DType::f64, Device::cpu,
                                              3, -points.reach, points.reach)
                                    .to_vector();
  std::vector<double> m(count * size * size);
  for (std::int64_t g = 0; g < count; ++g) {
    std::vector<double> sums(size, 0.0);
    const auto at = [&](std::int64_t i, std::int64_t j) -> double& {
      return m[(g * size + i) * size + j];
    };
    for (std::int64_t i = 0; i < size; ++i) {
      for (std::int64_t j = 0; j < size; ++j) {
        double distance = 0;
        for (std::int64_t d = 0; d < points.width; ++d) {
          const std::int64_t of_i = (g * size + i) * points.width + d;
          const std::int64_t of_j = (g * size + j) * points.width + d;
          distance += (x[of_i] - x[of_j]) * (x[of_i] - x[of_j]);
        }
        at(i, j) = std::exp(-distance / 2) + (i == j ? points.gamma : 0.0);
        sums[i] += at(i, j);
      }
    }
    for (std::int64_t i = 0; i < size; ++i) {
      for (std::int64_t j = 0; j < size; ++j) at(i, j) /= std::sqrt(sums[i] * sums[j]);
    }
  }
  return problem_of(m, count, size);
}

struct Results {
  Tensor z, dm, dstart;  // [G, L, L]
};

/// All steps and their gradients: a chain of products, or as the device does it, with so many
/// blocks a matrix at most.
Results run(const Problem& p, std::int64_t steps, DType dtype, Device device, bool chain,
            [[maybe_unused]] int most_blocks = attention::kMostInverseBlocks) {
  const auto moved = [&](const Tensor& x) { return x.to(dtype).to(device); };
  const Tensor m = moved(p.m), dz = moved(p.dz);
  Results out{{}, empty_like(m), empty_like(m)};
  const InverseKept kept =
      chain ? InverseKept::factors
            : on_device(device, [&](auto tag) { return attention::inverse_kept_on(tag, m); });
  InverseTrace trace = attention::empty_trace(moved(p.start), steps, kept);
  on_device(device, [&](auto tag) {
    if (chain) {
      attention::inverse_steps_batched(m, trace);
      attention::inverse_steps_backward_batched(m, trace, dz, out.dm, out.dstart);
    } else {
      const auto run_on = [&](auto... most) {
        attention::inverse_steps_on(tag, m, trace, most...);
        attention::inverse_steps_backward_on(tag, m, trace, dz, out.dm, out.dstart, most...);
      };
      if constexpr (std::is_same_v<decltype(tag), Cuda>) {
        run_on(most_blocks);
      } else {
        run_on();
      }
    }
  });
  out.z = trace.iterates.back();
  return out;
}

double largest_of(const Tensor& x) {
  double largest = 0;
  for (const double v : x.to_vector()) largest = std::max(largest, std::abs(v));
  return largest;
}

/// Largest difference over the largest entry, or over `scale` where that is more.
double error_of(const Tensor& a, const Tensor& exact, double scale = 0) {
  const std::vector<double> x = a.to_vector(), y = exact.to_vector();
  double difference = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    if (!std::isfinite(x[i])) return std::numeric_limits<double>::infinity();
    difference = std::max(difference, std::abs(x[i] - y[i]));
  }
  return difference == 0 ? 0 : difference / std::max(largest_of(exact), scale);
}

/// At most three times the chain's error, and a few roundings. Once the steps have converged, their
/// start no longer matters and its exact gradient is almost zero: its errors are those of what came
/// in, dz.
void check_rule(const Results& block, const Results& chain, const Results& exact,
                const Tensor& dz) {
  constexpr double kFloor = 1e-6;
  const double incoming = largest_of(dz);
  CHECK(error_of(block.z, exact.z) <= 3 * error_of(chain.z, exact.z) + kFloor);
  CHECK(error_of(block.dm, exact.dm) <= 3 * error_of(chain.dm, exact.dm) + kFloor);
  CHECK(error_of(block.dstart, exact.dstart, incoming) <=
        3 * error_of(chain.dstart, exact.dstart, incoming) + kFloor);
}

/// |a - exact| / |exact|, Frobenius norms.
double distance_of(const Tensor& a, const Tensor& exact) {
  const std::vector<double> x = a.to_vector(), y = exact.to_vector();
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    difference += (x[i] - y[i]) * (x[i] - y[i]);
    norm += y[i] * y[i];
  }
  return std::sqrt(difference / norm);
}

bool same_bits(const Tensor& a, const Tensor& b) {
  const auto word = [](double x) { return std::bit_cast<std::uint64_t>(x); };
  const std::vector<double> x = a.to_vector(), y = b.to_vector();
  return std::equal(x.begin(), x.end(), y.begin(), y.end(),
                    [&](double p, double q) { return word(p) == word(q); });
}

bool all_finite(const Tensor& x) {
  const std::vector<double> values = x.to_vector();
  return std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); });
}

}  // namespace

TEST_CASE("an inverse in one launch errs as little as the chain of products") {
  if (!cuda_or_skip()) return;
  const auto check = [](const Problem& p, std::int64_t steps) {
    CAPTURE(p.m.size(1));
    const Results exact = run(p, steps, DType::f64, Device::cpu, true);
    const Results chain = run(p, steps, DType::f32, Device::cuda, true);
    for (const Precision precision : {Precision::fp32, Precision::tf32}) {
      CAPTURE(static_cast<int>(precision));
      const PrecisionScope scope(Device::cuda, precision);
      const Results found = run(p, steps, DType::f32, Device::cuda, false);
      check_rule(found, chain, exact, p.dz);
      const Results alone = run(p, steps, DType::f32, Device::cuda, false, 1);  // the same sums
      CHECK(same_bits(found.z, alone.z));
      CHECK(same_bits(found.dm, alone.dm));
      CHECK(same_bits(found.dstart, alone.dstart));
    }
  };
  for (const std::int64_t size : {1, 2, 9, 31, 32, 33}) {
    check(softmax_problem(3, size), 6);
    check(kernel_problem(2, size), 6);
  }
  check(kernel_problem(3, 64), 3);
  check(softmax_problem(1, 65), 1);
  check(kernel_problem(1, 100), 1);
  check(softmax_problem(1, 128), 1);
}

TEST_CASE("an inverse in one launch has the same bits each time, among whatever other matrices") {
  if (!cuda_or_skip()) return;
  const Problem p = kernel_problem(3, 17);
  const Problem last{p.m.slice(2, 3), p.start.slice(2, 3), p.dz.slice(2, 3)};
  for (const Precision precision : kPrecisions) {
    const PrecisionScope scope(Device::cuda, precision);
    const Results one = run(p, 6, DType::f32, Device::cuda, false);
    const Results two = run(p, 6, DType::f32, Device::cuda, false);
    const Results alone = run(last, 6, DType::f32, Device::cuda, false);
    CHECK(same_bits(one.z, two.z));
    CHECK(same_bits(one.dm, two.dm));
    CHECK(same_bits(one.dstart, two.dstart));
    CHECK(same_bits(one.z[2], alone.z[0]));
    CHECK(same_bits(one.dm[2], alone.dm[0]));
    CHECK(same_bits(one.dstart[2], alone.dstart[0]));
  }
}

#ifdef SKYTAPE_CUDA_SIMULATED
using cuda_simulator::LaunchesOnly;

TEST_CASE("matrices have two blocks each where all of them run at once, and else one") {
  const cuda_simulator::ComputeCapability sm_90(9);
  const auto blocks_of = [](std::int64_t count, std::int64_t size,
                            int most = attention::kMostInverseBlocks) {
    const LaunchesOnly only;
    const auto somewhere = [](const Shape& shape) {
      return Tensor::empty(shape, DType::f32, Device::cuda);
    };
    const Tensor m = somewhere({count, size, size});
    InverseTrace trace = attention::empty_trace(m, 6, attention::inverse_kept_on(Cuda{}, m));
    attention::inverse_steps_on(Cuda{}, m, trace, most);
    const auto blocks = static_cast<std::int64_t>(LaunchesOnly::all().back().blocks);
    CHECK(blocks == count * attention::inverse_blocks_on(Cuda{}, count, size, most));
    return blocks;
  };
  CHECK(blocks_of(66, 128) == 132);  // of as many multiprocessors as an H100 has
  CHECK(blocks_of(67, 128) == 67);
  CHECK(blocks_of(5, 33) == 10);
  CHECK(blocks_of(5, 32) == 5);
  CHECK(blocks_of(66, 128, 1) == 66);
  const PrecisionScope planes(Device::cuda, Precision::bf16);
  CHECK(blocks_of(66, 128) == 66);
}
#endif

TEST_CASE("at bf16 an inverse of six steps and its gradient are within 1e-4 of the f64 ones") {
  if (!cuda_or_skip()) return;
#ifdef SKYTAPE_CUDA_SIMULATED
  const cuda_simulator::ComputeCapability sm_90(9);
#endif
  const PrecisionScope scope(Device::cuda, Precision::bf16);
  const auto results = [](const Problem& p, DType dtype, Device device) {
    const auto moved = [&](const Tensor& x) { return x.to(dtype).to(device); };
    InverseSaved saved;
    const Tensor z = attention::inverse_forward(moved(p.m), {}, saved);
    CHECK(saved.trace.planes.defined() == (device == Device::cuda));
    return std::pair(z, attention::inverse_backward(saved, moved(p.dz)));
  };
  const auto check = [&](const Problem& p) {
    CAPTURE(p.m.size(1));
    const auto [exact_z, exact_dm] = results(p, DType::f64, Device::cpu);
    const auto [z, dm] = results(p, DType::f32, Device::cuda);
    CHECK(distance_of(z, exact_z) <= 1e-4);
    CHECK(distance_of(dm, exact_dm) <= 1e-4);
  };
  check(kernel_problem(1, 128, landmarks_of(0.15)));
  check(kernel_problem(1, 128, landmarks_of(1)));
  check(softmax_problem(1, 128));
  check(kernel_problem(2, 64, landmarks_of(1)));
  for (const std::int64_t size : {1, 2, 9, 31, 32, 33}) {
    check(kernel_problem(3, size, landmarks_of(1)));
    check(softmax_problem(2, size));
  }
}

TEST_CASE("each precision has a separate inverse, but bf16 tf32's where blocks have no room") {
  if (!cuda_or_skip()) return;
  const auto at = [&](Precision precision, const Problem& p) {
    const PrecisionScope scope(Device::cuda, precision);
    return run(p, 1, DType::f32, Device::cuda, false).z;
  };
  const Problem p = softmax_problem(2, 20);
  CHECK_FALSE(same_bits(at(Precision::tf32, p), at(Precision::bf16, p)));
  CHECK_FALSE(same_bits(at(Precision::tf32, p), at(Precision::fp32, p)));
#ifdef SKYTAPE_CUDA_SIMULATED  // as sm_80
  const Problem large = softmax_problem(1, 65);
  CHECK(same_bits(at(Precision::tf32, large), at(Precision::bf16, large)));
  const cuda_simulator::ComputeCapability sm_90(9);
  CHECK_FALSE(same_bits(at(Precision::tf32, large), at(Precision::bf16, large)));
#endif
}

TEST_CASE("a matrix that is not finite spoils its own inverse alone, as in the chain") {
  if (!cuda_or_skip()) return;
  constexpr std::int64_t kSize = 11, kEntries = kSize * kSize;
  const Problem good = softmax_problem(4, kSize);
  const auto spoilt = [&](double value) {
    std::vector<double> m = good.m.to_vector();
    m[kEntries + 5] = value;                                // of matrix 1
    std::fill_n(m.begin() + 2 * kEntries, kEntries, 1e30);  // overflows
    return Tensor::from(m, good.m.shape(), DType::f32, Device::cpu);
  };
  for (const double value :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    const Problem p{spoilt(value), good.start, good.dz};
    const Results chain = run(p, 3, DType::f32, Device::cuda, true);
    for (const Precision precision : kPrecisions) {
      const PrecisionScope scope(Device::cuda, precision);
      const Results block = run(p, 3, DType::f32, Device::cuda, false);
      const Results clean = run(good, 3, DType::f32, Device::cuda, false);
      for (std::int64_t g = 0; g < 4; ++g) {
        CAPTURE(g);
        CHECK(all_finite(block.z[g]) == (g != 1 && g != 2));
        CHECK(all_finite(block.z[g]) == all_finite(chain.z[g]));
        CHECK(all_finite(block.dm[g]) == all_finite(chain.dm[g]));
        CHECK(all_finite(block.dstart[g]) == all_finite(chain.dstart[g]));
      }
      CHECK(same_bits(block.z[3], clean.z[3]));
      CHECK(same_bits(block.dm[3], clean.dm[3]));
    }
  }
}

TEST_CASE("the scaled inverse and its gradients on a GPU are those of the CPU in f64") {
  if (!cuda_or_skip()) return;
  const Tensor points = kernel_problem(2, 21).m.to(DType::f64).reshape({1, 2, 21, 21});
  const Tensor m = tensor::affine(points, 1, 0.01);  // positive row sums
  const Tensor p = random_tensor({1, 2, 21, 5}), dt = random_tensor({1, 2, 21, 5});
  const auto result = [&](DType dtype, Device device, const char* start) {
    InverseConfig config;
    config.start = start;
    attention::ScaledInverseSaved saved;
    const auto moved = [&](const Tensor& x) { return x.to(dtype).to(device); };
    const Tensor t = attention::scaled_inverse_times(moved(m), moved(p), config, saved);
    CHECK(saved.inverse.trace.factors.empty() == (device == Device::cuda));
    return std::pair(t, attention::scaled_inverse_backward(saved, moved(dt)));
  };
  for (const char* start : {"official", "per_matrix"}) {
    const auto [t, d] = result(DType::f64, Device::cpu, start);
    for (const Precision precision : {Precision::fp32, Precision::tf32}) {
      const auto [t32, d32] = [&] {
        const PrecisionScope inverse(Device::cuda, precision);
        return result(DType::f32, Device::cuda, start);
      }();
      // Products around the inverse have operands of tf32's 11 bits.
      const double limit = precision == Precision::fp32 ? 2e-4 : 2e-2;
      CHECK(error_of(t32, t) < limit);
      CHECK(error_of(d32.dm, d.dm) < limit);
      CHECK(error_of(d32.dp, d.dp) < limit);
    }
  }
}

#ifdef SKYTAPE_CUDA_SIMULATED
TEST_CASE("f32 matrices of up to 128 rows are inverted in one launch, others by products") {
  constexpr std::int64_t kCount = 64;
  const cuda_simulator::ComputeCapability sm_90(9);
  const auto launches_of = [&](std::int64_t size, DType dtype, Precision precision) {
    const PrecisionScope scope(Device::cuda, precision);
    const LaunchesOnly only;
    const Tensor m = Tensor::empty({kCount, size, size}, dtype, Device::cuda);
    InverseSaved saved;
    (void)attention::inverse_backward(saved, attention::inverse_forward(m, {}, saved));
    return LaunchesOnly::all();
  };
  const auto with = [](const std::vector<LaunchesOnly::Launch>& launches, const std::string& name) {
    return std::count_if(launches.begin(), launches.end(),
                         [&](const auto& launch) { return launch.name == name; });
  };
  for (const Precision precision : kPrecisions) {
    const std::string by = precision == Precision::bf16   ? " bf16x3"
                           : precision == Precision::tf32 ? " 3xTF32"
                                                          : "";
    const std::string inverse = "iterative inverse" + by;
    const std::string backward = "iterative inverse backward" + by;
    for (const std::int64_t size : {1, 33, 128}) {
      CAPTURE(size);
      const auto launches = launches_of(size, DType::f32, precision);
      CHECK(launches.size() < 25);
      CHECK(with(launches, "product") == 0);
      CHECK(with(launches, inverse) == 1);
      CHECK(with(launches, backward) == 1);
    }
    CHECK(with(launches_of(129, DType::f32, precision), inverse) == 0);
    CHECK(with(launches_of(129, DType::f32, precision), "product") == 72);
    CHECK(with(launches_of(16, DType::f64, precision), "product") == 72);
  }
}
#endif

}  // namespace skytape::test
