#include "attention/sampling/require_rows.hpp"

#include <algorithm>
#include <vector>

namespace skytape::attention {

void require_rows(const char* op, const Tensor& index, std::int64_t lowest, std::int64_t limit) {
  ENSURE(index.dtype() == DType::i32, op, ": expected indices i32, got ", index);
  const Tensor host = index.to(Device::cpu);
  const std::int32_t *begin = host.data<std::int32_t>(), *end = begin + host.numel();
  const auto* bad =
      std::find_if(begin, end, [=](std::int32_t i) { return i < lowest || i >= limit; });
  ENSURE(bad == end, op, ": index ", bad == end ? 0 : *bad, " is outside [", lowest, ", ", limit,
         ")");
}

void require_distinct(const char* op, const Tensor& index) {
  if (index.numel() == 0) return;
  const Tensor host = index.to(Device::cpu);
  for (std::int64_t row = 0; row < host.rows(); ++row) {
    const std::int32_t* const begin = host.data<std::int32_t>() + row * host.cols();
    std::vector<std::int32_t> named(begin, begin + index.cols());
    std::erase_if(named, [](std::int32_t i) { return i < 0; });
    std::sort(named.begin(), named.end());
    const auto twice = std::adjacent_find(named.begin(), named.end());
    ENSURE(twice == named.end(), op, ": expected different indices in each row, got ",
           twice == named.end() ? 0 : *twice, " twice in row ", row, " of ", index);
  }
}

}  // namespace skytape::attention
