// Pieces of a network that are worth one fused kernel.
#include "autograd/ops.hpp"
#include "tensor/embedding/embedding.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tensor/norm/layer_norm.hpp"
#include "tensor/norm/softmax.hpp"
#include "tensor/random/dropout.hpp"

namespace skytape {

Var embedding(Var table, const Tensor& ids) {
  return record("embedding", {table}, tensor::embedding(table.value(), ids),
                [ids, vocabulary = table.size(0)](const Tensor& dy, Grads& g) {
                  g.add(0, tensor::embedding_backward(dy, ids, vocabulary));
                });
}

Var layer_norm(Var x, Var weight, Var bias) {
  tensor::LayerNormForward f = tensor::layer_norm(x.value(), weight.value(), bias.value());
  return record("layer_norm", {x, weight, bias}, f.y,
                [x = x.value(), w = weight.value(), mean = f.mean, inv_std = f.inv_std](
                    const Tensor& dy, Grads& g) {
                  const auto d = tensor::layer_norm_backward(x, w, mean, inv_std, dy);
                  g.add(0, d.dx);
                  g.add(1, d.dweight);
                  g.add(2, d.dbias);
                });
}

// The mask is a function of (key, step, element): backward draws the same one again.
Var dropout(Var x, const Dropout& options) {
  return record("dropout", {x}, tensor::dropout(x.value(), options),
                [options](const Tensor& dy, Grads& g) { g.add(0, tensor::dropout(dy, options)); });
}

Var cross_entropy(Var logits, const Tensor& labels) {
  const auto [losses, dlogits] = tensor::cross_entropy(logits.value(), labels);  // [B], [B, C]
  ENSURE(losses.numel() > 0, "cross_entropy: expected at least one example, got ", logits.value());
  const double share = 1.0 / static_cast<double>(losses.numel());
  return record("cross_entropy", {logits}, tensor::affine(tensor::sum_all(losses), share),
                [dlogits = dlogits, share](const Tensor& dy, Grads& g) {
                  g.add(0, tensor::multiply(dlogits, tensor::affine(dy, share)));  // dy: scalar
                });
}

Var cross_entropy_rows(Var logits, const Tensor& labels) {
  const auto [losses, dlogits] = tensor::cross_entropy(logits.value(), labels);  // [B], [B, C]
  return record("cross_entropy_rows", {logits}, losses,
                [dlogits = dlogits](const Tensor& dy, Grads& g) {  // dy: [B]
                  g.add(0, tensor::multiply(dlogits, dy.reshape({dy.numel(), 1})));
                });
}

namespace {

/// [B, N, E] seen as one head, [B, 1, N, E]; rank 4 as it is.
Tensor with_heads(const Tensor& x) {
  return x.rank() == 4 ? x : x.reshape({x.size(0), 1, x.size(1), x.size(2)});
}

Tensor mask_rows_any(const Tensor& x, const Tensor& mask, double scale) {
  return tensor::mask_rows(with_heads(x), mask, scale).reshape(x.shape());
}

}  // namespace

Var mask_rows(Var x, const Tensor& mask, double scale) {
  ENSURE(x.shape().rank() == 3 || x.shape().rank() == 4,
         "mask_rows: expected x [B, N, E] or [B, H, N, D], got ", x.value());
  return record(
      "mask_rows", {x}, mask_rows_any(x.value(), mask, scale),
      [mask, scale](const Tensor& dy, Grads& g) { g.add(0, mask_rows_any(dy, mask, scale)); });
}

}  // namespace skytape
