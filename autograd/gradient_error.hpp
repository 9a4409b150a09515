// What a derivative of one's own may get wrong: the gradient's shape.
#pragma once

#include "tensor/core/error.hpp"

namespace skytape {

/// A backward function gave a gradient that does not have its input's shape, dtype and device.
/// Tape::backward and gradcheck throw it; the tape is used up then, its parameters are not: a
/// program that catches it may correct the function and record anew.
struct GradientError : Error {
  using Error::Error;
};

}  // namespace skytape
