// Arrays of NumPy, PyTorch, JAX and others that speak DLPack, and our tensors: the same memory.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <utility>

#include "tensor/core/tensor.hpp"

namespace skytape::python {

namespace nb = nanobind;

/// A tensor over the array's memory; of an array that is not contiguous, over a copy. UsageError
/// naming the argument where it is no array, of another type than f32, f64 or i32, or on a device
/// that we do not know. The array stays alive as long as the tensor. To be called with the GIL.
[[nodiscard]] Tensor tensor_of(nb::handle array, const char* argument);

/// The same, undefined for None.
[[nodiscard]] Tensor optional_tensor_of(nb::handle array, const char* argument);

/// Something that speaks DLPack, over the tensor's memory; None for an undefined one.
[[nodiscard]] nb::object array_of(const Tensor& tensor);
/// A NumPy array over it; a copy of one on a GPU.
[[nodiscard]] nb::object numpy_of(const Tensor& tensor);

/// What belongs to Python, for code that runs without the GIL: who lets go last takes the GIL first.
template <class T> [[nodiscard]] std::shared_ptr<T> shared(T object) {
  return {new T(std::move(object)), [](T* kept) {
            if (!nb::is_alive()) return;  // the interpreter has ended, and its memory with it
            const nb::gil_scoped_acquire gil;
            delete kept;
          }};
}

}  // namespace skytape::python
