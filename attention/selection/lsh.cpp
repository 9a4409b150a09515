#include "attention/selection/lsh.hpp"

#include "attention/sampling/sampling.hpp"
#include "tensor/core/on_device.hpp"
#include "tensor/gemm/gemm.hpp"
#include "tensor/movement/layout.hpp"

namespace skytape::attention {

Tensor unit_keys(const Tensor& x) {
  Tensor k = empty_like(x);
  on_device(x.device(), [&](auto tag) { unit_keys_on(tag, x, k); });
  return k;
}

Tensor unit_keys_backward(const Tensor& x, const Tensor& dk) {
  Tensor dx = empty_like(x);
  on_device(x.device(), [&](auto tag) { unit_keys_backward_on(tag, x, dk, dx); });
  return dx;
}

Tensor negative_buckets(const Tensor& x, const Tensor& rotations, const Tensor& mask,
                        const std::vector<std::int64_t>& factors) {
  ENSURE(factors.size() == 1 || factors.size() == 2,
         "negative_buckets: expected one or two factors, got ", factors.size());
  const BucketFactors parts{factors[0], factors.size() == 2 ? factors[1] : 0};
  const std::int64_t b = x.size(0), h = x.size(1), d = x.size(3);
  const std::int64_t width = (parts.first + parts.second) / 2;  // W
  ENSURE(rotations.rank() == 4 && rotations.shape() == Shape({h, d, rotations.size(2), width}),
         "negative_buckets: expected rotations [H, D, R, ", width, "] for x ", x, ", got ",
         rotations);
  require_same_kind("negative_buckets", {&x, &rotations, &mask});
  const std::int64_t rounds = rotations.size(2);
  const Tensor spread =
      tensor::expand(rotations.reshape({1, h, d, rounds * width}), {b, h, d, rounds * width});
  const Tensor rotated = tensor::matmul(x, spread);  // [B, H, N, R * W]
  Tensor negative = empty_like(x, {b, h, rounds, x.size(2)});
  on_device(x.device(),
            [&](auto tag) { negative_buckets_on(tag, parts, rotated, mask, negative); });
  return negative;
}

SortedSlots sort_slots(const Tensor& negative, std::int64_t slots_per_round) {
  ENSURE(negative.rank() == 4 && negative.size(3) <= slots_per_round,
         "sort_slots: ", slots_per_round, " slots a round do not hold ", negative);
  const Tensor order = top_k(negative, negative.size(3));  // i32[B, H, R, N]
  const std::int64_t b = negative.size(0), h = negative.size(1), rounds = negative.size(2);
  SortedSlots slots{
      Tensor::full({b, h, rounds * slots_per_round}, -1, DType::i32, negative.device()),
      empty_like(order)};
  on_device(negative.device(),
            [&](auto tag) { place_slots_on(tag, order, slots_per_round, slots); });
  return slots;
}

Tensor combine_rounds(const Tensor& out, const Tensor& lse, const Tensor& slot) {
  ENSURE(slot.size(2) <= kMaxRounds, "combine_rounds: at most ", kMaxRounds, " rounds, got ", slot);
  Tensor y = empty_like(out, out.shape().with(2, slot.size(3)));
  on_device(out.device(), [&](auto tag) { combine_rounds_on(tag, out, lse, slot, y); });
  return y;
}

RoundGradients combine_rounds_backward(const Tensor& out, const Tensor& lse, const Tensor& slot,
                                       const Tensor& dy) {
  RoundGradients g{zeros_like(out), zeros_like(lse)};
  on_device(out.device(),
            [&](auto tag) { combine_rounds_backward_on(tag, out, lse, slot, dy, g); });
  return g;
}

}  // namespace skytape::attention
