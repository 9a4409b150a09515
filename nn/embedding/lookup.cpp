#include "nn/embedding/lookup.hpp"

#include <limits>

#include "tensor/core/on_device.hpp"
#include "tensor/embedding/embedding.hpp"
#include "tensor/embedding/token_sums.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tensor/movement/gather.hpp"
#include "tensor/random/dropout_plan.hpp"

namespace skytape::nn {
namespace {

/// Rows of a whole sequence's length and beyond are zero.
Tensor sum_by_position(const Tensor& d, std::int64_t rows) {
  Tensor dsecond = zeros_like(d, {rows, d.size(2)});  // [S, E]
  dsecond.slice(0, d.size(1)).copy_from(tensor::sum(d, 0));
  return dsecond;
}

struct Gradients {
  Tensor dtable;   // [V, E]
  Tensor dsecond;  // [S, E]; undefined: not asked for
};
Gradients gradients(const Tensor& dx, const LookUp& options, std::int64_t vocabulary,
                    std::int64_t second_rows) {
  const Tensor d = tensor::dropout(dx, options.dropout);  // [B, N, E]
  Gradients g{tensor::embedding_backward(d, options.ids, vocabulary), {}};
  if (second_rows == 0) return g;
  g.dsecond = options.places.defined() ? tensor::embedding_backward(d, options.places, second_rows)
                                       : sum_by_position(d, second_rows);
  return g;
}

/// Element numbers from one sequence to the next one.
std::int64_t numbers(const Tensor& dx, const Dropout& options) {
  return dx.size(2) * (options.nominal_length == 0 ? dx.size(1) : options.nominal_length);
}

/// Returns whether warps have chunks of 128 element numbers, of the same positions in every
/// sequence.
bool aligned(const tensor::DropoutPlan& plan, const Tensor& dx, const Dropout& options) {
  constexpr std::int64_t kChunk = tensor::kDropoutChunk;
  const std::int64_t e = dx.size(2);
  return plan.threshold == 0 || (plan.first % kChunk == 0 && numbers(dx, options) % kChunk == 0 &&
                                 (e % kChunk == 0 || (e >= 4 && kChunk % e == 0)));
}

/// The same on CUDA where places are n, in one pass over dx.
Gradients fused_gradients(const tensor::DropoutPlan& plan, const Tensor& dx, const LookUp& options,
                          std::int64_t vocabulary, std::int64_t second_rows) {
  const Shape shape({second_rows, dx.size(2)});
  Gradients g{{}, second_rows > dx.size(1) ? zeros_like(dx, shape) : empty_like(dx, shape)};
  if constexpr (kHaveCuda) {
    Tensor d;  // [B, N, E], where the table needs a separate pass
    if (tensor::token_table_fits(vocabulary, dx.dtype())) {
      g.dtable = empty_like(dx, {vocabulary, dx.size(2)});
    } else if (plan.threshold > 0) {
      d = empty_like(dx);
    }
    tensor::token_sums_on(Cuda{}, plan, numbers(dx, options.dropout), dx, options.ids, d, g.dsecond,
                          g.dtable);
    if (!g.dtable.defined()) {
      g.dtable = tensor::embedding_backward(d.defined() ? d : dx, options.ids, vocabulary);
    }
  }
  return g;
}

void require_operands(const Tensor& table, const Tensor& second, const LookUp& options) {
  const auto& [ids, places, dropout] = options;
  ENSURE(table.rank() == 2 && ids.defined() && ids.dtype() == DType::i32 && ids.rank() == 2 &&
             ids.device() == table.device(),
         "look_up: expected a table [V, E] and ids i32[B, N], got ", table, ", ", ids);
  tensor::require_in_range("look_up", ids, table.size(0));
  if (!second.defined()) return;
  require_same_kind("look_up", {&table, &second});
  ENSURE(second.rank() == 2 && second.size(1) == table.size(1) &&
             (places.defined() || second.size(0) >= ids.size(1)),
         "look_up: expected a second table [S, E] of at least N = ", ids.size(1), " rows for ",
         table, ", got ", second);
  if (!places.defined()) return;
  ENSURE(places.dtype() == DType::i32 && places.shape() == ids.shape() &&
             places.device() == ids.device(),
         "look_up: expected places i32[B, N] as ids ", ids, ", got ", places);
  tensor::require_in_range("look_up", places, second.size(0));
}

Tensor by_definition(const Tensor& table, const Tensor& second, const LookUp& options) {
  Tensor x = tensor::embedding(table, options.ids);  // [B, N, E]
  if (second.defined()) {
    x = tensor::add(x, options.places.defined() ? tensor::embedding(second, options.places)
                                                : second.slice(0, options.ids.size(1)));
  }
  return tensor::dropout(x, options.dropout);
}

}  // namespace

Var look_up(Var table, Var second, const LookUp& options) {
  const Tensor t = table.value(), s = second.defined() ? second.value() : Tensor();
  require_operands(t, s, options);
  const Shape shape = options.ids.shape().append(t.size(1));  // [B, N, E]
  const tensor::DropoutPlan plan =
      tensor::dropout_plan("look_up", shape, t.device(), options.dropout);
  const bool fused = t.device() == Device::cuda && shape.numel() > 0 &&
                     shape.numel() <= std::numeric_limits<std::int32_t>::max();
  Tensor x;  // [B, N, E]
  if (fused) {
    x = empty_like(t, shape);
    if constexpr (kHaveCuda) look_up_on(Cuda{}, plan, t, s, options, x);
  } else {
    x = by_definition(t, s, options);
  }
  return record("look_up", {table, second}, x,
                [plan, fused, options, vocabulary = t.size(0),
                 second_rows = s.defined() ? s.size(0) : 0](const Tensor& dx, Grads& g) {
                  const std::int64_t rows = g.needs(1) ? second_rows : 0;
                  const bool by_position = rows > 0 && !options.places.defined();
                  const Gradients found = fused && by_position && aligned(plan, dx, options.dropout)
                                              ? fused_gradients(plan, dx, options, vocabulary, rows)
                                              : gradients(dx, options, vocabulary, rows);
                  g.add(0, found.dtable);
                  if (rows > 0) g.add(1, found.dsecond);
                });
}

}  // namespace skytape::nn
