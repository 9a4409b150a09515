#include "attention/sequence/sequence.hpp"

#include "tensor/core/on_device.hpp"

namespace skytape::attention {
namespace {

void require_convolution(const char* op, const Tensor& x, const Tensor& weight) {
  require_same_kind(op, {&x, &weight});
  ENSURE(x.rank() == 4 && weight.rank() == 4 && weight.size(2) % 2 == 1 &&
             weight.shape() == Shape({x.size(1), 1, weight.size(2), 1}),
         op, ": expected x [B, H, N, D] and weight [H, 1, W, 1] with odd W, got x ", x, ", weight ",
         weight);
}

void require_mask(const char* op, const Tensor& x, const Tensor& mask) {
  require_same_kind(op, {&x, &mask});
  ENSURE(x.rank() == 4 && mask.shape() == Shape({x.size(0), x.size(2)}), op,
         ": expected x [B, H, N, D] and mask [B, N], got x ", x, ", mask ", mask);
}

}  // namespace

SegmentMeans segment_means(const Tensor& x, const Tensor& mask, double scale, std::int64_t segments,
                           std::int64_t nominal) {
  require_mask("segment_means", x, mask);
  ENSURE(x.size(2) <= nominal && segments >= 1 && segments <= nominal,
         "segment_means: expected N <= nominal and 1 <= segments <= nominal, got x ", x,
         ", segments ", segments, ", nominal ", nominal);
  SegmentMeans result{empty_like(x), empty_like(x, x.shape().with(2, segments))};
  on_device(x.device(), [&](auto tag) { segment_means_on(tag, x, mask, scale, nominal, result); });
  return result;
}

void segment_means_backward(const Tensor& dmeans, const Tensor& mask, double scale,
                            std::int64_t nominal, Tensor& dx) {
  require_same_kind("segment_means_backward", {&dmeans, &dx});
  require_mask("segment_means_backward", dx, mask);
  ENSURE(dmeans.shape() == dx.shape().with(2, dmeans.size(2)) && dx.size(2) <= nominal,
         "segment_means_backward: shapes do not fit: dmeans ", dmeans, ", dx ", dx, ", nominal ",
         nominal);
  on_device(dx.device(),
            [&](auto tag) { segment_means_backward_on(tag, dmeans, mask, scale, nominal, dx); });
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
