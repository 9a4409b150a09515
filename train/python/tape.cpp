// The tape for Python: leaves, operations (made from autograd/ops.hpp by bind_ops.py), backward,
// operations whose two halves are written in Python, and gradcheck.
#include <nanobind/operators.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "autograd/gradcheck.hpp"
#include "autograd/ops.hpp"
#include "autograd/tape_print.hpp"
#include "train/python/module.hpp"

namespace skytape::python {
namespace {

/// A node whose value and backward come from Python: backward(dy) gives a gradient for each input, or
/// None.
Var record_python(Tape& tape, const std::string& name, const std::vector<Var>& inputs, Tensor value,
                  nb::callable backward) {
  static std::set<std::string> names;  // kept for good: tapes point to them. The GIL is held
  return tape.record(
      names.insert(name).first->c_str(), inputs, std::move(value),
      [function = shared(std::move(backward)), count = inputs.size()](const Tensor& dy, Grads& g) {
        const nb::gil_scoped_acquire gil;
        const nb::sequence gradients = nb::cast<nb::sequence>((*function)(dy));
        ENSURE(nb::len(gradients) == count, "backward: expected ", count,
               " gradients, one for each input or None, got ", nb::len(gradients));
        for (std::size_t i = 0; i < count; ++i) {
          g.add(static_cast<int>(i), tensor_of(gradients[i], "gradient"));
        }
      });
}

GradcheckReport check_python(const nb::callable& f, const nb::sequence& arrays, double tolerance,
                             std::uint64_t seed) {
  std::vector<Tensor> inputs;
  for (const nb::handle array : arrays) inputs.push_back(tensor_of(array, "inputs").clone());
  GradcheckOptions options;
  options.tolerance = tolerance;
  options.seed = seed;
  const nb::gil_scoped_release free;
  return gradcheck(
      [&](Tape&, std::span<const Var> vars) {
        const nb::gil_scoped_acquire gil;
        nb::list arguments;
        for (const Var& var : vars) arguments.append(var);
        return nb::cast<Var>(f(*arguments));
      },
      std::move(inputs), options);
}

}  // namespace

void add_tape(nb::module_& m) {
  nb::class_<Var>(m, "Var", "A value on a tape.")
      .def(nb::init<>(), "An absent input.")
      .def_prop_ro("value", &Var::value)
      .def_prop_ro("tape", &Var::tape, nb::rv_policy::reference)
      .def("__repr__", [](const Var& x) { return join("Var ", x.value()); })
      .def(nb::self + nb::self)
      .def(nb::self - nb::self)
      .def(nb::self * nb::self)
      .def(nb::self / nb::self)
      .def(-nb::self)
      .def("__matmul__", [](const Var& a, const Var& b) { return matmul(a, b); })
      .def("__add__", [](const Var& x, double c) { return affine(x, 1, c); })
      .def("__radd__", [](const Var& x, double c) { return affine(x, 1, c); })
      .def("__sub__", [](const Var& x, double c) { return affine(x, 1, -c); })
      .def("__rsub__", [](const Var& x, double c) { return affine(x, -1, c); })
      .def("__mul__", [](const Var& x, double c) { return affine(x, c); })
      .def("__rmul__", [](const Var& x, double c) { return affine(x, c); })
      .def("__truediv__", [](const Var& x, double c) { return affine(x, 1 / c); })
      .def("__rtruediv__", [](const Var& x, double c) { return affine(reciprocal(x), c); });

  nb::class_<Dropout>(m, "Dropout", "Which elements to drop: a function of seed and element.")
      .def(nb::new_([](double rate, std::uint64_t seed) {
             return Dropout{rate, Random{seed, {}}, 0, 0};
           }),
           nb::arg("rate"), nb::arg("seed") = 0);

  nb::class_<Tape>(m, "Tape", "The list of operations that led to a result.")
      .def("__init__", [](Tape* self) { new (self) Tape(); })
      .def("input", &Tape::input, nb::arg("array"),
           "A leaf that receives a gradient. Its memory is the array's.")
      .def("constant", &Tape::constant, nb::arg("array"), "A leaf that receives none.")
      .def("record", &record_python, nb::arg("name"), nb::arg("inputs"), nb::arg("value"),
           nb::arg("backward"),
           "An operation of your own: backward(dy) gives a gradient per input.")
      .def("backward", &Tape::backward, nb::arg("output"), nb::arg("cotangent").none() = nb::none(),
           Free(), "Once per tape.")
      .def("grad", &Tape::grad, nb::arg("input"),
           "dLoss/dinput after backward; None where nothing reached it.")
      .def(
          "dot",
          [](const Tape& tape, const std::string& title, bool merge) {
            return to_dot(tape, {title, merge});
          },
          nb::arg("title") = "", nb::arg("merge") = false, "The graph in Graphviz's language.")
      .def("__len__", &Tape::size)
      .def("__str__", &to_text);

  nb::class_<GradcheckReport>(m, "GradcheckReport")
      .def("__bool__", [](const GradcheckReport& report) { return report.passed; })
      .def("__repr__", &GradcheckReport::to_string);
  m.def("gradcheck", &check_python, nb::arg("f"), nb::arg("inputs"), nb::arg("tolerance") = 1e-6,
        nb::arg("seed") = 1,
        "Compares the gradients of f, a function of Vars, with central differences, in f64.");

  nb::module_ ops = m.def_submodule("ops", "The operations of the tape.");
#include <ops.inc>
}

}  // namespace skytape::python
