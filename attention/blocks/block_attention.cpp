// Block attention: what both devices share. Backward, with G = dout:
//   dv_j = sum_i w_ij G_i
//   e_ij = dL/dscore_ij = w_ij (G_i.v_j - delta_i)      delta_i = G_i.O_i - dlse_i
// because G_i.O_i = sum_j w_ij G_i.v_j. The halves that walk the blocks are given delta.
#include "attention/blocks/block_attention.hpp"

#include <algorithm>
#include <numeric>

#include "attention/blocks/block_attention_plan.hpp"
#include "tensor/core/on_device.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"

namespace skytape::attention {
namespace {

void check(const char* op, const BlockInputs& in, const BlockPattern& p) {
  require_same_kind(op, {&in.q, &in.k, &in.v, &in.mask});
  ENSURE(in.q.rank() == 4 && in.k.shape() == in.q.shape() && in.v.shape() == in.q.shape(), op,
         ": expected q, k and v of one shape [B, H, N, D], got q ", in.q, ", k ", in.k, ", v ",
         in.v);
  const std::int64_t b = in.q.size(0), h = in.q.size(1), n = in.q.size(2);
  ENSURE(in.mask.shape() == Shape({b, n}), op, ": expected mask [B, N] for q ", in.q, ", got ",
         in.mask);
  ENSURE(p.block > 0 && p.begin.defined() && p.begin.shape() == Shape({p.row_blocks + 1}), op,
         ": expected begin i32[", p.row_blocks + 1, "], got ", p.begin);
  ENSURE(p.entries.rank() == 2 && (p.entries.size(0) == 1 || p.entries.size(0) == h) &&
             p.row.shape() == Shape({p.entries.size(1)}) &&
             p.order.shape() == Shape({p.row_blocks}),
         op, ": expected entries i32[1 or H, total], row i32[total] and order i32[", p.row_blocks,
         "], got ", p.entries, ", ", p.row, " and ", p.order);
  const std::int64_t slots = p.row_blocks * p.block;
  if (p.slot.defined()) {
    ENSURE(p.token.defined() && p.token.shape() == Shape({b, h, slots}) && p.slot.rank() == 4 &&
               p.slot.shape() == Shape({b, h, p.slot.size(2), n}),
           op, ": token and slot do not fit: expected token i32[B, H, ", slots,
           "] and slot i32[B, H, R, N], got ", p.token, " and ", p.slot);
  } else {
    ENSURE(slots >= n, op, ": ", p.row_blocks, " blocks of ", p.block, " do not hold q ", in.q);
    ENSURE(!p.token.defined() || p.token.shape() == Shape({1, 1, slots}) ||
               p.token.shape() == Shape({1, h, slots}) || p.token.shape() == Shape({b, h, slots}),
           op, ": token and slot do not fit: expected token i32[B or 1, H or 1, ", slots,
           "] where there is no slot, got ", p.token);
  }
  ENSURE(p.key_place.defined() == p.query_place.defined() &&
             p.key_place.defined() == p.reach.defined(),
         op, ": query_place, key_place and reach go together");
  if (!p.reach.defined()) return;
  ENSURE(p.key_place.rank() == 2 && (p.key_place.size(0) == 1 || p.key_place.size(0) == h) &&
             p.key_place.size(1) >= n && p.query_place.shape() == p.key_place.shape() &&
             p.reach.shape() == Shape({p.key_place.size(0)}),
         op, ": expected query_place and key_place i32[1 or H, at least ", n,
         "] and reach i32[1 or H], got ", p.query_place, ", ", p.key_place, " and ", p.reach);
}

BlockPlan plan_for(const BlockInputs& in, const BlockPattern& p, double scale) {
  BlockPlan plan;
  plan.batch = in.q.size(0);
  plan.heads = in.q.size(1);
  plan.tokens = in.q.size(2);
  plan.width = in.q.size(3);
  plan.block = p.block;
  plan.row_blocks = p.row_blocks;
  plan.lists = p.entries.size(0);
  plan.total = p.entries.size(1);
  plan.slots = p.token.defined() ? p.token.size(2) : plan.tokens;
  plan.rows = p.slot.defined() ? plan.slots : plan.tokens;
  plan.tables = p.token.defined() ? p.token.size(0) * p.token.size(1) : 1;
  plan.rounds = p.slot.defined() ? p.slot.size(2) : 1;
  plan.scale = scale;
  plan.avoid_self = p.avoid_self;
  plan.begin = p.begin.data<std::int32_t>();
  plan.row = p.row.data<std::int32_t>();
  plan.order = p.order.data<std::int32_t>();
  plan.entries = p.entries.data<std::int32_t>();
  plan.token = p.token.data_or_null<std::int32_t>();
  plan.slot = p.slot.data_or_null<std::int32_t>();
  if (p.reach.defined()) {
    plan.views = p.key_place.size(0);
    plan.places = p.key_place.size(1);
    plan.query_place = p.query_place.data<std::int32_t>();
    plan.key_place = p.key_place.data<std::int32_t>();
    plan.reach = p.reach.data<std::int32_t>();
  }
  return plan;
}

}  // namespace

void set_rows(BlockPattern& pattern, const std::vector<std::int32_t>& begin, Device device) {
  const std::size_t blocks = begin.size() - 1;
  std::vector<std::int32_t> row, order(blocks);
  for (std::size_t i = 0; i < blocks; ++i) {
    row.resize(static_cast<std::size_t>(begin[i + 1]), static_cast<std::int32_t>(i));
  }
  std::iota(order.begin(), order.end(), 0);
  const auto length = [&](std::int32_t i) { return begin[i + 1] - begin[i]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int32_t i, std::int32_t j) { return length(i) > length(j); });
  const auto upload = [&](const std::vector<std::int32_t>& x) {
    return Tensor::from(x, {static_cast<std::int64_t>(x.size())}, DType::i32, device);
  };
  pattern.row_blocks = static_cast<std::int64_t>(blocks);
  pattern.begin = upload(begin);
  pattern.row = upload(row);
  pattern.order = upload(order);
}

