#include "attention/random_features/random_features.hpp"

#include "attention/call.hpp"
#include "attention/feature_maps/gaussian_kernel_plan.hpp"
#include "attention/random_features/random_features_plan.hpp"
#include "tensor/core/on_device.hpp"
#include "tensor/core/tensor.hpp"
#include "tensor/gemm/gemm.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tensor/movement/layout.hpp"

namespace skytape::attention {
namespace {

void check(const char* op, const Tensor& x, const Tensor& w) {
  require_same_kind(op, {&x, &w});
  ENSURE(x.rank() == 4 && w.rank() == 2 && w.size(1) == x.size(3) && w.size(0) > 0, op,
         ": expected x [B, H, N, D] and w [R, D], got x ", x, ", w ", w);
}

/// E without stabilisers as a kernel matrix: exp(x_i.w_j + xx_i), its own row terms and no column
/// terms. The rule of the Gaussian kernel for dx holds, since -|x|^2 / 2 is in xx.
KernelInputs inputs_of(const char* op, const RandomFeatures& e) {
  check(op, e.x, e.w);
  const std::int64_t heads = e.x.size(0) * e.x.size(1), features = e.w.size(0);
  KernelInputs in;
  in.x = joined(e.x);
  in.w = tensor::expand(e.w, {heads, features, e.w.size(1)});
  in.xx = tensor::affine(tensor::row_dot(in.x, in.x), -0.5);  // [G, N]
  in.ww = zeros_like(e.x, {heads, features});
  return in;
}

FeatureMaxima empty_maxima(const Tensor& x) {
  const Shape rows = x.shape().first(3);  // [B, H, N]
  return {empty_like(x, rows), Tensor::empty(rows, DType::i32, x.device())};
}

/// Products x_i.w_j as one array [G, N, R], and their rows' maxima.
Tensor products_and_maxima(const KernelInputs& in, const FeatureMaxima& rows) {
  Tensor products = tensor::matmul(in.x, in.w, Op::none, Op::transpose);
  on_device(products.device(), [&](auto tag) { row_maxima_on(tag, products, rows); });
  return products;
}

/// Products to E in place, with a stabiliser of each of the G N rows.
void exponentiate_stabilised(const KernelInputs& in, const Tensor& c, Tensor& products) {
  KernelInputs shifted = in;
  shifted.xx = tensor::subtract(in.xx, c.reshape(in.xx.shape()));
  on_device(products.device(), [&](auto tag) { exponentiate_on(tag, shifted, products); });
}

}  // namespace

void stabilised_times_whole(const KernelInputs& in, const Tensor& y, const FeatureMaxima& rows,
                            Tensor& out) {
  Tensor e = products_and_maxima(in, rows);  // [G, N, R]
  exponentiate_stabilised(in, rows.value, e);
  tensor::gemm(e, Op::none, y, Op::none, out);
}

void stabilised_transposed_times_whole(const KernelInputs& in, const Tensor& u, std::int64_t scope,
                                       const FeatureMaxima& rows, Tensor& out) {
  Tensor e = products_and_maxima(in, rows);                                           // [G, N, R]
  const std::int64_t scopes = in.x.size(0) / scope, of_scope = scope * in.x.size(1);  // rows
  const Tensor largest =  // [G / scope, 1]
      tensor::max(rows.value.reshape({scopes, of_scope}), 1).first.reshape({scopes, 1});
  exponentiate_stabilised(in, tensor::expand(largest, {scopes, of_scope}), e);
  tensor::gemm(e, Op::transpose, u, Op::none, out);
}

Tensor orthogonal_features(std::int64_t count, std::int64_t width, const Random& random,
                           DType dtype, Device device) {
  enum Purposes : std::uint64_t { kDirections = 1, kLengths };
  ENSURE(count > 0 && width > 0, "orthogonal_features: cannot make ", count, " of width ", width);
  const std::int64_t blocks = ceil_div(count, width);
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

void add_maxima_backward(const Tensor& w, const FeatureMaxima& maxima, const Tensor& dvalue,
                         Tensor& dx) {
  check("add_maxima_backward", dx, w);
  ENSURE(maxima.feature.shape() == dx.shape().first(3) && dvalue.shape() == maxima.feature.shape(),
         "add_maxima_backward: expected positions and dvalue [B, H, N] for dx ", dx, ", got ",
         maxima.feature, ", ", dvalue);
  on_device(dx.device(), [&](auto tag) { add_picked_rows_on(tag, w, maxima.feature, dvalue, dx); });
}

Tensor stabilised_features_times(const RandomFeatures& e, const Tensor& y, FeatureMaxima& maxima) {
  const KernelInputs in = inputs_of("stabilised_features_times", e);
  maxima = empty_maxima(e.x);
  Tensor out = empty_like(y, e.x.shape().with(3, y.size(3)));
  Tensor flat = joined(out);  // [G, N, P]
  const bool tiled = y.device() == Device::cpu;
  (tiled ? stabilised_times_tiled : stabilised_times_whole)(in, joined(y), maxima, flat);
  return out;
}

Tensor stabilised_features_transposed_times(const RandomFeatures& e, const Tensor& u,
                                            std::int64_t scope, FeatureMaxima& maxima) {
  const KernelInputs in = inputs_of("stabilised_features_transposed_times", e);
  ENSURE(scope > 0 && in.x.size(0) % scope == 0,
         "stabilised_features_transposed_times: expected a scope that divides ", in.x.size(0),
         " heads, got ", scope);
  maxima = empty_maxima(e.x);
  Tensor out = empty_like(u, {u.size(0), u.size(1), e.w.size(0), u.size(3)});
  Tensor flat = joined(out);  // [G, R, P]
  const bool tiled = u.device() == Device::cpu;
  (tiled ? stabilised_transposed_times_tiled : stabilised_transposed_times_whole)(
      in, joined(u), scope, maxima, flat);
  return out;
}

FormGradients features_backward(const RandomFeatures& e, const Tensor& u, const Tensor& y,
                                Want want) {
  KernelInputs in = inputs_of("features_backward", e);
  ENSURE(e.c.shape() == e.x.shape().first(3), "features_backward: expected c [B, H, N] for x ", e.x,
         ", got ", e.c);
  tensor::accumulate(in.xx, e.c.reshape(in.xx.shape()), -1);
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
