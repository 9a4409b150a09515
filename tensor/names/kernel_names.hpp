// Names of kernels for people.
#pragma once

#include <string>
#include <typeinfo>

#include "tensor/core/error.hpp"

namespace skytape {

/// Returns the readable name of a mangled function or type, without namespaces, casts and
/// parameters: "SoftmaxRow<float>". A name that is not mangled (cuBLAS has some) comes back as it
/// is.
[[nodiscard]] std::string short_name(const std::string& mangled);

/// Returns the name of a loop over a functor in errors and tables of kernels, e.g. "map
/// Gelu<float>".
template <class F> [[nodiscard]] const char* kernel_label(const char* loop) {
  static const std::string label = join(loop, " ", short_name(typeid(F).name()));
  return label.c_str();
}

}  // namespace skytape
