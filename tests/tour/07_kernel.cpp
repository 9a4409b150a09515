// A GPU kernel, from the naive one to tensor cores: softmax attention in five versions
#include "tests/tour/07_kernel.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "attention/tiled/tiled.hpp"
#include "tensor/core/on_device.hpp"
#include "tensor/gemm/precision.hpp"
#include "tests/support/close.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/doctest.hpp"
#include "tests/tour/tour.hpp"

using namespace skytape;
using tour::kHeadWidth;
using tour::say;
using tour::Version;

namespace {

constexpr std::int64_t kN = 128;  // queries and keys

/// softmax(scale q k^T) v in f64, as it is written; q, k, v: [N, D].
std::vector<double> attention_by_hand(const Tensor& q, const Tensor& k, const Tensor& v) {
  const std::vector<double> x = q.to_vector(), y = k.to_vector(), z = v.to_vector();
  std::vector<double> out(x.size(), 0.0), w(kN);
  for (std::int64_t i = 0; i < kN; ++i) {
    double sum = 0;
    for (std::int64_t j = 0; j < kN; ++j) {
      double score = 0;
      for (std::int64_t c = 0; c < kHeadWidth; ++c) {
        score += x[i * kHeadWidth + c] * y[j * kHeadWidth + c];
      }
      sum += w[j] = std::exp(double{tour::kScale} * score);
    }
    for (std::int64_t e = 0; e < kN * kHeadWidth; ++e) {
      out[i * kHeadWidth + e % kHeadWidth] += w[e / kHeadWidth] / sum * z[e];
    }
  }
  return out;
}

struct VersionInfo {
  Version version;
  const char* name;
  double reads;  // numbers from device memory, by thousand multiply-adds
  double loads;  // from shared memory: instructions of a thread, by thousand multiply-adds
};
// Each multiply-add of a score or of out has two operands, and reads what is not in registers.
// Naive: q and k, or w and v. One pass: k or v. Tiles: these once for 64 queries, and from shared
// memory for each. Registers: of scores 8 + 4 loads of four channels serve 8 x 4 x 4, of out 4 + 4
// serve 4 x 4 x 4; the mean is stated. Tensor cores: an ldmatrix of two fragments B serves 4,096 of
// a warp, 128 of a lane.
constexpr VersionInfo kVersions[] = {
    {Version::naive, "naive", 2000, 0},
    {Version::one_pass, "one pass", 1000, 0},
    {Version::tiles, "tiles", 1000.0 / 64, 1000},
    {Version::registers, "registers", 1000.0 / 64, (12000.0 / 128 + 8000.0 / 64) / 2},
    {Version::tensor_cores, "tensor cores", 1000.0 / 64, 1000.0 / 128}};

/// The lane map's eight rows as tensor/gemm/README.md draws it.
std::vector<std::string> drawn(const tour::LaneMaps& maps) {
  const auto row = [](const Tensor& map, std::int64_t r) {  // its first eight entries
    const std::vector<double> lanes = map.to_vector();
    std::string text;
    for (std::int64_t c = 0; c < 8; ++c) {
      text += fmt::format(" {:2.0f}", lanes[r * map.size(1) + c]);
    }
    return text;
  };
  std::vector<std::string> rows;
  for (std::int64_t r = 0; r < 8; ++r) {
    rows.push_back(fmt::format("    {:3} {}    {:2} {}   {:2} {}", r, row(maps.a, r), r,
                               row(maps.b, r), r, row(maps.c, r)));
  }
  return rows;
}

}  // namespace

TEST_CASE("tour 7: five kernels of softmax attention, from the naive to the fast one") {
  if (!test::cuda_or_skip()) return;
  if constexpr (kHaveCuda) {
    // Numbers that bf16 holds, so that only weights are rounded on tensor cores.
    const auto rows = [](std::uint64_t seed) {  // [N, D]
      return test::rounded_as_operand(
          test::random_tensor({kN, kHeadWidth}, DType::f32, Device::cpu, seed), Precision::bf16);
    };
    const Tensor q = rows(1), k = rows(2), v = rows(3);
    const std::vector<double> exact = attention_by_hand(q, k, v);
    const auto error_of = [&](const Tensor& out) { return test::relative_error(out, exact); };
    const auto on_gpu = [](const Tensor& x) { return x.to(Device::cuda); };

    say("For a thousand multiply-adds, numbers read from device memory, loads from\n"
        "shared memory by a thread, and the largest error:\n\n"
        "version         device   shared     error\n");
    double naive = 0;
    for (const VersionInfo& info : kVersions) {
      const double error =
          error_of(tour::attend_on(Cuda{}, info.version, on_gpu(q), on_gpu(k), on_gpu(v)));
      say("{:14}  {:6.1f}   {:6.1f}   {:.1e}\n", info.name, info.reads, info.loads, error);
      CAPTURE(std::string(info.name));
      if (info.version == Version::naive) naive = error;
      // Weights have bf16's 8 bits on tensor cores: at most 2^-9 of the largest value, 2.
      const double bound = info.version == Version::tensor_cores ? std::ldexp(2, -9) : 3 * naive;
      CHECK(error <= bound + 1e-6);
    }

    // The kernels that the library runs: the last two versions, and the parts that they leave out.
    const auto head = [&](const Tensor& x) { return on_gpu(x).reshape({1, 1, kN, kHeadWidth}); };
    const Tensor mask =
        on_gpu(Tensor::from(std::vector<double>(kN, 1.0), {1, kN}, DType::f32, Device::cpu));
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
      const PrecisionScope scope(Device::cuda, precision);
      const attention::TiledForward forward = attention::tiled_forward(
          head(q), head(k), head(v), mask, {.scale = double{tour::kScale}});
      const double error = error_of(forward.out.reshape({kN, kHeadWidth}));
      const bool exact_products = precision == Precision::fp32;
      say("{:14}                     {:.1e}\n", exact_products ? "tiled at fp32" : "tiled at bf16",
          error);
      CHECK(error <= (exact_products ? 3 * naive : std::ldexp(2, -9)) + 1e-6);
    }
  }
}

TEST_CASE("tour 7: the lane map is what tensor/gemm/README.md draws") {
  if (!test::cuda_or_skip()) return;
  if constexpr (kHaveCuda) {
    const tour::LaneMaps maps = tour::lane_maps_on(Cuda{});
    std::ifstream readme("tensor/gemm/README.md");
    const std::string page((std::istreambuf_iterator<char>(readme)), {});
    say("\nWhich lane of a warp holds which entry of A, B and C (tensor_core.hpp):\n\n");
    for (const std::string& row : drawn(maps)) {
      say("{}\n", row);
      CHECK_MESSAGE(page.find(row + "\n") != std::string::npos, "not in the README: ", row);
    }
    // Rows from 8 on, and k from 8 on, repeat these.
    for (const Tensor& map : {maps.a, maps.b, maps.c}) {
      const std::vector<double> lanes = map.to_vector();
      const std::size_t half = lanes.size() / 2;
      CHECK(std::equal(lanes.begin(), lanes.begin() + half, lanes.begin() + half));
    }
  }
}
