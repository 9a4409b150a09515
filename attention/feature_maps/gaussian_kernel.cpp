#include "attention/feature_maps/gaussian_kernel.hpp"

#include "attention/call.hpp"
#include "attention/feature_maps/gaussian_kernel_plan.hpp"
#include "autograd/ops.hpp"
#include "tensor/core/on_device.hpp"
#include "tensor/gemm/operand.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"

namespace skytape::attention {
namespace {

/// -|x_i|^2 / 2 of every row; x: [G, n, D] -> [G, n].
Tensor half_squares(Kernel kernel, const Tensor& x) {
  if (kernel == Kernel::exponential) {
    return zeros_like(x, {x.size(0), x.size(1)});
  }
  Tensor xx = empty_like(x, x.shape().first(2));
  on_device(x.device(), [&](auto tag) { half_squares_on(tag, x, xx); });
  return xx;
}

/// Checks rows and their mask.
void require_rows(const char* op, const KernelRows& x) {
  if (!x.mask.defined()) return;
  require_same_kind(op, {&x.rows, &x.mask});
  ENSURE(x.rows.rank() == 4 && x.mask.shape() == Shape({x.rows.size(0), x.rows.size(2)}), op,
         ": expected a mask [B, N] for rows ", x.rows, ", got ", x.mask);
}

/// Returns whether a GPU fuses the product, and this one has room for it.
bool is_fused(const Tensor& rows, const Tensor& w, std::int64_t factor) {
  if constexpr (kHaveCuda) {
    return rows.device() == Device::cuda && rows.rank() == 4 && w.rank() == 4 &&
           fits_fused(joined(rows), joined(w), factor) &&
           fused_has_room_on(Cuda{}, rows.size(3), factor);
  }
  return false;
}

/// `factor`: width of what C multiplies; 0 where C itself is asked for.
KernelInputs inputs_of(const char* op, Kernel kernel, const KernelRows& all, const Tensor& w,
                       std::int64_t factor = 0) {
  require_rows(op, all);
  const bool fused = is_fused(all.rows, w, factor);
  const Tensor x = fused ? all.rows : all.multiplied();
  require_same_kind(op, {&x, &w});
  ENSURE(x.rank() == 4 && w.rank() == 4 && x.shape().with(2, 0) == w.shape().with(2, 0), op,
         ": expected x [B, H, N, D] and w [B, H, L, D], got x ", x, ", w ", w);
  KernelInputs in{joined(x), joined(w), {}, {}, kernel == Kernel::gaussian};
  in.fused = fused;
  in.sharing = x.size(1);
  if (fused) {  // multiplies, rounds and takes norms itself
    in.of_x = {all.mask, all.scale};
    return in;
  }
  // Norms and products of the same numbers: k(x, x) is 1, and no exponent is above 0.
  const bool same = x.raw() == w.raw() && x.shape() == w.shape();
  in.x = tensor::as_multiplied(in.x);
  in.w = same ? in.x : tensor::as_multiplied(in.w);
  in.xx = half_squares(kernel, in.x);
  in.ww = same ? in.xx : half_squares(kernel, in.w);
  return in;
}

/// Checks a factor [B, H, rows of `like`, P].
void require_factor(const char* op, const char* letter, const Tensor& factor, const Tensor& like) {
  require_same_kind(op, {&like, &factor});
  ENSURE(factor.rank() == 4 && factor.shape().first(3) == like.shape().first(3), op, ": expected ",
         letter, " with the rows of ", like, ", got ", factor);
}

/// u [B, H, N, P] as the call takes it, [G, N, P], with x's rows.
Tensor factor_rows(const char* op, const KernelRows& u, const Tensor& x, KernelInputs& in) {
  require_factor(op, "u", u.rows, x);
  require_rows(op, u);
  if (!in.fused) return joined(u.multiplied());
  in.of_u = {u.mask, u.scale};
  return joined(u.rows);
}

/// C of (x, w) as one array: [G, N, L].
Tensor whole_matrix(const KernelInputs& in) {
  Tensor c = tensor::matmul(in.x, in.w, Op::none, Op::transpose);  // [G, N, L]
  on_device(c.device(), [&](auto tag) { exponentiate_on(tag, in, c); });
  return c;
}

/// dx -= (sums + more) x, row by row; dx, x: [G, n, D], sums, more: [G, n]; `more` may be
/// undefined.
void subtract_weighted(Tensor& dx, const Tensor& x, const Tensor& sums, const Tensor& more = {}) {
  on_device(x.device(), [&](auto tag) { subtract_weighted_on(tag, dx, x, sums, more); });
}

/// e = dc c, entrywise, of which e may be dc, [G, N, L]; returns its row sums, [G, N].
Tensor weigh_rows(const Tensor& c, const Tensor& dc, Tensor& e) {
  Tensor sums = empty_like(e, {e.size(0), e.size(1)});
  on_device(e.device(), [&](auto tag) { weigh_rows_on(tag, c, dc, e, sums); });
  return sums;
}

/// The kernel rule; e holds dC and becomes E, [G, N, L]. dw is left out if undefined.
void kernel_rule(const KernelInputs& in, const Tensor& c, Tensor& e, Tensor& dx, Tensor& dw) {
  const Tensor row_sums = weigh_rows(c, e, e);                           // [G, N]
  tensor::gemm(e, Op::none, in.w, Op::none, dx);                         // [G, N, D]
  if (dw.defined()) tensor::gemm(e, Op::transpose, in.x, Op::none, dw);  // [G, L, D]
  if (!in.gaussian) return;
  subtract_weighted(dx, in.x, row_sums);
  if (dw.defined()) subtract_weighted(dw, in.w, tensor::sum(e, 1));
}

}  // namespace

Tensor kernel_matrix(Kernel kernel, const Tensor& x, const Tensor& w) {
  const KernelInputs in = inputs_of("kernel_matrix", kernel, x, w);
  return whole_matrix(in).reshape(x.shape().with(3, w.size(2)));
}

Tensor kernel_matrix_backward(Kernel kernel, const Tensor& w, const Tensor& c, const Tensor& dc) {
  require_same_kind("kernel_matrix_backward", {&w, &c, &dc});
  ENSURE(w.rank() == 4 && c.shape() == w.shape().with(3, w.size(2)) && dc.shape() == c.shape(),
         "kernel_matrix_backward: expected c and dc [B, H, L, L] for w ", w, ", got c ", c, ", dc ",
         dc);
  const Tensor rows = tensor::as_multiplied(joined(w));  // [G, L, D]
  Tensor e = empty_like(joined(c));                      // [G, L, L]
  Tensor dw = empty_like(rows);                          // [G, L, D]
  const Tensor row_sums = weigh_rows(joined(c), joined(dc), e);
  tensor::gemm(e, Op::none, rows, Op::none, dw);
  tensor::gemm(e, Op::transpose, rows, Op::none, dw, 1, 1);
  if (kernel == Kernel::gaussian) subtract_weighted(dw, rows, row_sums, tensor::sum(e, 1));
  return dw.reshape(w.shape());
}

Tensor KernelRows::multiplied() const {
  return mask.defined() ? tensor::mask_rows(rows, mask, scale) : rows;
}

Tensor kernel_times(Kernel kernel, const KernelRows& x, const Tensor& w, const Tensor& y) {
  const KernelInputs in = inputs_of("kernel_times", kernel, x, w, y.size(-1));
  require_factor("kernel_times", "y", y, w);
  Tensor out = empty_like(y, x.rows.shape().with(3, y.size(3)));
  Tensor flat = joined(out);  // [G, N, P]
  on_device(y.device(), [&](auto tag) { kernel_times_on(tag, in, joined(y), flat); });
  return out;
}

Tensor kernel_transposed_times(Kernel kernel, const KernelRows& x, const Tensor& w,
                               const KernelRows& u) {
  KernelInputs in = inputs_of("kernel_transposed_times", kernel, x, w, u.rows.size(-1));
  const Tensor rows = factor_rows("kernel_transposed_times", u, x.rows, in);  // [G, N, P]
  Tensor out = empty_like(w, w.shape().with(3, rows.size(2)));
  Tensor flat = joined(out);  // [G, L, P]
  on_device(w.device(), [&](auto tag) { kernel_transposed_times_on(tag, in, rows, flat); });
  return out;
}

FormGradients kernel_form_backward(Kernel kernel, const KernelRows& x, const Tensor& w,
                                   const KernelRows& u, const Tensor& y, Want want) {
  KernelInputs in = inputs_of("kernel_form_backward", kernel, x, w, u.rows.size(-1));
  const Tensor flat_u = factor_rows("kernel_form_backward", u, x.rows, in);  // [G, N, P]
  require_factor("kernel_form_backward", "y", y, w);
  ENSURE(u.rows.size(3) == y.size(3), "kernel_form_backward: widths of u ", u.rows, " and y ", y,
         " differ");
  const Tensor flat_y = joined(y);  // [G, L, P]
  FormGradients d{empty_like(in.x), empty_like(in.w), {}, {}};
  (want == Want::du ? d.du : d.dy) = empty_like(want == Want::du ? flat_u : flat_y);
  on_device(w.device(), [&](auto tag) { kernel_form_backward_on(tag, in, flat_u, flat_y, d); });
  // A fused product multiplies the gradients of rows as it stores them.
  const auto of_rows = [&](const Tensor& gradient, const KernelRows& rows) {
    const Tensor by_head = gradient.reshape(rows.rows.shape());
    return in.fused ? by_head : KernelRows(by_head, rows.mask, rows.scale).multiplied();
  };
  d.dx = of_rows(d.dx, x);
  d.dw = d.dw.reshape(w.shape());
  if (d.du.defined()) d.du = of_rows(d.du, u);
  if (d.dy.defined()) d.dy = d.dy.reshape(y.shape());
  return d;
}

// ---- C as one array ----------------------------------------------------------------------------

void kernel_times_whole(const KernelInputs& in, const Tensor& y, Tensor& out) {
  tensor::gemm(whole_matrix(in), Op::none, y, Op::none, out);
}

void kernel_transposed_times_whole(const KernelInputs& in, const Tensor& u, Tensor& out) {
  tensor::gemm(whole_matrix(in), Op::transpose, u, Op::none, out);
}

void kernel_form_backward_whole(const KernelInputs& in, const Tensor& u, const Tensor& y,
                                FormGradients& d) {
  const Tensor c = whole_matrix(in);  // [G, N, L]
  if (d.du.defined()) tensor::gemm(c, Op::none, y, Op::none, d.du);
  if (d.dy.defined()) tensor::gemm(c, Op::transpose, u, Op::none, d.dy);
  Tensor e = tensor::matmul(u, y, Op::none, Op::transpose);  // [G, N, L]: dC
  kernel_rule(in, c, e, d.dx, d.dw);
}

// ---- reference ---------------------------------------------------------------------------------

Var kernel_reference(Kernel kernel, Var x, Var w) {
  const Var products = matmul(x, w, Op::none, Op::transpose);  // [B, H, N, L]
  if (kernel == Kernel::exponential) return exp(products);
  const Var xx = affine(sum(square(x), 3, true), -0.5);             // [B, H, N, 1]
  const Var ww = transpose(affine(sum(square(w), 3, true), -0.5));  // [B, H, 1, L]
  return exp(products + xx + ww);
}

}  // namespace skytape::attention
