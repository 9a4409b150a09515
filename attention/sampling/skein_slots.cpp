#include "attention/sampling/skein_slots.hpp"

#include <algorithm>

#include "tensor/core/on_device.hpp"
#include "tensor/gemm/gemm.hpp"
#include "tensor/kernels/reduce.hpp"

namespace skytape::attention {
namespace {

/// Throws for rows outside [-1, N), on the CPU; a GPU is not waited for.
void require_slots(const char* op, const Tensor& slots, int rank, const Tensor& mask) {
  ENSURE(slots.defined() && slots.dtype() == DType::i32 && slots.rank() == rank &&
             slots.device() == mask.device() && slots.size(0) == mask.size(0),
         op, ": expected i32 slots of rank ", rank, " for mask ", mask, ", got ", slots);
  if (slots.device() != Device::cpu) return;
  const std::int32_t *begin = slots.data<std::int32_t>(), *end = begin + slots.numel();
  const std::int64_t n = mask.size(1);
  const auto* bad = std::find_if(begin, end, [=](std::int32_t i) { return i < -1 || i >= n; });
  ENSURE(bad == end, op, ": row ", bad == end ? 0 : *bad, " is outside [-1, ", n, ")");
}

/// Throws where, on the CPU, a head of an example uses a slot that head 0 does not, or the reverse:
/// there is one mask of slots for all heads.
void require_agreement(const char* op, const Tensor& columns) {
  if (columns.device() != Device::cpu) return;
  const std::int64_t heads = columns.size(1), slots = columns.size(2);
  const std::int32_t* const column = columns.data<std::int32_t>();
  for (std::int64_t e = 0; e < columns.numel(); ++e) {
    const std::int64_t b = e / (heads * slots), h = e / slots % heads, j = e % slots;
    const std::int32_t first = column[b * heads * slots + j];
    ENSURE((first < 0) == (column[e] < 0), op, ": slot ", j, " of example ", b, " holds ", first,
           " in head 0, ", column[e], " in head ", h, "; all heads use it or none");
  }
}

Tensor empty_i32(const Shape& shape, const Tensor& like) {
  return Tensor::empty(shape, DType::i32, like.device());
}

}  // namespace

Tensor slots_in_use(const FeatureLimit& limit, const Tensor& mask, const Call& call) {
  const Tensor& fewest = call.fewest_tokens;
  ENSURE(!fewest.defined() || (fewest.dtype() == DType::i32 && fewest.numel() == 1 &&
                               fewest.device() == mask.device()),
         "slots_in_use: expected fewest_tokens i32[1]@", name(mask.device()), ", got ", fewest);
  const Tensor tokens = tensor::sum(mask, 1);  // [B]
  Tensor used = empty_i32(tokens.shape(), mask);
  on_device(mask.device(), [&](auto tag) {
    const auto* shortest = fewest.data_or_null<std::int32_t>();
    slots_in_use_on(tag, limit, shortest, tokens, used);
  });
  return used;
}

Tensor draw_pilots(const Tensor& mask, const Tensor& used, std::int64_t slots,
                   const Random& random) {
  const PilotPlan plan{random.key, tensor::step_data("draw_pilots", random, mask.device())};
  const Tensor tokens = tensor::sum(mask, 1);  // [B]
  Tensor pilots = empty_i32({mask.size(0), slots}, mask);
  on_device(mask.device(), [&](auto tag) { draw_pilots_on(tag, plan, tokens, used, pilots); });
  return pilots;
}

Tensor column_weights(const Tensor& rows, const Tensor& lse, const Tensor& k, const Tensor& v,
                      const Tensor& mask, const Tensor& pilots, double scale) {
  require_slots("column_weights", pilots, 2, mask);
  const Tensor scores = tensor::matmul(k, rows, Op::none, Op::transpose);  // [B, H, N, S]
  Tensor weights = empty_like(v, v.shape().first(3));                      // [B, H, N]
  on_device(v.device(), [&](auto tag) {
    column_weights_on(tag, scores, lse, pilots, v, mask, scale, weights);
  });
  return weights;
}

Tensor limit_slots(const Tensor& columns, const Tensor& used) {
  Tensor limited = empty_like(columns);
  on_device(columns.device(), [&](auto tag) { limit_slots_on(tag, columns, used, limited); });
  return limited;
}

Tensor normalise(const Tensor& weights) {
  Tensor prob = empty_like(weights);
  on_device(weights.device(), [&](auto tag) { normalise_on(tag, weights, prob); });
  return prob;
}

PilotSlots pilot_slots(const Tensor& pilots, const Tensor& mask, bool count_repeats) {
  require_slots("pilot_slots", pilots, 2, mask);
  PilotSlots slots;
  slots.index = empty_like(pilots);
  slots.first = empty_like(mask, pilots.shape());
  slots.gradient = empty_like(slots.first);
  slots.others = ones_like(mask, mask.shape());
  on_device(mask.device(), [&](auto tag) { pilot_slots_on(tag, pilots, count_repeats, slots); });
  return slots;
}

ColumnSlots column_slots(const Tensor& columns, const Tensor& mask) {
  require_slots("column_slots", columns, 3, mask);
  require_agreement("column_slots", columns);
  const std::int64_t b = mask.size(0), s = columns.size(2);
  const auto numbers = [&](const Shape& shape) { return empty_like(mask, shape); };
  ColumnSlots slots{empty_like(columns), numbers({b, s}), numbers({b}), numbers({b}),
                    numbers({b, s + 1})};
  const Tensor tokens = tensor::sum(mask, 1);  // [B]
  on_device(mask.device(), [&](auto tag) { column_slots_on(tag, columns, tokens, slots); });
  return slots;
}

Tensor importance(const ColumnSlots& slots, const Tensor& prob, std::int64_t n) {
  const Shape shape = slots.index.shape().with(2, n);
  ENSURE(prob.shape() == shape, "importance: expected prob [B, H, N] = ", shape, " for columns ",
         slots.index, ", got ", prob);
  Tensor factors = empty_like(prob, slots.index.shape());
  on_device(prob.device(), [&](auto tag) { importance_on(tag, slots, prob, factors); });
  return factors;
}

Tensor exp_difference(const Tensor& a, const Tensor& b) {
  Tensor y = empty_like(a);
  on_device(a.device(), [&](auto tag) { exp_difference_on(tag, a, b, y); });
  return y;
}

}  // namespace skytape::attention
