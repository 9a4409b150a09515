#include "attention/random_features.hpp"

#include "attention/gaussian_kernel_plan.hpp"
#include "attention/random_features_plan.hpp"
#include "tensor/elementwise.hpp"
#include "tensor/gemm.hpp"
#include "tensor/layout.hpp"
#include "tensor/reduce.hpp"

namespace skytape::attention {
namespace {

/// Batch and heads as one axis: [B, H, n, p] -> [G, n, p].
Tensor joined(const Tensor& x) { return x.reshape({x.size(0) * x.size(1), x.size(2), x.size(3)}); }

void check(const char* op, const Tensor& x, const Tensor& w) {
  require_same_kind(op, {&x, &w});
  ENSURE(x.rank() == 4 && w.rank() == 2 && w.size(1) == x.size(3) && w.size(0) > 0, op,
         ": expected x [B, H, N, D] and w [R, D], got x ", x, ", w ", w);
}

/// E as a kernel matrix: exp(x_i.w_j + xx_i), its own row terms and no column terms. The rule of
/// the Gaussian kernel for dx holds, since -|x|^2 / 2 is in xx.
KernelInputs inputs_of(const char* op, const RandomFeatures& e) {
  check(op, e.x, e.w);
  ENSURE(e.c.shape() == e.x.shape().first(3), op, ": expected c [B, H, N] for x ", e.x, ", got ",
         e.c);
  const std::int64_t heads = e.x.size(0) * e.x.size(1), features = e.w.size(0);
  KernelInputs in;
  in.x = joined(e.x);
  in.w = tensor::expand(e.w, {heads, features, e.w.size(1)});
  in.xx = tensor::affine(tensor::row_dot(e.x, e.x), -0.5);  // [B, H, N]
  tensor::accumulate(in.xx, e.c, -1);
  in.xx = in.xx.reshape({heads, e.x.size(2)});
  in.ww = Tensor::zeros({heads, features}, e.x.dtype(), e.x.device());
  return in;
}

}  // namespace

Tensor orthogonal_features(std::int64_t count, std::int64_t width, const Random& random,
                           DType dtype, Device device) {
  enum Purposes : std::uint64_t { kDirections = 1, kLengths };
  ENSURE(count > 0 && width > 0, "orthogonal_features: cannot make ", count, " of width ", width);
  const std::int64_t blocks = (count + width - 1) / width;
  Tensor directions =  // [K, D, D]
      tensor::normal({blocks, width, width}, random.fork(kDirections), dtype, device);
  on_device(device, [&](auto tag) { orthonormalise_on(tag, directions); });
  const Tensor other = tensor::normal({count, width}, random.fork(kLengths), dtype, device);
  const Tensor lengths = tensor::unary(tensor::Unary::sqrt, tensor::row_dot(other, other));  // [R]
  return tensor::multiply(directions.reshape({blocks * width, width}).slice(0, count),
                          lengths.reshape({count, 1}));
}

Random slowed(const Random& random, std::int64_t interval) {
  ENSURE(interval > 0, "slowed: expected a positive interval, got ", interval);
  if (!random.step.defined()) return random;
  Random slow{random.key, empty_like(random.step)};
  on_device(random.step.device(),
            [&](auto tag) { divide_step_on(tag, random.step, interval, slow.step); });
  return slow;
}

void feature_maxima_on(Cuda, const Tensor& x, const Tensor& w, Tensor& value, Tensor& feature) {
  const Tensor u = tensor::matmul(x, w, Op::none, Op::transpose);  // [rows, R]
  on_device(u.device(), [&](auto tag) { row_maxima_on(tag, u, value, feature); });
}

FeatureMaxima feature_maxima(const Tensor& x, const Tensor& w) {
  check("feature_maxima", x, w);
  const Shape shape = x.shape().first(3);
  FeatureMaxima maxima{Tensor::empty(shape, x.dtype(), x.device()),
                       Tensor::empty(shape, DType::i32, x.device())};
  const Tensor rows = x.reshape({x.rows(), x.cols()});
  on_device(x.device(),
            [&](auto tag) { feature_maxima_on(tag, rows, w, maxima.value, maxima.feature); });
  return maxima;
}

void add_maxima_backward(const Tensor& w, const FeatureMaxima& maxima, const Tensor& dvalue,
                         Tensor& dx) {
  check("add_maxima_backward", dx, w);
  ENSURE(maxima.feature.shape() == dx.shape().first(3) && dvalue.shape() == maxima.feature.shape(),
         "add_maxima_backward: expected positions and dvalue [B, H, N] for dx ", dx, ", got ",
         maxima.feature, ", ", dvalue);
  on_device(dx.device(), [&](auto tag) { add_picked_rows_on(tag, w, maxima.feature, dvalue, dx); });
}

Tensor features_times(const RandomFeatures& e, const Tensor& y) {
  const KernelInputs in = inputs_of("features_times", e);
  Tensor out = Tensor::empty(e.x.shape().with(3, y.size(3)), y.dtype(), y.device());
  Tensor flat = joined(out);  // [G, N, P]
  on_device(y.device(), [&](auto tag) { kernel_times_on(tag, in, joined(y), flat); });
  return out;
}

Tensor features_transposed_times(const RandomFeatures& e, const Tensor& u) {
  const KernelInputs in = inputs_of("features_transposed_times", e);
  Tensor out = Tensor::empty({u.size(0), u.size(1), e.w.size(0), u.size(3)}, u.dtype(), u.device());
  Tensor flat = joined(out);  // [G, R, P]
  on_device(u.device(), [&](auto tag) { kernel_transposed_times_on(tag, in, joined(u), flat); });
  return out;
}

FormGradients features_backward(const RandomFeatures& e, const Tensor& u, const Tensor& y,
                                Want want) {
  const KernelInputs in = inputs_of("features_backward", e);
  const Tensor flat_u = joined(u), flat_y = joined(y);  // [G, N, P], [G, R, P]
  FormGradients d{empty_like(in.x), {}, {}, {}};        // W is drawn
  (want == Want::du ? d.du : d.dy) = empty_like(want == Want::du ? flat_u : flat_y);
  on_device(u.device(), [&](auto tag) { kernel_form_backward_on(tag, in, flat_u, flat_y, d); });
  d.dx = d.dx.reshape(e.x.shape());
  if (d.du.defined()) d.du = d.du.reshape(u.shape());
  if (d.dy.defined()) d.dy = d.dy.reshape(y.shape());
  return d;
}

}  // namespace skytape::attention
