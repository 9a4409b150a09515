// The table of all attention methods. Command line, README, benchmarks and tests walk it.
#pragma once

#include <span>
#include <string>

#include "attention/method.hpp"

namespace skytape::attention {

/// All methods in the order of attention/methods.def.
[[nodiscard]] std::span<const Spec> registry();

/// The method of that name; UsageError with the known names and the nearest one otherwise.
[[nodiscard]] const Spec& find(const std::string& name);

}  // namespace skytape::attention
