#include "attention/sampling/require_rows.hpp"

#include <algorithm>

namespace skytape::attention {

void require_rows(const char* op, const Tensor& index, std::int64_t lowest, std::int64_t limit) {
  ENSURE(index.dtype() == DType::i32, op, ": expected indices i32, got ", index);
  if (index.device() != Device::cpu) return;
  const std::int32_t *begin = index.data<std::int32_t>(), *end = begin + index.numel();
  const auto* bad =
      std::find_if(begin, end, [=](std::int32_t i) { return i < lowest || i >= limit; });
  ENSURE(bad == end, op, ": index ", bad == end ? 0 : *bad, " is outside [", lowest, ", ", limit,
         ")");
}

}  // namespace skytape::attention
