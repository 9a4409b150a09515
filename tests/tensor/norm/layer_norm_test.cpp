#include "tensor/norm/layer_norm.hpp"

#include <algorithm>
#include <cmath>

#include "tests/support/close.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;
using namespace skytape::test;

namespace {

const Shape kShapes[] = {{1},       {7},       {5, 1},     {3, 17},    {2, 300, 6},
                         {1030, 4}, {600, 33}, {259, 100}, {273, 256}, {270, 257},
                         {5, 512},  {11, 768}, {9, 1021},  {2, 1500}};

/// Forward and backward in double, straight from the definitions.
struct Naive {
  std::vector<double> y, mean, inv_std, dx, dweight, dbias;

  Naive(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& dy) {
    const auto e = static_cast<std::size_t>(x.cols());
    const std::vector<double> vx = x.to_vector(), w = weight.to_vector(), b = bias.to_vector(),
                              g = dy.to_vector();
    dweight.assign(e, 0);
    dbias.assign(e, 0);
    for (std::size_t begin = 0; begin < vx.size(); begin += e) {
      double mu = 0, variance = 0, mean_g = 0, mean_gh = 0;
      for (std::size_t i = 0; i < e; ++i) mu += vx[begin + i] / double(e);
      for (std::size_t i = 0; i < e; ++i) variance += std::pow(vx[begin + i] - mu, 2) / double(e);
      const double rstd = 1 / std::sqrt(variance + tensor::kLayerNormEpsilon);
      const auto h = [&](std::size_t i) { return (vx[begin + i] - mu) * rstd; };
      for (std::size_t i = 0; i < e; ++i) {
        y.push_back(h(i) * w[i] + b[i]);
        mean_g += g[begin + i] * w[i] / double(e);
        mean_gh += g[begin + i] * w[i] * h(i) / double(e);
        dweight[i] += g[begin + i] * h(i);
        dbias[i] += g[begin + i];
      }
      for (std::size_t i = 0; i < e; ++i) {
        dx.push_back(rstd * (g[begin + i] * w[i] - mean_g - h(i) * mean_gh));
      }
      mean.push_back(mu);
      inv_std.push_back(rstd);
    }
  }
};

}  // namespace

TEST_CASE("layer norm and its gradients equal the naive double loops") {
  for_each_kind([](DType dtype, Device device) {
    for (const Shape& shape : kShapes) {
      const Shape width{shape[-1]};
      const Tensor x = random_tensor(shape, dtype, device, 1, -1, 3);
      const Tensor weight = random_tensor(width, dtype, device, 2);
      const Tensor bias = random_tensor(width, dtype, device, 3);
      const Tensor dy = random_tensor(shape, dtype, device, 4);
      const Naive naive(x, weight, bias, dy);
      const tensor::LayerNormForward f = tensor::layer_norm(x, weight, bias);
      CAPTURE(shape);
      // 1 / std magnifies the rounding of x: up to a factor of 300 where the variance is tiny.
      const double tolerance = (shape[-1] < 8 ? 20 : 2) * rounding(dtype);
      CHECK(f.mean.shape() == shape.without(-1));
      CHECK(relative_error(f.y, naive.y) <= tolerance);
      CHECK(relative_error(f.mean, naive.mean) <= tolerance);
      CHECK(relative_error(f.inv_std, naive.inv_std) <= tolerance);
      const auto b = tensor::layer_norm_backward(x, weight, f.mean, f.inv_std, dy);
      CHECK(relative_error(b.dx, naive.dx) <= tolerance);
      // A sum of n terms of either sign reaches sqrt(n), and sqrt(n) roundings of it remain.
      const double of_sums = tolerance * std::max(1.0, double(x.rows()) / 64);
      CHECK(relative_error(b.dweight, naive.dweight) <= of_sums);
      CHECK(relative_error(b.dbias, naive.dbias) <= of_sums);
    }
  });
}

TEST_CASE("a large mean costs layer norm no digits of the variance") {
  for_each_device([](Device device) {
    // Entries 4096 + {0, 1, 2, 3} are exact in f32; E[x^2] - mean^2 would lose the variance.
    const Tensor x =
        Tensor::from(std::vector<double>{4096, 4097, 4098, 4099}, {1, 4}, DType::f32, device);
    const Tensor one = Tensor::full({4}, 1, DType::f32, device);
    const Tensor zero = Tensor::zeros({4}, DType::f32, device);
    const double rstd = 1 / std::sqrt(1.25 + tensor::kLayerNormEpsilon);
    CHECK(relative_error(tensor::layer_norm(x, one, zero).y,
                         {-1.5 * rstd, -0.5 * rstd, 0.5 * rstd, 1.5 * rstd}) <= 1e-6);
  });
}

