#include "attention/sampling/landmarks.hpp"

#include <algorithm>

#include "attention/sampling/landmarks_plan.hpp"
#include "attention/sampling/require_rows.hpp"
#include "tensor/core/on_device.hpp"
#include "tensor/core/tensor.hpp"

namespace skytape::attention {
namespace {

LandmarkRule rule_of(const std::string& name) {
  if (name == "independent") return LandmarkRule::independent;
  if (name == "official") return LandmarkRule::official;
  ENSURE(name == "uniform", "landmarks: expected independent, official or uniform, got ", name);
  return LandmarkRule::uniform;
}

void require_index(const char* op, const Tensor& index, const Tensor& q) {
  ENSURE(index.defined() && index.dtype() == DType::i32 && index.device() == q.device() &&
             (index.rank() == 2 || index.rank() == 3) &&
             index.shape().first(index.rank() - 1) == q.shape().first(index.rank() - 1),
         op, ": expected an index i32 [B, L] or [B, H, L] for ", q, ", got ", index);
}

void require_mask(const char* op, const Tensor& mask, const Tensor& q) {
  if (!mask.defined()) return;
  require_same_kind(op, {&q, &mask});
  ENSURE(mask.shape() == Shape({q.size(0), q.size(2)}), op, ": expected a mask [B, N] for ", q,
         ", got ", mask);
}

}  // namespace

Tensor draw_landmarks(const LandmarkDraw& draw, const Tensor& mask, const Call& call) {
  ENSURE(mask.rank() == 2 && mask.size(1) > 0, "draw_landmarks: expected a mask [B, N], got ",
         mask);
  LandmarkPlan plan;
  plan.rule = rule_of(draw.rule);
  const bool official = plan.rule == LandmarkRule::official;
  plan.batch = mask.size(0);
  plan.heads = official ? 1 : draw.heads;
  plan.rows = mask.size(1);
  plan.slots = draw.sets * draw.size;
  plan.first_example = call.first_example;
  plan.alone = call.alone;
  plan.key = call.random.key;
  plan.step = tensor::step_data("draw_landmarks", call.random, mask.device());

  const std::int64_t blocks = ceil_div(plan.rows, kCountBlock);
  Tensor counts = Tensor::empty({plan.batch, blocks}, DType::i32, mask.device());
  Tensor out = Tensor::empty({plan.batch, plan.heads, plan.slots}, DType::i32, mask.device());
  on_device(mask.device(), [&](auto tag) {
    count_tokens_on(tag, mask, counts);
    draw_landmarks_on(tag, plan, mask, counts, out);
  });
  if (official) return out.reshape({plan.batch, draw.sets, draw.size});
  return out.reshape({plan.batch, plan.heads, draw.sets, draw.size});
}

Tensor landmark_index(const Tensor& table, const Tensor& q) {
  ENSURE(table.rank() >= 2 && table.rank() <= 4,
         "landmarks: expected a table i32 [B, L], [B, A, L] or [B, H, A, L], got ", table);
  Tensor index = table;  // [B, L] as it is
  if (table.rank() > 2) {
    index = table.reshape(
        table.shape().first(table.rank() - 2).append(table.size(-2) * table.size(-1)));
  }
  require_index("landmarks", index, q);
  if (index.device() == Device::cpu) require_rows("landmarks", index, 0, 2 * q.size(2));
  return index;
}

Tensor gather_landmarks(const Tensor& q, const Tensor& k, const Tensor& index, const Tensor& mask,
                        double scale) {
  require_same_kind("gather_landmarks", {&q, &k});
  ENSURE(q.rank() == 4 && q.shape() == k.shape(), "gather_landmarks: expected q and k of one ",
         "shape [B, H, N, D], got ", q, " and ", k);
  require_index("gather_landmarks", index, q);
  require_mask("gather_landmarks", mask, q);
  Tensor w = empty_like(q, q.shape().with(2, index.size(-1)));
  on_device(q.device(), [&](auto tag) { gather_landmarks_on(tag, q, k, index, {mask, scale}, w); });
  return w;
}

void scatter_landmarks(std::initializer_list<Tensor> dw, const Tensor& index, const Tensor& mask,
                       double scale, Tensor& dq, Tensor& dk) {
  ENSURE(dw.size() > 0 && dw.size() <= kScatterTerms, "scatter_landmarks: expected 1 to ",
         kScatterTerms, " terms of dw, got ", dw.size());
  for (const Tensor& term : dw) {
    require_same_kind("scatter_landmarks", {&term, &dq, &dk});
    require_index("scatter_landmarks", index, dq);
    ENSURE(term.shape() == dq.shape().with(2, index.size(-1)) && dk.shape() == dq.shape(),
           "scatter_landmarks: shapes do not fit: dw ", term, ", index ", index, ", dq ", dq,
           ", dk ", dk);
  }
  require_mask("scatter_landmarks", mask, dq);
  ScatterTerms terms;
  std::copy(dw.begin(), dw.end(), terms.begin());
  on_device(dq.device(), [&](auto tag) {
    scatter_landmarks_on(tag, terms, index, {mask, scale}, dq, dk);
  });
}

}  // namespace skytape::attention
