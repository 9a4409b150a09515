// The tour's pages tell their story on standard output, where someone asked for it.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "tensor/core/tensor.hpp"

namespace skytape::tour {

/// Prints where SKYTAPE_TOUR is set (`make tour`); silent among the other tests.
template <class... Values> void say(fmt::format_string<Values...> text, Values&&... values) {
  if (std::getenv("SKYTAPE_TOUR") == nullptr) return;
  fmt::print("{}", fmt::format(text, std::forward<Values>(values)...));
  std::fflush(stdout);  // other output of the test program goes another way
}

/// f64 on the CPU, row by row.
[[nodiscard]] inline Tensor tensor_of(const std::vector<double>& values, const Shape& shape) {
  return Tensor::from(values, shape, DType::f64, Device::cpu);
}

}  // namespace skytape::tour
