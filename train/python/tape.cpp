// The tape for Python: leaves, operations (made from autograd/ops.hpp by bind_ops.py), backward,
// operations whose two halves are written in Python, and gradcheck.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "autograd/gradcheck.hpp"
#include "autograd/ops.hpp"
#include "autograd/tape_print.hpp"
#include "tensor/random/dropout.hpp"
#include "train/python/module.hpp"

namespace skytape::python {
namespace {

/// The backward functions of a tape's nodes that Python wrote and no one has called yet. The tape's
/// nodes own them; Python's collector of cycles is told, since such a function may hold the tape.
using Function = std::shared_ptr<nb::callable>;
std::multimap<const Tape*, std::weak_ptr<nb::callable>> functions;  // guarded by the GIL

/// Those that live; the entries of the others go.
std::vector<Function> functions_of(const Tape* tape) {
  std::vector<Function> living;
  auto [at, end] = functions.equal_range(tape);
  while (at != end) {
    if (Function function = at->second.lock()) {
      living.push_back(std::move(function));
      ++at;
    } else {
      at = functions.erase(at);
    }
  }
  return living;
}

/// Tapes whose functions hold them wait for Python's collector, which counts objects and not their
/// bytes. It is called where more tapes than `most` have functions, and then when there are twice
/// those that live.
void collect_tapes() {
  static std::size_t most = 8;
  const auto living = [] {
    std::set<const Tape*> tapes;
    for (const auto& [tape, function] : functions) {
      if (!function.expired()) tapes.insert(tape);
    }
    return tapes.size();
  };
  if (living() < most) return;
  PyGC_Collect();
  most = std::max<std::size_t>(8, 2 * living());
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  for (const Function& function : functions_of(nb::inst_ptr<Tape>(self))) {
    Py_VISIT(function->ptr());
  }
  return 0;
}

int clear(PyObject* self) {
  for (const Function& function : functions_of(nb::inst_ptr<Tape>(self))) *function = {};
  return 0;
}

PyType_Slot collected[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                           {Py_tp_clear, reinterpret_cast<void*>(clear)},
                           {0, nullptr}};

/// Numbers for a leaf: whole ones as f64.
Tensor leaf_of(const Tensor& array) {
  return array.defined() && array.dtype() == DType::i32 ? array.to(DType::f64) : array;
}

/// A node whose value and backward come from Python: backward(dy) gives a gradient for each input,
/// or None.
Var record_python(Tape& tape, const std::string& name, const std::vector<Var>& inputs,
                  const Tensor& value, nb::callable backward) {
  const Turn turn(tape);
  static std::set<std::string> names;  // kept for good: tapes point to them. The GIL is held
  const std::string& op = *names.insert(name).first;
  const Function function = shared(std::move(backward));
  // Backward releases the first one last: while it lives, there is no need to look at the others.
  const auto [first, end] = functions.equal_range(&tape);
  if (first == end || first->second.expired()) {
    if (functions_of(&tape).empty()) collect_tapes();  // what an older tape here left is gone
  }
  functions.emplace(&tape, function);
  return tape.record(
      op.c_str(), inputs,
      value.defined() ? leaf_of(value).clone() : value,  // the caller's may change
      [function, &op, count = inputs.size()](const Tensor& dy, Grads& g) {
        const nb::gil_scoped_acquire gil;
        const nb::object given = (*function)(dy);
        if (!nb::isinstance<nb::list>(given) && !nb::isinstance<nb::tuple>(given)) {
          throw UsageError(join(op, ": backward must return a list of ", count,
                                " gradients, one for each input or None, got ",
                                nb::str(nb::getattr(given.type(), "__name__")).c_str()));
        }
        ENSURE(nb::len(given) == count, op, ": backward must return ", count,
               " gradients, one for each input or None, got ", nb::len(given));
        for (std::size_t i = 0; i < count; ++i) {
          const Tensor gradient = tensor_of(given[i], "gradient");
          // A function may write the next gradient into the same array.
          g.add(static_cast<int>(i), gradient.defined() ? gradient.clone() : gradient);
        }
      });
}

GradcheckReport check_python(const nb::callable& f, const nb::sequence& arrays, double tolerance,
                             std::uint64_t seed) {
  std::vector<Tensor> inputs;
  for (const nb::handle array : arrays) inputs.push_back(tensor_of(array, "inputs"));
  GradcheckOptions options;
  options.tolerance = tolerance;
  options.seed = seed;
  const WithoutGil free;
  return gradcheck(
      [&](Tape&, std::span<const Var> vars) {
        const nb::gil_scoped_acquire gil;
        nb::list arguments;
        for (const Var& var : vars) arguments.append(var);
        Var result;
        const nb::object given = f(*arguments);
        if (!nb::try_cast(given, result)) {
          throw UsageError(join("gradcheck: f must return a Var, got ",
                                nb::str(nb::getattr(given.type(), "__name__")).c_str()));
        }
        return result;
      },
      std::move(inputs), options);
}

const Var& first_of(const std::vector<Var>& parts) {
  if (parts.empty()) throw UsageError("concat: expected at least one Var, got an empty list");
  return parts.front();
}

void require_none(const char* what, const nb::args& more, const nb::kwargs& named) {
  if (more.size() + named.size() == 0) return;
  throw UsageError(join(what, ": takes no arguments, got ", more.size() + named.size()));
}

/// An operation of two Vars that this thread alone records.
template <class Op> Var together(const Var& a, const Var& b) {
  const Turn turn(a.tape());
  return Op()(a, b);
}

}  // namespace

void add_tape(nb::module_& m) {
  nb::class_<Var>(m, "Var", "A value on a tape.")
      .def(
          "__init__",
          [](Var* self, const nb::args& more, const nb::kwargs& named) {
            require_none("Var", more, named);
            new (self) Var();
          },
          "An absent input.")
      .def_prop_ro(
          "value",
          [](const Var& x) {
            const Turn turn(x.tape());
            return view_of(x.value());
          },
          "The array, which cannot be written to: the tape reads it.")
      .def_prop_ro("tape", &Var::tape, nb::rv_policy::reference)
      .def("__repr__",
           [](const Var& x) {
             if (!x.defined()) return std::string("Var, absent");
             const Turn turn(x.tape());
             return join("Var ", x.value());
           })
      .def("_add", &together<std::plus<>>)
      .def("_subtract", &together<std::minus<>>)
      .def("_multiply", &together<std::multiplies<>>)
      .def("_divide", &together<std::divides<>>);

  nb::class_<Dropout>(m, "Dropout", "Which elements to drop: a function of seed and element.")
      .def(nb::new_([](double rate, std::uint64_t seed) {
             return Dropout{rate, Random{seed, {}}, 0, 0};
           }),
           nb::arg("rate"), nb::arg("seed") = 0);

  nb::class_<Tape>(m, "Tape", nb::type_slots(collected),
                   "The list of operations that led to a result.")
      .def("__init__",
           [](Tape* self, const nb::args& more, const nb::kwargs& named) {
             require_none("Tape", more, named);
             new (self) Tape();
           })
      .def(
          "input",
          [](Tape& tape, const Tensor& array) {
            const Turn turn(tape);
            return tape.input(leaf_of(array));
          },
          nb::arg("array"), "A leaf that receives a gradient. Its memory is the array's.")
      .def(
          "constant",
          [](Tape& tape, const Tensor& array) {
            const Turn turn(tape);
            return tape.constant(leaf_of(array));
          },
          nb::arg("array"), "A leaf that receives none.")
      .def("record", &record_python, nb::arg("name"), nb::arg("inputs"), nb::arg("value"),
           nb::arg("backward"),
           "An operation of your own: backward(dy) gives a gradient per input.")
      .def(
          "backward",
          [](Tape& tape, const Var& output, const Tensor& cotangent) {
            const Turn turn(tape);
            tape.backward(output, cotangent.defined() ? cotangent.clone() : cotangent);
          },
          nb::arg("output"), nb::arg("cotangent").none() = nb::none(), Free(), "Once per tape.")
      .def(
          "grad",
          [](const Tape& tape, const Var& input) {
            const Turn turn(tape);
            return tape.grad(input);
          },
          nb::arg("input"), "dLoss/dinput after backward, a copy; None where nothing reached it.")
      .def(
          "dot",
          [](const Tape& tape, const std::string& title, bool merge) {
            const Turn turn(tape);
            return to_dot(tape, {title, merge});
          },
          nb::arg("title") = "", nb::arg("merge") = false, "The graph in Graphviz's language.")
      .def("__len__",
           [](const Tape& tape) {
             const Turn turn(tape);
             return tape.size();
           })
      .def("__str__", [](const Tape& tape) {
        const Turn turn(tape);
        return to_text(tape);
      });

  nb::class_<GradcheckReport>(m, "GradcheckReport",
                              "What gradcheck found: true where it passed, as text a table.")
      .def("__bool__", [](const GradcheckReport& report) { return report.passed; })
      .def("__repr__", &GradcheckReport::to_string);
  m.def("gradcheck", &check_python, nb::arg("f"), nb::arg("inputs"), nb::arg("tolerance") = 1e-6,
        nb::arg("seed") = 1,
        "Compares the gradients of f, a function of Vars, with central differences, in f64.");

  nb::module_ ops = m.def_submodule("ops", "The operations of the tape.");
#include <ops.inc>
}

}  // namespace skytape::python
