// Random features in fused products on the GPU: against f64, against E as one array, and what they
// move.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "attention/random_features/random_features.hpp"
#include "attention/random_features/random_features_plan.hpp"
#include "tensor/core/gpu_count.hpp"
#include "tensor/gemm/gemm.hpp"
#include "tensor/gemm/operand.hpp"
#include "tensor/gemm/precision.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tensor/movement/layout.hpp"
#include "tests/support/close.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/doctest.hpp"

namespace skytape::test {
namespace {

using namespace attention;

constexpr std::int64_t B = 2, H = 2;

struct Sizes {
  std::int64_t n, features, width, factor, scope;  // N, R, D, P, heads that share a stabiliser
};
// Parts of a tile, several tiles, two chunks of rows; each compiled width.
constexpr Sizes kSizes[] = {{1, 1, 1, 1, 1},      {37, 9, 5, 3, 4},     {70, 128, 32, 32, 1},
                            {133, 90, 32, 33, 2}, {530, 20, 20, 21, 1}, {65, 17, 64, 65, 4}};

struct Operands {
  RandomFeatures e;  // x [B, H, N, D], w [R, D], c [B, H, N]
  Tensor u, y;       // [B, H, N, P], [B, H, R, P]

  Operands(const Sizes& s, DType dtype, Device device) {
    const auto entries = [&](const Shape& shape, std::uint64_t seed) {
      return random_tensor(shape, DType::f32, Device::cpu, seed, -0.8, 0.8).to(dtype).to(device);
    };
    e = {entries({B, H, s.n, s.width}, 1), entries({s.features, s.width}, 2),
         entries({B, H, s.n}, 3)};
    u = entries({B, H, s.n, s.factor}, 4);
    y = entries({B, H, s.features, s.factor}, 5);
  }
  [[nodiscard]] Operands rounded(Precision precision) const {
    Operands o = *this;
    for (Tensor* t : {&o.e.x, &o.e.w, &o.u, &o.y}) *t = rounded_as_operand(*t, precision);
    return o;
  }
};

struct Products {
  std::vector<Tensor> all;      // E y, E^T u, dx and du, dx and dy
  FeatureMaxima queries, keys;  // [B, H, N]
};

Products products(const Operands& o, std::int64_t scope) {
  Products p;
  p.all = {stabilised_features_times(o.e, o.y, p.queries),
           stabilised_features_transposed_times(o.e, o.u, scope, p.keys)};
  const FormGradients du = features_backward(o.e, o.u, o.y, Want::du);
  const FormGradients dy = features_backward(o.e, o.u, o.y, Want::dy);
  p.all.insert(p.all.end(), {du.dx, du.du, dy.dx, dy.dy});
  return p;
}

/// The same with E as one array, of operands as they are multiplied.
std::vector<Tensor> whole_products(const Operands& o, std::int64_t scope) {
  const auto flat = [](const Tensor& t) { return t.reshape({B * H, t.size(2), t.size(3)}); };
  const Tensor u = flat(o.u), y = flat(o.y);
  KernelInputs in;
  in.x = tensor::as_multiplied(flat(o.e.x));
  in.w = tensor::expand(tensor::as_multiplied(o.e.w), {B * H, o.e.w.size(0), o.e.w.size(1)});
  in.xx = tensor::affine(tensor::row_dot(in.x, in.x), -0.5);
  in.ww = Tensor::zeros({B * H, o.e.w.size(0)}, DType::f32, Device::cuda);
  const RowMaxima rows{empty_like(in.xx), Tensor::empty(in.xx.shape(), DType::i32, Device::cuda)};
  Tensor ey = empty_like(u), eu = empty_like(y);
  stabilised_times_whole(in, y, rows, ey);
  stabilised_transposed_times_whole(in, u, scope, rows, eu);
  tensor::accumulate(in.xx, o.e.c.reshape(in.xx.shape()), -1);
  FormGradients du{empty_like(in.x), {}, empty_like(u), {}};
  FormGradients dy{empty_like(in.x), {}, {}, empty_like(y)};
  kernel_form_backward_whole(in, u, y, du);
  kernel_form_backward_whole(in, u, y, dy);
  return {ey, eu, du.dx, du.du, dy.dx, dy.dy};
}

const char* const kNames[] = {"E y", "E^T u", "dx (du)", "du", "dx (dy)", "dy"};

}  // namespace

TEST_CASE("fused random features lose at most three times what the matrix as one array loses") {
  if (!cuda_or_skip()) return;
  for (const Sizes& s : kSizes) {
    const Operands on_cpu(s, DType::f64, Device::cpu);
    const std::vector<Tensor> exact = products(on_cpu, s.scope).all;
    const Operands on_cuda(s, DType::f32, Device::cuda);
    for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16}) {
      const PrecisionScope scope(Device::cuda, precision);
      const double floor = precision == Precision::fp32 ? 2e-6 : 1e-5;  // as for kernel products
      const std::vector<Tensor> got = products(on_cuda, s.scope).all;
      const std::vector<Tensor> again = products(on_cuda, s.scope).all;
      const std::vector<Tensor> plain = whole_products(on_cuda, s.scope);
      const std::vector<Tensor> of_rounded = products(on_cpu.rounded(precision), s.scope).all;
      for (std::size_t i = 0; i < exact.size(); ++i) {
        INFO(kNames[i], " of N ", s.n, ", R ", s.features, ", D ", s.width, ", P ", s.factor,
             ", precision ", static_cast<int>(precision));
        REQUIRE(got[i].shape() == exact[i].shape());
        const std::vector<double> truth = exact[i].to_vector();
        const double allowed = 3 * error_when_rounded(plain[i], of_rounded[i], exact[i]) + floor;
        CHECK(relative_error(got[i].to_vector(), truth) <= allowed);
        CHECK(got[i].to_vector() == again[i].to_vector());
      }
    }
  }
}

