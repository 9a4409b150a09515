// Products with kernel matrices.
#include "attention/feature_maps/gaussian_kernel.hpp"

#include <cmath>

#include "attention/feature_maps/gaussian_kernel_plan.hpp"
#include "autograd/gradcheck.hpp"
#include "autograd/ops.hpp"
#include "tensor/gemm/gemm.hpp"
#include "tensor/gemm/gemm_bf16.hpp"
#include "tensor/gemm/precision.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tests/support/close.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/doctest.hpp"

namespace skytape::test {
namespace {

using attention::FormGradients;
using attention::Kernel;
using attention::Want;

constexpr Kernel kKernels[] = {Kernel::gaussian, Kernel::exponential};

/// Rows, landmarks and factors of one problem.
struct Operands {
  Tensor x, w;  // [B, H, N, D], [B, H, L, D]
  Tensor u, y;  // [B, H, N, P], [B, H, L, P]
};
Operands operands(std::int64_t n, std::int64_t landmarks, DType dtype = DType::f64) {
  const auto make = [&](const Shape& shape, std::uint64_t seed) {
    return random_tensor(shape, dtype, Device::cpu, seed, -1, 1);
  };
  return {make({2, 2, n, 5}, 1), make({2, 2, landmarks, 5}, 2), make({2, 2, n, 3}, 3),
          make({2, 2, landmarks, 3}, 4)};
}

/// Gradients of a kernel matrix's arguments, from basic operations.
struct KernelGradients {
  Tensor dx, dw;
};
KernelGradients reference_gradients(Kernel kernel, const Tensor& x, const Tensor& w,
                                    const Tensor& dc) {
  Tape tape;
  const Var vx = tape.input(x), vw = tape.input(w);
  tape.backward(attention::kernel_reference(kernel, vx, vw), dc);
  return {tape.grad(vx), tape.grad(vw)};
}

}  // namespace

TEST_CASE("entries of the kernel matrices are what their names say") {
  const Tensor x =
      Tensor::from(std::vector<double>{1, 2, 0, -1}, {1, 1, 2, 2}, DType::f64, Device::cpu);
  const Tensor w = Tensor::from(std::vector<double>{0.5, 1}, {1, 1, 1, 2}, DType::f64, Device::cpu);
  CHECK(relative_error(attention::kernel_matrix(Kernel::gaussian, x, w),
                       {std::exp(-(0.25 + 1) / 2), std::exp(-(0.25 + 4) / 2)}) < 1e-14);
  CHECK(relative_error(attention::kernel_matrix(Kernel::exponential, x, w),
                       {std::exp(2.5), std::exp(-1.0)}) < 1e-14);
}

TEST_CASE("tiled kernel products equal products with the whole matrix") {
  // Less than a tile, several tiles, several chunks of which the last is partial; one landmark.
  for (const auto& [n, landmarks] :
       {std::pair{1, 1}, std::pair{37, 9}, std::pair{300, 16}, std::pair{1100, 7}}) {
    for (const Kernel kernel : kKernels) {
      CAPTURE(n);
      const Operands o = operands(n, landmarks);
      const Tensor c = attention::kernel_matrix(kernel, o.x, o.w);  // [B, H, N, L]
      const Tensor cy = tensor::matmul(c, o.y);
      const Tensor cu = tensor::matmul(c, o.u, Op::transpose, Op::none);
      CHECK(relative_error(attention::kernel_times(kernel, o.x, o.w, o.y), cy) < 1e-13);
      CHECK(relative_error(attention::kernel_transposed_times(kernel, o.x, o.w, o.u), cu) < 1e-12);

      const Tensor dc = tensor::matmul(o.u, o.y, Op::none, Op::transpose);
      const KernelGradients expected = reference_gradients(kernel, o.x, o.w, dc);
      const FormGradients du =
          attention::kernel_form_backward(kernel, o.x, o.w, o.u, o.y, Want::du);
      const FormGradients dy =
          attention::kernel_form_backward(kernel, o.x, o.w, o.u, o.y, Want::dy);
      for (const FormGradients& d : {du, dy}) {
        CHECK(relative_error(d.dx, expected.dx) < 1e-12);
        CHECK(relative_error(d.dw, expected.dw) < 1e-12);
      }
      CHECK(relative_error(du.du, cy) < 1e-13);
      CHECK(relative_error(dy.dy, cu) < 1e-12);
      CHECK(!du.dy.defined());
      CHECK(!dy.du.defined());
    }
  }
}

TEST_CASE("the gradient of a kernel matrix of landmarks with themselves") {
  for_each_device([](Device device) {
    for (const Kernel kernel : kKernels) {
      for (const std::int64_t landmarks : {1, 9, 40}) {
        const Tensor w = operands(1, landmarks).w.to(device);
        const Tensor c = attention::kernel_matrix(kernel, w, w);  // [B, H, L, L]
        const Tensor dc = random_tensor(c.shape(), DType::f64, device, 5);
        const KernelGradients both = reference_gradients(kernel, w, w, dc);
        CHECK(relative_error(attention::kernel_matrix_backward(kernel, w, c, dc),
                             tensor::add(both.dx, both.dw)) < 1e-12);
      }
    }
  });
}

TEST_CASE("the second way, with the matrix as one array, gives the same gradients") {
  const Operands o = operands(70, 9);
  const auto flat = [](const Tensor& t) { return t.reshape({4, t.size(2), t.size(3)}); };
  const auto halves = [&](const Tensor& t) {
    return tensor::affine(tensor::row_dot(flat(t), flat(t)), -0.5);
  };
  const attention::KernelInputs in{flat(o.x), flat(o.w), halves(o.x), halves(o.w), true};
  FormGradients d{empty_like(in.x), empty_like(in.w), empty_like(flat(o.u)), empty_like(flat(o.y))};
  attention::kernel_form_backward_whole(in, flat(o.u), flat(o.y), d);
  const FormGradients du =
      attention::kernel_form_backward(Kernel::gaussian, o.x, o.w, o.u, o.y, Want::du);
  CHECK(relative_error(d.dx, flat(du.dx)) < 1e-12);
  CHECK(relative_error(d.dw, flat(du.dw)) < 1e-12);
  CHECK(relative_error(d.du, flat(du.du)) < 1e-12);
  CHECK(relative_error(d.dy, flat(attention::kernel_transposed_times(Kernel::gaussian, o.x, o.w,
                                                                     o.u))) < 1e-12);
}

TEST_CASE(
    "rows times their mask and scale are those of an array made before, and so are gradients") {
  for_each_device([](Device device) {
    for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16}) {
      if (device == Device::cpu && precision != Precision::fp32) continue;
      const PrecisionScope scope(device, precision);
      for (const std::int64_t n : {1, 37, 600}) {
        CAPTURE(n);
        const Operands cpu = operands(n, 9, DType::f32);
        const Tensor x = cpu.x.to(device), w = cpu.w.to(device), u = cpu.u.to(device);
        const Tensor y = cpu.y.to(device);
        const Tensor mask = random_tensor({2, n}, DType::f32, Device::cpu, 6, 0, 1).to(device);
        const attention::KernelRows rows(x, mask, 0.7), factors(u, mask);
        const auto same = [](const Tensor& a, const Tensor& b) {
          return relative_error(a, b) <= 4 * rounding(DType::f32);
        };
        for (const Kernel kernel : kKernels) {
          CHECK(same(attention::kernel_times(kernel, rows, w, y),
                     attention::kernel_times(kernel, rows.multiplied(), w, y)));
          CHECK(same(attention::kernel_transposed_times(kernel, rows, w, factors),
                     attention::kernel_transposed_times(kernel, rows.multiplied(), w,
                                                        factors.multiplied())));
          for (const Want want : {Want::du, Want::dy}) {
            const FormGradients d =
                attention::kernel_form_backward(kernel, rows, w, factors, y, want);
            const FormGradients plain = attention::kernel_form_backward(
                kernel, rows.multiplied(), w, factors.multiplied(), y, want);
            CHECK(same(d.dx, tensor::mask_rows(plain.dx, mask, 0.7)));
            CHECK(same(d.dw, plain.dw));
            if (want == Want::dy) CHECK(same(d.dy, plain.dy));
            if (want == Want::du) CHECK(same(d.du, tensor::mask_rows(plain.du, mask)));
          }
        }
      }
    }
  });
}

