#include "tensor/tokens/row_dropout.hpp"

#include "tensor/random/dropout_plan.hpp"

namespace skytape::tensor {

RowDropout row_dropout(const char* op, const Tensor& x, std::int64_t width,
                       const Dropout& options) {
  const DropoutPlan p = dropout_plan(op, {x.size(0), x.size(1), width}, x.device(), options);
  return {p.key,
          p.step,
          p.threshold,
          static_cast<float>(p.scale),
          width,
          p.first / width,
          p.range_stride / width,
          static_cast<std::uint32_t>(p.range_size / width)};
}

}  // namespace skytape::tensor
