"""Writes the bindings of the tape's operations: one for each function of Vars in autograd/ops.hpp.

The header is the list: an operation that is declared there is known in Python, under its name and
with its defaults and its comment. What cannot be bound is an error here, not an omission there.
"""
import re
import sys

# Forms for training on CUDA of operations that are bound; their arguments are structs.
FUSED = {"layer_norm_beside", "layer_norm_beside_at_once", "norm_pool"}

# C++ type: (parameter of the binding, what the function gets); {} is the argument's name.
TYPES = {
    "Var": ("const Var& {}", "{}"),
    "std::span<const Var>": ("const std::vector<Var>& {}", "{}"),
    "const Tensor&": ("nb::handle {}", "{}_"),
    "const Shape&": ("const std::vector<std::int64_t>& {}", "Shape(std::span(std::as_const({})))"),
    "const Dropout&": ("const Dropout& {}", "{}"),
    "Op": ("bool {}", "Op({})"),
    **{plain: (plain + " {}", "{}") for plain in ("int", "std::int64_t", "double", "bool")},
}
VALUES = {"Op::none": "false"}
RENAMED = {"op_a": "transpose_a", "op_b": "transpose_b"}
FUNCTION = re.compile(r"((?:^///.*\n)*)^\[\[nodiscard\]\] (?:inline )?\w+ (\w+)\(([^)]*)\)[^/\n]*(?:///< (.*))?",
                      re.MULTILINE)


def binding(name, parameters, comment):
    taken, given, named, converted = [], [], [], ""
    for parameter in re.split(r",\s*", parameters):
        declared, _, default = parameter.partition(" = ")
        kind, argument = declared.rsplit(" ", 1)
        if kind not in TYPES:
            sys.exit(f"bind_ops.py: {name}: how is a {kind} to be bound? TYPES does not say")
        argument = RENAMED.get(argument, argument)
        taken.append(TYPES[kind][0].format(argument))
        given.append(TYPES[kind][1].format(argument))
        named.append(f'nb::arg("{argument}")' + (f" = {VALUES.get(default, default)}" if default else ""))
        if kind == "const Tensor&":
            converted += f'  const Tensor {argument}_ = tensor_of({argument}, "{argument}");\n'
    return (f'ops.def("{name}", []({", ".join(taken)}) {{\n{converted}'
            f'  const nb::gil_scoped_release free;\n  return {name}({", ".join(given)});\n'
            f'}}, {", ".join(named)}, R"({comment})");')


def main(header):
    print("// Made by train/python/bind_ops.py.")
    for before, name, parameters, after in FUNCTION.findall(open(header, encoding="utf-8").read()):
        comment = after or re.sub(r"^/// ?", "", before, flags=re.MULTILINE).strip()
        if name not in FUSED | {"operator"}:
            print(binding(name, " ".join(parameters.split()), comment))


if __name__ == "__main__":
    main(sys.argv[1])