TEST_CASE("gradients of the bilinear form pass gradcheck") {
  const Operands o = operands(11, 4);
  for (const Kernel kernel : kKernels) {
    const GradcheckReport times = gradcheck(
        [&](Tape&, std::span<const Var> v) {
          const Tensor x = v[0].value(), w = v[1].value(), y = v[2].value();
          return record(
              "kernel_times", {v[0], v[1], v[2]}, attention::kernel_times(kernel, x, w, y),
              [=](const Tensor& dout, Grads& g) {
                const auto d = attention::kernel_form_backward(kernel, x, w, dout, y, Want::dy);
                g.add(0, d.dx);
                g.add(1, d.dw);
                g.add(2, d.dy);
              });
        },
        {o.x, o.w, o.y});
    CHECK_MESSAGE(times.passed, times.to_string());
    const GradcheckReport reference = gradcheck(
        [&](Tape&, std::span<const Var> v) {
          return attention::kernel_reference(kernel, v[0], v[1]);
        },
        {o.x, o.w});
    CHECK_MESSAGE(reference.passed, reference.to_string());
  }
}

TEST_CASE("the Gaussian kernel of distant and of equal rows neither overflows nor exceeds one") {
  const Tensor x = tensor::affine(random_tensor({1, 1, 8, 4}, DType::f32), 30);
  const Tensor c = attention::kernel_matrix(Kernel::gaussian, x, x);  // [1, 1, 8, 8]
  CHECK(tensor::all_finite(c));
  const std::vector<double> values = c.to_vector();
  for (int i = 0; i < 8; ++i) CHECK(values[9 * i] == doctest::Approx(1).epsilon(2e-3));
}

