#include "tensor/norm/softmax.hpp"

#include "tensor/core/on_device.hpp"

namespace skytape::tensor {
namespace {

void require_rows(const char* op, const Tensor& x) {
  ENSURE(x.defined() && x.dtype() != DType::i32 && x.rank() > 0, op,
         ": expected an f32 or f64 tensor [..., n], got ", x);
}

/// logits: [B, C] with C > 0, labels: i32[B]. On a CPU the labels' range is checked as well; a GPU
/// would have to be waited for, so there a bad label gives NaN.
void require_labels(const char* op, const Tensor& logits, const Tensor& labels) {
  require_rows(op, logits);
  ENSURE(logits.rank() == 2 && logits.size(1) > 0 && labels.defined() &&
             labels.dtype() == DType::i32 && labels.shape() == Shape{logits.size(0)} &&
             labels.device() == logits.device(),
         op, ": expected logits [B, C] and labels i32[B] on one device, got ", logits, " and ",
         labels);
  if (labels.device() != Device::cpu) return;
  const auto* label = labels.data<std::int32_t>();
  for (std::int64_t b = 0; b < labels.numel(); ++b) {
    ENSURE(label[b] >= 0 && label[b] < logits.size(1), op, ": expected labels in [0, ",
           logits.size(1), "), got ", label[b], " for example ", b);
  }
}

}  // namespace

Tensor softmax(const Tensor& x) {
  require_rows("softmax", x);
  Tensor y = empty_like(x);  // [..., n]
  on_device(x.device(), [&](auto tag) { softmax_on(tag, x, y); });
  return y;
}

Tensor softmax_backward(const Tensor& y, const Tensor& dy) {
  require_rows("softmax_backward", y);
  require_same_kind("softmax_backward", {&y, &dy});
  ENSURE(y.shape() == dy.shape(), "softmax_backward: shapes differ: y ", y, ", dy ", dy);
  Tensor dx = empty_like(y);  // [..., n]
  on_device(y.device(), [&](auto tag) { softmax_backward_on(tag, y, dy, dx); });
  return dx;
}

Tensor logsumexp(const Tensor& x) {
  require_rows("logsumexp", x);
  Tensor y = empty_like(x, x.shape().without(-1));  // [...]
  on_device(x.device(), [&](auto tag) { logsumexp_on(tag, x, y); });
  return y;
}

Tensor logsumexp_backward(const Tensor& x, const Tensor& y, const Tensor& dy) {
  require_rows("logsumexp_backward", x);
  require_same_kind("logsumexp_backward", {&x, &y, &dy});
  const Shape expected = x.shape().without(-1);
  ENSURE(y.shape() == expected && dy.shape() == expected,
         "logsumexp_backward: expected y and dy of shape ", expected, " for x ", x, ", got ", y,
         " and ", dy);
  Tensor dx = empty_like(x);  // [..., n]
  on_device(x.device(), [&](auto tag) { logsumexp_backward_on(tag, x, y, dy, dx); });
  return dx;
}

std::pair<Tensor, Tensor> cross_entropy(const Tensor& logits, const Tensor& labels) {
  require_labels("cross_entropy", logits, labels);
  Tensor losses = empty_like(logits, {logits.size(0)});  // [B]
  Tensor dlogits = empty_like(logits);                   // [B, C]
  on_device(logits.device(),
            [&](auto tag) { cross_entropy_on(tag, logits, labels, losses, dlogits); });
  return {losses, dlogits};
}

Tensor correct(const Tensor& logits, const Tensor& labels) {
  require_labels("correct", logits, labels);
  Tensor y = empty_like(logits, {logits.size(0)});  // [B]
  on_device(logits.device(), [&](auto tag) { correct_on(tag, logits, labels, y); });
  return y;
}

}  // namespace skytape::tensor
