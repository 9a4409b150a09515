#include "attention/selection/clusters.hpp"

#include "attention/sampling/sampling.hpp"
#include "tensor/core/on_device.hpp"
#include "tensor/gemm/gemm.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tensor/movement/gather.hpp"
#include "tensor/movement/layout.hpp"

namespace skytape::attention {

Tensor cluster_scores(const Tensor& x, const Tensor& centroids, const Tensor& mask) {
  require_same_kind("cluster_scores", {&x, &centroids, &mask});
  const std::int64_t b = x.size(0), h = x.size(1), n = x.size(2), d = x.size(3);
  ENSURE(centroids.rank() == 3 && centroids.size(0) == h && centroids.size(2) == d,
         "cluster_scores: expected centroids [H, C, D] for x ", x, ", got ", centroids);
  Tensor directions = empty_like(x, x.shape().with(2, centroids.size(1)));
  on_device(x.device(), [&](auto tag) { unit_centroids_on(tag, centroids, directions); });
  const Tensor scores = tensor::matmul(directions, x, Op::none, Op::transpose);
  const Tensor bias = tensor::unary(tensor::Unary::log, mask);  // 0 or -inf
  return tensor::add(scores, bias.reshape({b, 1, 1, n}));
}

Clusters balanced_clusters(const Tensor& scores, const Tensor& mask, std::int64_t w) {
  ENSURE(scores.rank() == 4 && w >= 1 && w <= scores.size(3),
         "balanced_clusters: expected scores [B, H, C, N] and a size of 1 to N, got ", scores, ", ",
         w);
  const std::int64_t b = scores.size(0), h = scores.size(1), n = scores.size(3);
  const Shape slots{b, h, scores.size(2) * w};
  Clusters clusters;
  clusters.token = top_k(scores, w).reshape(slots);
  clusters.used = empty_like(scores, slots.append(1));
  clusters.weight = empty_like(clusters.used);
  clusters.first = Tensor::empty({b, h, n}, DType::i32, scores.device());
  clusters.next = empty_like(clusters.token);
  on_device(scores.device(), [&](auto tag) { link_slots_on(tag, mask, w, clusters); });
  return clusters;
}

Tensor nearest_sums_on(Cpu, const Tensor& x, const Tensor& scores, const Tensor& mask) {
  const Tensor nearest = tensor::max(scores, 2).second;  // i32[B, H, N]
  Tensor sums = zeros_like(x, x.shape().with(2, scores.size(2)));
  tensor::scatter_add_rows(sums, nearest, tensor::mask_rows(x, mask));
  return sums;
}

Tensor nearest_sums(const Tensor& x, const Tensor& scores, const Tensor& mask) {
  return on_device(x.device(),
                   [&](auto tag) { return tensor::sum(nearest_sums_on(tag, x, scores, mask), 0); });
}

Tensor to_slots(const Tensor& x, const Clusters& clusters) {
  return tensor::gather_rows(x, clusters.token);
}

Tensor to_weighted_slots(const Tensor& x, const Clusters& clusters) {
  Tensor y = empty_like(x, x.shape().with(2, clusters.token.size(2)));
  on_device(x.device(), [&](auto tag) { to_weighted_slots_on(tag, x, clusters, y); });
  return y;
}

Tensor from_slots(const Tensor& x, const Clusters& clusters) {
  Tensor y = empty_like(x, x.shape().with(2, clusters.first.size(2)));
  on_device(x.device(), [&](auto tag) { from_slots_on(tag, x, clusters, y); });
  return y;
}

}  // namespace skytape::attention
