// Indices that a caller gave in the place of drawn ones. Both checks wait for a GPU: they are not
// for what each step draws.
#pragma once

#include <cstdint>

#include "tensor/core/tensor.hpp"

namespace skytape::attention {

/// Throws unless `index` is i32 and lies in [lowest, limit).
void require_rows(const char* op, const Tensor& index, std::int64_t lowest, std::int64_t limit);

/// Throws where a row of `index` i32[.., T] names something twice; negative entries name nothing.
void require_distinct(const char* op, const Tensor& index);

}  // namespace skytape::attention
