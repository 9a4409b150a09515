// Kernel products fused on the GPU: against f64, against the form with C as one array, and what
// they move.
#include <cmath>
#include <functional>
#include <vector>

#include "attention/feature_maps/gaussian_kernel.hpp"
#include "attention/feature_maps/gaussian_kernel_plan.hpp"
#include "tensor/core/on_device.hpp"
#include "tensor/gemm/operand.hpp"
#include "tensor/gemm/precision.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tests/support/close.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/doctest.hpp"
#ifdef SKYTAPE_CUDA_SIMULATED
#include "tests/cuda_simulator/simulator.hpp"
#endif

namespace skytape::test {
namespace {

using attention::FormGradients;
using attention::Kernel;
using attention::KernelInputs;
using attention::Want;

constexpr std::int64_t B = 2, H = 2;

struct Sizes {
  std::int64_t n, landmarks, width, factor;  // N, L, D, P
};
// Parts of a tile, several tiles, two chunks of rows; each compiled width; a single entry.
constexpr Sizes kSizes[] = {
    {1, 1, 1, 1},      {37, 9, 5, 3},    {70, 128, 32, 32}, {133, 90, 32, 33}, {530, 20, 20, 20},
    {40, 128, 33, 40}, {65, 17, 64, 65}, {129, 33, 64, 80}, {20, 18, 20, 50},  {140, 20, 64, 64}};

/// Entries of [B, H, rows, width] that f32 holds; rows 3, 10, … are padding: zeros.
Tensor numbers(std::int64_t rows, std::int64_t width, bool padded, std::uint64_t seed) {
  const Shape shape{B, H, rows, width};
  std::vector<double> x =
      random_tensor(shape, DType::f32, Device::cpu, seed, -0.8, 0.8).to_vector();
  for (std::size_t e = 0; padded && e < x.size(); ++e) {
    if (static_cast<std::int64_t>(e) / width % rows % 7 == 3) x[e] = 0;
  }
  return Tensor::from(x, shape, DType::f64, Device::cpu);
}

struct Operands {
  Tensor x, w;  // [B, H, N, D], [B, H, L, D]
  Tensor u, y;  // [B, H, N, P], [B, H, L, P]

  explicit Operands(const Sizes& s)
      : x(numbers(s.n, s.width, true, 1)),
        w(numbers(s.landmarks, s.width, false, 2)),
        u(numbers(s.n, s.factor, true, 3)),
        y(numbers(s.landmarks, s.factor, false, 4)) {}
  /// As f32 on the GPU.
  [[nodiscard]] Operands on_cuda() const {
    Operands o = *this;
    for (Tensor* t : {&o.x, &o.w, &o.u, &o.y}) *t = t->to(DType::f32).to(Device::cuda);
    return o;
  }
  [[nodiscard]] Operands rounded(Precision precision) const {
    Operands o = *this;
    for (Tensor* t : {&o.x, &o.w, &o.u, &o.y}) *t = rounded_as_operand(*t, precision);
    return o;
  }
};

/// cy, cu, and dx, dw, du or dy of both backward forms.
std::vector<Tensor> products(Kernel kernel, const Operands& o) {
  const FormGradients du = attention::kernel_form_backward(kernel, o.x, o.w, o.u, o.y, Want::du);
  const FormGradients dy = attention::kernel_form_backward(kernel, o.x, o.w, o.u, o.y, Want::dy);
  return {attention::kernel_times(kernel, o.x, o.w, o.y),
          attention::kernel_transposed_times(kernel, o.x, o.w, o.u),
          du.dx,
          du.dw,
          du.du,
          dy.dx,
          dy.dw,
          dy.dy};
}

/// The same with C as one array.
std::vector<Tensor> whole_products(Kernel kernel, const Operands& o) {
  const auto flat = [](const Tensor& t) { return t.reshape({B * H, t.size(2), t.size(3)}); };
  const Tensor u = flat(o.u), y = flat(o.y);
  KernelInputs in{tensor::as_multiplied(flat(o.x)),
                  tensor::as_multiplied(flat(o.w)),
                  {},
                  {},
                  kernel == Kernel::gaussian};
  const double factor = in.gaussian ? -0.5 : 0;
  in.xx = tensor::affine(tensor::row_dot(in.x, in.x), factor);
  in.ww = tensor::affine(tensor::row_dot(in.w, in.w), factor);
  Tensor cy = empty_like(u), cu = empty_like(y);
  kernel_times_whole(in, y, cy);
  kernel_transposed_times_whole(in, u, cu);
  FormGradients d{empty_like(in.x), empty_like(in.w), empty_like(u), empty_like(y)};
  kernel_form_backward_whole(in, u, y, d);
  return {cy, cu, d.dx, d.dw, d.du, d.dx, d.dw, d.dy};
}

const char* const kNames[] = {"C y", "C^T u", "dx", "dw", "du", "dx (dy)", "dw (dy)", "dy"};

}  // namespace

TEST_CASE("fused kernel products lose at most three times what the matrix as one array loses") {
  if (!cuda_or_skip()) return;
  for (const Sizes& s : kSizes) {
    const Operands o(s);
    const Operands on_cuda = o.on_cuda();
    for (const Kernel kernel : {Kernel::gaussian, Kernel::exponential}) {
      const std::vector<Tensor> exact = products(kernel, o);
      for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16}) {
        const PrecisionScope scope(Device::cuda, precision);
        // As for tiled attention: where one entry is all there is, either error is a single draw.
        const double floor = precision == Precision::fp32 ? 2e-6 : 1e-5;
        const std::vector<Tensor> got = products(kernel, on_cuda);
        const std::vector<Tensor> plain = whole_products(kernel, on_cuda);
        const std::vector<Tensor> of_rounded = products(kernel, o.rounded(precision));
        for (std::size_t i = 0; i < exact.size(); ++i) {
          INFO(kNames[i], " of N ", s.n, ", L ", s.landmarks, ", D ", s.width, ", P ", s.factor,
               ", precision ", static_cast<int>(precision), kernel == Kernel::gaussian);
          REQUIRE(got[i].shape() == exact[i].shape());
          const std::vector<double> truth = exact[i].to_vector();
          const Tensor whole = plain[i].reshape(exact[i].shape());
          const double allowed = 3 * error_when_rounded(whole, of_rounded[i], exact[i]) + floor;
          CHECK(relative_error(got[i].to_vector(), truth) <= allowed);
        }
      }
    }
  }
}

