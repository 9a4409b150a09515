// The parts of the Python module; each adds its functions and classes.
#pragma once

#include <nanobind/nanobind.h>

namespace skytape::python {

void add_methods(nanobind::module_& m);
void add_runs(nanobind::module_& m);
void add_tape(nanobind::module_& m);

}  // namespace skytape::python