TEST_CASE("a row's Gaussian kernel with itself is one in bf16 too, and none is more") {
  test::for_each_device([](Device device) {
    if (device == Device::cpu && tensor::why_no_bf16_on_cpu() != nullptr) {
      MESSAGE("skipped on the cpu: ", std::string(tensor::why_no_bf16_on_cpu()));
      return;
    }
    const PrecisionScope scope(device, Precision::bf16);
    const Tensor x =  // |x|^2 of 1,000 and more: rounding it is worth e^4 and more
        tensor::affine(random_tensor({1, 2, 6, 32}, DType::f32), 6).to(device);
    const Tensor whole = attention::kernel_matrix(Kernel::gaussian, x, x);
    const Tensor ones = Tensor::full({1, 2, 6, 1}, 1, DType::f32, device);
    const Tensor sums = attention::kernel_times(Kernel::gaussian, x, x, ones);  // far rows: 0
    const std::vector<double> c = whole.to_vector(), sum = sums.to_vector();
    for (int head = 0; head < 2; ++head) {
      for (int i = 0; i < 6; ++i) {
        CHECK(c[36 * head + 7 * i] == doctest::Approx(1).epsilon(1e-3));
        CHECK(sum[6 * head + i] == doctest::Approx(1).epsilon(1e-3));
      }
    }
    for (const double value : c) CHECK(value < 1.001);
  });
}

TEST_CASE("kernel products name the shapes that do not fit") {
  const Operands o = operands(6, 3);
  CHECK(error_text([&] {
          (void)attention::kernel_times(Kernel::gaussian, o.x, o.w, o.u);
        }).find("kernel_times: expected y") != std::string::npos);
  CHECK(error_text([&] {
          (void)attention::kernel_times(Kernel::gaussian, {o.x, o.w}, o.w, o.y);
        }).find("kernel_times: expected a mask [B, N]") != std::string::npos);
  CHECK(error_text([&] {
          (void)attention::kernel_matrix(Kernel::gaussian, o.x, o.u);
        }).find("kernel_matrix: expected x") != std::string::npos);
  CHECK(error_text([&] {
          (void)attention::kernel_matrix_backward(Kernel::gaussian, o.w, o.u, o.u);
        }).find("kernel_matrix_backward: expected c and dc") != std::string::npos);
}

}  // namespace skytape::test
