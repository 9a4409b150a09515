// The Python module `skytape._engine`: it binds the library and computes nothing of its own. What
// users call stands in the package around it, skytape/__init__.py.
#include "train/python/module.hpp"

#include "tensor/core/error.hpp"
#include "train/process/version.hpp"

namespace nb = nanobind;

NB_MODULE(_engine, m) {
  // The last one that fits an error translates it.
  const nb::exception<skytape::Error> error(m, "Error", PyExc_RuntimeError);
  nb::exception<skytape::UsageError>(m, "UsageError",
                                     nb::make_tuple(error, nb::handle(PyExc_ValueError)).ptr());
  nb::exception<skytape::DataError>(m, "DataError", error.ptr());
  nb::exception<skytape::NonFiniteError>(
      m, "NonFiniteError", nb::make_tuple(error, nb::handle(PyExc_ArithmeticError)).ptr());
  m.def("set_threads", &skytape::train::set_threads);
  m.def("thread_count", &skytape::train::thread_count);
  skytape::python::add_methods(m);
  skytape::python::add_runs(m);
  skytape::python::add_tape(m);
}
