#include "attention/sequence/sequence.hpp"

#include "attention/sequence/sequence_plan.hpp"

namespace skytape::attention {
namespace {

void require_convolution(const char* op, const Tensor& x, const Tensor& weight) {
  require_same_kind(op, {&x, &weight});
  ENSURE(x.rank() == 4 && weight.rank() == 4 && weight.size(2) % 2 == 1 &&
             weight.shape() == Shape({x.size(1), 1, weight.size(2), 1}),
         op, ": expected x [B, H, N, D] and weight [H, 1, W, 1] with odd W, got x ", x, ", weight ",
         weight);
}

}  // namespace

Tensor segment_means(const Tensor& x, std::int64_t segments, std::int64_t nominal) {
  ENSURE(
      x.rank() == 4 && x.size(2) <= nominal && segments >= 1 && segments <= nominal,
      "segment_means: expected x [B, H, N, D] with N <= nominal and 1 <= segments <= nominal, got ",
      x, ", segments ", segments, ", nominal ", nominal);
  Tensor means = Tensor::empty(x.shape().with(2, segments), x.dtype(), x.device());
  on_device(x.device(), [&](auto tag) { segment_means_on(tag, x, nominal, means); });
  return means;
}

void add_segment_means_backward(const Tensor& dmeans, std::int64_t nominal, Tensor& dx) {
  require_same_kind("add_segment_means_backward", {&dmeans, &dx});
  ENSURE(dx.rank() == 4 && dmeans.shape() == dx.shape().with(2, dmeans.size(2)) &&
             dx.size(2) <= nominal,
         "add_segment_means_backward: shapes do not fit: dmeans ", dmeans, ", dx ", dx,
         ", nominal ", nominal);
  on_device(dx.device(),
            [&](auto tag) { add_segment_means_backward_on(tag, dmeans, nominal, dx); });
}

Tensor depthwise_convolution(const Tensor& x, const Tensor& weight) {
  require_convolution("depthwise_convolution", x, weight);
  Tensor y = empty_like(x);  // [B, H, N, D]
  on_device(x.device(), [&](auto tag) { convolve_on(tag, x, weight, 1, y); });
  return y;
}

ConvolutionGradients depthwise_convolution_backward(const Tensor& x, const Tensor& weight,
                                                    const Tensor& dy) {
  require_convolution("depthwise_convolution_backward", x, weight);
  require_same_kind("depthwise_convolution_backward", {&x, &dy});
  ENSURE(dy.shape() == x.shape(), "depthwise_convolution_backward: expected dy like x ", x,
         ", got ", dy);
  ConvolutionGradients d{empty_like(x), empty_like(weight)};
  on_device(x.device(), [&](auto tag) {
    convolve_on(tag, dy, weight, -1, d.dx);
    convolution_weight_backward_on(tag, x, dy, d.dweight);
  });
  return d;
}

}  // namespace skytape::attention
