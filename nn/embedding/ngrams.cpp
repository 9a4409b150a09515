#include "nn/embedding/ngrams.hpp"

#include <limits>

#include "tensor/core/on_device.hpp"
#include "tensor/movement/gather.hpp"

namespace skytape::nn {

Tensor ngram_slots(const Tensor& ids, int longest, std::int64_t rows) {
  ENSURE(ids.rank() == 2 && ids.dtype() == DType::i32, "ngram_slots: expected ids i32[B, N], got ",
         ids);
  ENSURE(longest >= 2, "ngram_slots: an n-gram has at least 2 tokens, got ", longest);
  ENSURE(rows >= 1 && rows <= std::numeric_limits<std::int32_t>::max(),
         "ngram_slots: expected 1 to 2^31 - 1 rows, got ", rows);
  Tensor slots =
      Tensor::empty({longest - 1, ids.size(0), ids.size(1)}, DType::i32, ids.device());  // [G B N]
  if (slots.numel() == 0) return slots;
  on_device(ids.device(), [&](auto tag) { ngram_slots_on(tag, ids, rows, slots); });
  return slots;
}

Var add_rows_at(Var x, Var table, const Tensor& slots) {
  require_same_kind("add_rows_at", {&x.value(), &table.value()});
  ENSURE(x.shape().rank() == 3 && table.shape().rank() == 2 && table.size(1) == x.size(2) &&
             slots.dtype() == DType::i32 && slots.device() == x.value().device() &&
             slots.rank() == 3 && slots.size(0) >= 1 && slots.size(1) == x.size(0) &&
             slots.size(2) == x.size(1),
         "add_rows_at: expected x [B, N, E], table [S, E] and slots i32[G, B, N], got x ",
         x.value(), ", table ", table.value(), ", slots ", slots);
  tensor::require_in_range("add_rows_at", slots, table.size(0));
  Tensor y = empty_like(x.value());  // [B, N, E]
  if (y.numel() > 0) {
    on_device(y.device(),
              [&](auto tag) { add_rows_at_on(tag, x.value(), table.value(), slots, y); });
  }
  return record("add_rows_at", {x, table}, y, [slots](const Tensor& dy, Grads& g) {
    g.add(0, dy);
    const std::int64_t count = slots.size(1) * slots.size(2);
    const Tensor rows = dy.reshape({count, dy.size(2)});  // [B N, E]
    for (std::int64_t gram = 0; gram < slots.size(0); ++gram) {
      g.add_rows(1, slots.slice(gram, gram + 1).reshape({count}), rows);
    }
  });
}

}  // namespace skytape::nn
