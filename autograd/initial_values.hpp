// The values that parameters start with.
#pragma once

#include "autograd/parameter.hpp"
#include "tensor/random/random.hpp"

namespace skytape {

[[nodiscard]] Initialiser constant_init(double value);
[[nodiscard]] Initialiser normal_init(double standard_deviation);  // mean 0
[[nodiscard]] Initialiser uniform_init(double bound);              // in (-bound, bound]

}  // namespace skytape