TEST_CASE("a constant row is normalised to the bias") {
  for_each_kind([](DType dtype, Device device) {
    const Tensor x = Tensor::full({2, 8}, 3, dtype, device);
    const Tensor weight = random_tensor({8}, dtype, device, 1);
    const Tensor bias = random_tensor({8}, dtype, device, 2);
    const Tensor y = tensor::layer_norm(x, weight, bias).y;
    CHECK(relative_error(y[0], bias) == 0);
    CHECK(relative_error(y[1], bias) == 0);
  });
}

TEST_CASE("layer norm of no rows is empty, with zero parameter gradients") {
  for_each_kind([](DType dtype, Device device) {
    const Tensor x = Tensor::empty({0, 5}, dtype, device);
    const Tensor w = Tensor::full({5}, 1, dtype, device);
    const auto f = tensor::layer_norm(x, w, w);
    CHECK(f.y.shape() == Shape{0, 5});
    const auto b = tensor::layer_norm_backward(x, w, f.mean, f.inv_std, x);
    CHECK(b.dweight.to_vector() == std::vector<double>(5, 0));
    CHECK(b.dbias.to_vector() == std::vector<double>(5, 0));
  });
}

TEST_CASE("layer norm names the operation and the operands when it refuses") {
  const Tensor x = Tensor::zeros({2, 3}, DType::f32, Device::cpu);
  const Tensor w = Tensor::zeros({3}, DType::f32, Device::cpu);
  const Tensor narrow = Tensor::zeros({2}, DType::f32, Device::cpu);
  const Tensor wide = Tensor::zeros({3}, DType::f64, Device::cpu);
  const Tensor empty = Tensor::zeros({2, 0}, DType::f32, Device::cpu);
  CHECK(error_text([&] { (void)tensor::layer_norm(x, narrow, w); }) ==
        "layer_norm: expected weight and bias [3] for x f32[2, 3]@cpu, got f32[2]@cpu and "
        "f32[3]@cpu");
  CHECK(error_text([&] { (void)tensor::layer_norm(x, w, wide); }) ==
        "layer_norm: operands differ in dtype or device: f32[2, 3]@cpu, f64[3]@cpu");
  CHECK(error_text([&] { (void)tensor::layer_norm(empty, empty, empty); }) ==
        "layer_norm: expected an f32 or f64 tensor [..., E] with E > 0, got f32[2, 0]@cpu");
  CHECK(error_text([&] { (void)tensor::layer_norm_backward(x, w, narrow, w, x); }) ==
        "layer_norm_backward: expected dy [..., E], weight [E], mean and inv_std [...] for x "
        "f32[2, 3]@cpu, got f32[2, 3]@cpu, f32[3]@cpu, f32[2]@cpu, f32[3]@cpu");
}

TEST_CASE("layer norm's backward sums no rows to zero, and repeats bit for bit") {
  for_each_device([](Device device) {
    for (const Shape& shape : {Shape{0, 5}, Shape{700, 64}}) {
      const Tensor x = random_tensor(shape, DType::f32, device, 1);
      const Tensor weight = random_tensor({shape[-1]}, DType::f32, device, 2);
      const tensor::LayerNormForward f = tensor::layer_norm(x, weight, weight);
      const auto once = tensor::layer_norm_backward(x, weight, f.mean, f.inv_std, x);
      const auto twice = tensor::layer_norm_backward(x, weight, f.mean, f.inv_std, x);
      CHECK(once.dx.to_vector() == twice.dx.to_vector());
      CHECK(once.dweight.to_vector() == twice.dweight.to_vector());
      CHECK(once.dbias.to_vector() == twice.dbias.to_vector());
      if (shape[0] == 0) CHECK(once.dweight.to_vector() == std::vector<double>(5, 0));
      if (shape[0] == 0) CHECK(once.dbias.to_vector() == std::vector<double>(5, 0));
    }
  });
}

TEST_CASE("layer norm writes bf16 as its f32 rounded") {
  for_each_device([](Device device) {
    for (const Shape& shape : kShapes) {
      CAPTURE(shape);
      const Tensor x = random_tensor(shape, DType::f32, device, 1);
      const Tensor w = random_tensor({shape[-1]}, DType::f32, device, 2);
      const Tensor b = random_tensor({shape[-1]}, DType::f32, device, 3);
      const Tensor y = tensor::layer_norm(x, w, b, DType::bf16).y;
      CHECK(y.dtype() == DType::bf16);
      CHECK(y.to_vector() == tensor::layer_norm(x, w, b).y.to(DType::bf16).to_vector());
    }
  });
}
