#include "attention/selection/informer_rows.hpp"

#include <algorithm>

#include "attention/sampling/sampling.hpp"
#include "tensor/core/on_device.hpp"
#include "tensor/launch/launch.hpp"

namespace skytape::attention {

Tensor sampled_keys(const Tensor& u, const Tensor& counts) {
  require_same_kind("sampled_keys", {&u, &counts});
  ENSURE(u.rank() == 2 && counts.rank() == 1,
         "sampled_keys: expected u [N, S] and counts [C], got ", u, ", ", counts);
  Tensor keys = Tensor::empty({counts.size(0), u.size(0), u.size(1)}, DType::i32, u.device());
  on_device(u.device(), [&](auto tag) { sampled_keys_on(tag, u, counts, keys); });
  return keys;
}

Tensor sampled_measure(const Tensor& q, const Tensor& k, const Tensor& keys, std::int64_t length) {
  require_same_kind("sampled_measure", {&q, &k});
  ENSURE(q.rank() == 4 && k.shape() == q.shape(),
         "sampled_measure: expected q, k [B, H, N, D], got ", q, ", ", k);
  ENSURE(keys.dtype() == DType::i32 && keys.device() == q.device() && keys.rank() == 3 &&
             (keys.size(0) == 1 || keys.size(0) == q.size(0)) && keys.size(1) == q.size(2) &&
             keys.size(2) > 0 && length > 0,
         "sampled_measure: expected keys i32[B or 1, N, S] and a positive length for q ", q,
         ", got ", keys, ", length ", length);
  Tensor measure = empty_like(q, q.shape().first(3));
  on_device(q.device(), [&](auto tag) { sampled_measure_on(tag, q, k, keys, length, measure); });
  return measure;
}

Tensor choose_rows(const Tensor& measure, std::int64_t top, std::int64_t trimmed) {
  ENSURE(measure.rank() == 3 && top > 0 && trimmed >= 0,
         "choose_rows: expected measure [B, H, N] and top > 0, got ", measure, ", top ", top,
         ", trimmed ", trimmed);
  Tensor rows = top_k(measure, std::min(top, measure.cols()));
  if (trimmed > 0) {
    on_device(measure.device(),
              [&](auto tag) { drop_displaced_on(tag, measure, top, trimmed, rows); });
  }
  return rows;
}

ChosenRows chosen_rows(const Tensor& rows, const Tensor& like) {
  ENSURE(like.rank() == 4 && rows.dtype() == DType::i32 && rows.device() == like.device() &&
             rows.rank() == 3 && rows.shape().first(2) == like.shape().first(2),
         "chosen_rows: expected rows i32[B, H, T] for ", like, ", got ", rows);
  ChosenRows chosen;
  chosen.index = empty_like(rows);
  chosen.used = empty_like(like, rows.shape().append(1));
  const Shape shape = like.shape().first(3);  // [B, H, N]
  Tensor others = ones_like(like, shape);
  on_device(like.device(),
            [&](auto tag) { chosen_rows_on(tag, rows, chosen.index, chosen.used, others); });
  chosen.others = others.reshape(shape.append(1));
  return chosen;
}

}  // namespace skytape::attention