TEST_CASE("fused random features find each row's largest product and the first that gives it") {
  if (!cuda_or_skip()) return;
  for (const Sizes& s : kSizes) {
    // tf32 rounds 13 bits of f32 away: of D products of two numbers below 0.8 at most so much is lost.
    for (const auto& [precision, most] :
         {std::pair(Precision::tf32, 1e-5 + 0.64 * static_cast<double>(s.width) / 1024),
          std::pair(Precision::bf16, 1e-5)}) {
      const PrecisionScope scope(Device::cuda, precision);
      const Operands o(s, DType::f32, Device::cuda);
      const Products p = products(o, s.scope);
      // Products of rounded operands, in double: sums in f32 may differ from these in their last
      // bits, and then another product may be the largest.
      const Tensor x = tensor::as_multiplied(o.e.x).to(Device::cpu).to(DType::f64);
      const Tensor w = tensor::as_multiplied(o.e.w).to(Device::cpu).to(DType::f64);
      const std::vector<double> all =
          tensor::matmul(x.reshape({B * H * s.n, s.width}), w, Op::none, Op::transpose).to_vector();
      for (const FeatureMaxima* maxima : {&p.queries, &p.keys}) {
        const std::vector<double> value = maxima->value.to_vector();
        const std::vector<double> feature = maxima->feature.to_vector();
        for (std::size_t row = 0; row < value.size(); ++row) {
          const auto begin = all.begin() + static_cast<std::ptrdiff_t>(row) * s.features;
          const auto at = static_cast<std::ptrdiff_t>(feature[row]);
          REQUIRE(at >= 0);
          REQUIRE(at < s.features);
          CHECK(std::abs(value[row] - *std::max_element(begin, begin + s.features)) <= most);
          CHECK(std::abs(value[row] - begin[at]) <= most);
        }
      }
    }
  }
  // Equal products: the first one counts.
  const PrecisionScope scope(Device::cuda, Precision::bf16);
  Operands o({20, 40, 8, 3, 1}, DType::f32, Device::cuda);
  o.e.w.fill(0.5);
  const Products p = products(o, 1);
  CHECK(p.queries.feature.to_vector() == std::vector<double>(B * H * 20, 0));
  CHECK(p.keys.feature.to_vector() == std::vector<double>(B * H * 20, 0));
}

#ifdef SKYTAPE_CUDA
TEST_CASE("fused random features read each row once, and keep no features in memory") {
  const GpuCount count;
  const PrecisionScope scope(Device::cuda, Precision::bf16);
  constexpr std::int64_t kHeads = 64, kRows = 2048, kFeatures = 128, kWidth = 32, kFactor = 33;
  const auto somewhere = [](const Shape& shape) {
    return Tensor::empty(shape, DType::f32, Device::cuda);
  };
  const RandomFeatures e{somewhere({1, kHeads, kRows, kWidth}), somewhere({kFeatures, kWidth}),
                         somewhere({1, kHeads, kRows})};
  const Tensor y = somewhere({1, kHeads, kFeatures, kFactor});
  FeatureMaxima maxima;
  (void)stabilised_features_times(e, y, maxima);
  const std::int64_t landmarks = kHeads * kFeatures * (kWidth + kFactor);  // w and y of each head
  const auto& kernels = count.kernels();
  const auto fused = std::find_if(kernels.begin(), kernels.end(), [](const GpuKernel& kernel) {
    return kernel.name == "kernel products on tensor cores";
  });
  const bool found = fused != kernels.end();
  REQUIRE(found);
  CHECK(fused->work.bytes == 4 * (kHeads * kRows * (kWidth + kFactor + 2) + landmarks));
  CHECK(fused->work.multiply_adds == kHeads * kRows * kFeatures * (2 * kWidth + kFactor));
  for (const GpuKernel& kernel : kernels) {
    CHECK(kernel.work.bytes < 4 * kHeads * kRows * kFeatures);  // of an array of features
  }
}
#endif

}  // namespace skytape::test
