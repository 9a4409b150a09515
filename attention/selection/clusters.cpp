#include "attention/selection/clusters.hpp"

#include "attention/sampling/sampling.hpp"
#include "tensor/gemm/gemm.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tensor/movement/gather.hpp"
#include "tensor/movement/layout.hpp"

namespace skytape::attention {
namespace {

constexpr double kNoLength = 1e-18;  // below every length that a centroid reaches in practice

/// Rows scaled to unit length, however short. A centroid that no token has been nearest to for long
/// has faded, but still points somewhere.
Tensor unit_rows(const Tensor& x) {
  const Tensor length = tensor::unary(tensor::Unary::sqrt, tensor::row_dot(x, x));
  return tensor::divide(x, tensor::affine(length, 1, kNoLength).reshape(x.shape().with(2, 1)));
}

}  // namespace

Tensor cluster_scores(const Tensor& x, const Tensor& centroids, const Tensor& mask) {
  require_same_kind("cluster_scores", {&x, &centroids, &mask});
  const std::int64_t b = x.size(0), h = x.size(1), n = x.size(2), d = x.size(3);
  ENSURE(centroids.rank() == 3 && centroids.size(0) == h && centroids.size(2) == d,
         "cluster_scores: expected centroids [H, C, D] for x ", x, ", got ", centroids);
  const Tensor directions =
      tensor::expand(unit_rows(centroids), {b, h, centroids.size(1), d});  // [B, H, C, D]
  const Tensor scores = tensor::matmul(directions, x, Op::none, Op::transpose);
  const Tensor bias = tensor::unary(tensor::Unary::log, mask);  // 0 or -inf
  return tensor::add(scores, bias.reshape({b, 1, 1, n}));
}

Clusters balanced_clusters(const Tensor& scores, const Tensor& mask, std::int64_t w) {
  ENSURE(scores.rank() == 4 && w >= 1 && w <= scores.size(3),
         "balanced_clusters: expected scores [B, H, C, N] and a size of 1 to N, got ", scores, ", ",
         w);
  const std::int64_t b = scores.size(0), h = scores.size(1), n = scores.size(3);
  Clusters clusters;
  clusters.token = top_k(scores, w).reshape({b, h, scores.size(2) * w});
  const Tensor real = tensor::expand(mask.reshape({b, 1, n, 1}), {b, h, n, 1});
  clusters.used = tensor::gather_rows(real, clusters.token);
  return clusters;
}

Tensor nearest_sums(const Tensor& x, const Tensor& scores, const Tensor& mask) {
  const Tensor nearest = tensor::max(scores, 2).second;  // i32[B, H, N]
  Tensor sums = Tensor::zeros(x.shape().with(2, scores.size(2)), x.dtype(), x.device());
  tensor::scatter_add_rows(sums, nearest, tensor::mask_rows(x, mask));
  return tensor::sum(sums, 0);
}

Tensor slot_weights(const Clusters& clusters, std::int64_t tokens) {
  const Tensor& used = clusters.used;
  Tensor times = Tensor::zeros(used.shape().with(2, tokens), used.dtype(), used.device());
  tensor::scatter_add_rows(times, clusters.token,
                           Tensor::full(used.shape(), 1, used.dtype(), used.device()));
  return tensor::divide(used, tensor::gather_rows(times, clusters.token));
}

Tensor to_slots(const Tensor& x, const Clusters& clusters) {
  return tensor::gather_rows(x, clusters.token);
}

Tensor from_slots(const Tensor& x, const Clusters& clusters, std::int64_t tokens) {
  Tensor y = Tensor::zeros(x.shape().with(2, tokens), x.dtype(), x.device());
  tensor::scatter_add_rows(y, clusters.token, x);
  return y;
}

}  // namespace skytape::attention