BlockPattern BlockLists::pattern(std::int64_t key, Device device,
                                 const std::function<Lists()>& make) const {
  BlockPattern& pattern = known_[{key, device}];
  if (pattern.begin.defined()) return pattern;
  std::vector<std::int32_t> begin = {0}, entries;
  for (const std::vector<std::int32_t>& list : make()) {
    entries.insert(entries.end(), list.begin(), list.end());
    begin.push_back(static_cast<std::int32_t>(entries.size()));
  }
  pattern.entries =
      Tensor::from(entries, {1, static_cast<std::int64_t>(entries.size())}, DType::i32, device);
  set_rows(pattern, begin, device);
  return pattern;
}

BlockForward block_forward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                           const BlockPattern& pattern, double scale) {
  const BlockInputs in{q, k, v, mask};
  check("block_forward", in, pattern);
  const BlockPlan plan = plan_for(in, pattern, scale);
  BlockForward result;
  result.out = empty_like(q, q.shape().with(2, plan.rows));
  result.lse = empty_like(q, result.out.shape().first(3));
  on_device(q.device(), [&](auto tag) { block_forward_on(tag, plan, in, result); });
  return result;
}

BlockBackward block_backward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                             const BlockPattern& pattern, double scale, const BlockForward& saved,
                             const Tensor& dout, const Tensor& dlse) {
  const BlockInputs in{q, k, v, mask};
  check("block_backward", in, pattern);
  require_same_kind("block_backward", {&q, &dout});
  ENSURE(dout.shape() == saved.out.shape(), "block_backward: expected dout like out ", saved.out,
         ", got ", dout);
  ENSURE(!dlse.defined() || dlse.shape() == saved.lse.shape(),
         "block_backward: expected dlse like lse ", saved.lse, ", got ", dlse);
  const BlockPlan plan = plan_for(in, pattern, scale);
  Tensor delta = tensor::row_dot(dout, saved.out);  // as lse
  if (dlse.defined()) delta = tensor::subtract(delta, dlse);
  BlockBackward result{empty_like(q), empty_like(k), empty_like(v)};
  on_device(q.device(),
            [&](auto tag) { block_backward_on(tag, plan, in, saved.lse, delta, dout, result); });
  return result;
}

}  // namespace skytape::attention