TEST_CASE("fused kernel products repeat bit for bit") {
  if (!cuda_or_skip()) return;
  const Operands o = Operands({530, 40, 32, 32}).on_cuda();
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    const PrecisionScope scope(Device::cuda, precision);
    const std::vector<Tensor> one = products(Kernel::gaussian, o);
    const std::vector<Tensor> two = products(Kernel::gaussian, o);
    for (std::size_t i = 0; i < one.size(); ++i) CHECK(one[i].to_vector() == two[i].to_vector());
  }
}

TEST_CASE("a fused row's Gaussian kernel with itself is one in tf32, and its gradient there zero") {
  if (!cuda_or_skip()) return;
  const PrecisionScope scope(Device::cuda, Precision::tf32);
  const Tensor x =  // |x|^2 of 1,000 and more: rounding it is worth e^0.5
      tensor::affine(random_tensor({1, 2, 6, 32}, DType::f32), 6).to(Device::cuda);
  const Tensor ones = Tensor::full({1, 2, 6, 1}, 1, DType::f32, Device::cuda);
  const Tensor sums = attention::kernel_times(Kernel::gaussian, x, x, ones);  // far rows: 0
  for (const double sum : sums.to_vector()) CHECK(sum == doctest::Approx(1).epsilon(1e-3));
  const FormGradients d =
      attention::kernel_form_backward(Kernel::gaussian, x, x, ones, ones, Want::du);
  for (const double dx : d.dx.to_vector()) CHECK(std::abs(dx) < 1e-3);
}

#ifdef SKYTAPE_CUDA_SIMULATED
namespace {

/// Returns how many kernels and products f launches.
std::size_t launches_of(const Sizes& s, DType dtype, Precision precision,
                        const std::function<void(const Operands&)>& f) {
  const PrecisionScope scope(Device::cuda, precision);
  const cuda_simulator::LaunchesOnly only;
  Operands o({1, 1, 1, 1});
  const auto make = [&](std::int64_t rows, std::int64_t width) {
    return Tensor::empty({B, H, rows, width}, dtype, Device::cuda);
  };
  o.x = make(s.n, s.width);
  o.w = make(s.landmarks, s.width);
  o.u = make(s.n, s.factor);
  o.y = make(s.landmarks, s.factor);
  const std::size_t before = cuda_simulator::LaunchesOnly::all().size();
  f(o);
  return cuda_simulator::LaunchesOnly::all().size() - before;
}

}  // namespace

TEST_CASE("fused kernel products are one launch, and their gradients two") {
  const Sizes s{2048, 128, 32, 30};
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    CHECK(launches_of(s, DType::f32, precision, [](const Operands& o) {
            (void)attention::kernel_times(Kernel::gaussian, o.x, o.w, o.y);
          }) == 1);
    CHECK(launches_of(s, DType::f32, precision, [](const Operands& o) {
            (void)attention::kernel_form_backward(Kernel::gaussian, o.x, o.w, o.u, o.y, Want::dy);
          }) == 2);
  }
}

TEST_CASE("more landmarks, wider rows and f64 have the kernel matrix as one array on a GPU") {
  const auto fused = [](const Sizes& s, DType dtype) {
    return launches_of(s, dtype, Precision::fp32, [](const Operands& o) {
             (void)attention::kernel_times(Kernel::gaussian, o.x, o.w, o.y);
           }) == 1;
  };
  CHECK(fused({100, 128, 64, 80}, DType::f32));
  CHECK_FALSE(fused({100, 128, 64, 80}, DType::f64));
  CHECK_FALSE(fused({100, 129, 64, 80}, DType::f32));
  CHECK_FALSE(fused({100, 128, 65, 80}, DType::f32));
  CHECK_FALSE(fused({100, 128, 64, 81}, DType::f32));
}
#endif

}  // namespace skytape::test
