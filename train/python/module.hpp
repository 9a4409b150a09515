// Definitions that the parts of the Python module share: an array of any library that speaks DLPack
// is a tensor over the same memory, and a tensor goes out as such an array.
#pragma once

#include <nanobind/nanobind.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "autograd/tape.hpp"
#include "tensor/core/tensor.hpp"

namespace skytape::python {

namespace nb = nanobind;
/// A dict of arrays.
using Tensors = std::map<std::string, Tensor>;
/// While it lives, this thread computes without the GIL, and the interpreter does not end: a thread
/// that came back to an interpreter that is gone would be unwound through our frames, which aborts.
class WithoutGil {
 public:
  WithoutGil();
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};
/// For what computes: other Python threads run meanwhile.
using Free = nb::call_guard<WithoutGil>;

/// Returns the lock under which a call of a method or of a run computes on a GPU, where all share
/// two streams; on a CPU one that holds nothing. Waits for the other calls: without the GIL alone.
[[nodiscard]] std::unique_lock<std::mutex> turn_on(Device device);

/// While it lives, the tape is this thread's. Error where another thread has it: a tape is a list
/// that one thread at a time can add to.
class Turn {
 public:
  explicit Turn(const Tape& tape);
  ~Turn();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  const Tape* tape_;
};

/// A tensor over the array's memory, which lives as long; of an array that is not contiguous, over
/// a copy. Undefined for None. UsageError naming the argument where it is no array, of another type
/// than f32, f64 or i32, or on a device that we do not know.
[[nodiscard]] Tensor tensor_of(nb::handle array, const char* argument = "array");
/// The same for each value of a dict, which its key names.
[[nodiscard]] Tensors tensors_of(nb::handle dict);
/// A NumPy array that may be written to: over a copy, since others read the tensor's memory. None
/// for an undefined tensor.
[[nodiscard]] nb::object numpy_of(const Tensor& tensor);
/// A NumPy array over the tensor's memory, of one on a GPU over a copy, that cannot be written to.
[[nodiscard]] nb::object view_of(const Tensor& tensor);
/// A dict of what speaks DLPack, on the tensors' device, over their memory.
[[nodiscard]] nb::object arrays_of(const Tensors& tensors);

/// Shares an object of Python's with code that runs without the GIL: its last owner takes the GIL
/// first.
template <class T> [[nodiscard]] std::shared_ptr<T> shared(T object) {
  return {new T(std::move(object)), [](T* kept) {
            if (!nb::is_alive()) return;  // the interpreter has ended, and its memory with it
            const nb::gil_scoped_acquire gil;
            delete kept;
          }};
}

void add_methods(nb::module_& m);
void add_runs(nb::module_& m);
void add_tape(nb::module_& m);

/// Lets functions take and return T: anything is taken, so that what is wrong with it is said by
/// `read`, in our words.
template <class T, T (*read)(nb::handle), nb::object (*write)(const T&)> struct Caster {
  static constexpr auto Name = nb::detail::const_name("Array");
  template <class> using Cast = T;
  template <class> static constexpr bool can_cast() { return true; }
  nb::object given;
  bool from_python(nb::handle object, std::uint32_t, nb::detail::cleanup_list*) noexcept {
    given = nb::borrow(object);
    return true;
  }
  explicit operator T() { return read(given); }
  static nb::handle from_cpp(const T& value, nb::rv_policy, nb::detail::cleanup_list*) noexcept {
    try {
      return write(value).release();
    } catch (nb::python_error& error) {
      error.restore();
    } catch (const std::exception& error) {
      PyErr_SetString(PyExc_RuntimeError, error.what());
    }
    return {};
  }
};
inline Tensor read_tensor(nb::handle array) { return tensor_of(array); }

}  // namespace skytape::python

template <> struct nanobind::detail::type_caster<skytape::Tensor>
    : skytape::python::Caster<skytape::Tensor, skytape::python::read_tensor,
                              skytape::python::numpy_of> {};
template <> struct nanobind::detail::type_caster<skytape::python::Tensors>
    : skytape::python::Caster<skytape::python::Tensors, skytape::python::tensors_of,
                              skytape::python::arrays_of> {};
