// Names of kernels for people.
#pragma once

#include <string>
#include <typeinfo>

#include "tensor/core/error.hpp"

namespace skytape {

/// What a mangled name of a function or type says, without namespaces, casts and parameters:
/// "SoftmaxRow<float>". A name that is not mangled (cuBLAS has some) comes back as it is.
[[nodiscard]] std::string short_name(const std::string& mangled);

/// Of a loop over a functor, e.g. "map Gelu<float>": what errors and tables of kernels call it.
template <class F> [[nodiscard]] const char* kernel_label(const char* loop) {
  static const std::string label = join(loop, " ", short_name(typeid(F).name()));
  return label.c_str();
}

}  // namespace skytape
