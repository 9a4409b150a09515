#include "attention/sampling/sampling.hpp"

#include <limits>

#include "attention/sampling/sampling_plan.hpp"
#include "tensor/core/on_device.hpp"

namespace skytape::attention {
namespace {

void check(const char* op, const Tensor& values, std::int64_t k, std::int64_t most) {
  ENSURE(values.rank() >= 1 && values.dtype() != DType::i32, op,
         ": expected f32 or f64 rows [..., n], got ", values);
  ENSURE(values.cols() < std::numeric_limits<std::int32_t>::max(), op, ": rows too long: ", values);
  ENSURE(k >= 0 && k <= most, op, ": cannot choose ", k, " positions of ", values);
}

NumberPlan plan_for(const char* op, const Tensor& weights, const RowNumbers& numbers) {
  return {numbers.random.key, tensor::step_data(op, numbers.random, weights.device()),
          numbers.first_row, numbers.row_length, numbers.alike};
}

Tensor index_like(const Tensor& values, std::int64_t k) {
  return Tensor::empty(values.shape().with(values.rank() - 1, k), DType::i32, values.device());
}

}  // namespace

Tensor top_k(const Tensor& values, std::int64_t k) {
  check("top_k", values, k, values.cols());
  Tensor index = index_like(values, k);
  if (index.numel() == 0) return index;
  on_device(values.device(), [&](auto tag) { top_k_on(tag, values, index); });
  return index;
}

Tensor sample_without_replacement(const Tensor& weights, std::int64_t k,
                                  const RowNumbers& numbers) {
  check("sample_without_replacement", weights, k, weights.cols());
  const NumberPlan plan = plan_for("sample_without_replacement", weights, numbers);
  Tensor keys = empty_like(weights);  // [..., n]
  on_device(weights.device(), [&](auto tag) { race_keys_on(tag, plan, weights, keys); });
  return top_k(keys, k);
}

Tensor sample_with_replacement(const Tensor& weights, std::int64_t k, const RowNumbers& numbers) {
  check("sample_with_replacement", weights, k, std::numeric_limits<std::int32_t>::max());
  ENSURE(weights.cols() > 0, "sample_with_replacement: nothing to draw from: ", weights);
  const NumberPlan plan = plan_for("sample_with_replacement", weights, numbers);
  Tensor index = index_like(weights, k);
  Tensor cumulative = empty_like(weights);  // [..., n]
  on_device(weights.device(),
            [&](auto tag) { invert_cumulative_on(tag, plan, weights, cumulative, index); });
  return index;
}

}  // namespace skytape::attention
