"""Writes the bindings of the tape's operations: one for each function of Vars in autograd/ops.hpp.

The header is the list: an operation that is declared there is known in Python, under its name and
with its defaults and its comment. What cannot be bound is an error here, not an omission there.
"""
import re
import sys

# Their arguments or results are structs.
UNBOUND = {"layer_norm_beside", "norm_pool"}
PLAIN = {"Var", "const Tensor&", "const Dropout&", "int", "std::int64_t", "double", "bool"}
# C++ type: (what Python gives, how it becomes one); {} is the argument's name.
OTHER = {
    "std::span<const Var>": ("const std::vector<Var>&", "{}"),
    "const Shape&": ("const std::vector<std::int64_t>&", "Shape(std::span({}))"),
    "Op": ("bool", "Op({})"),
}
RENAMED = {"op_a": "transpose_a", "op_b": "transpose_b"}
FUNCTION = re.compile(r"((?:^///.*\n)*)^\[\[nodiscard\]\] (?:inline )?\w+ (\w+)\(([^)]*)\)"
                      r"[^/\n]*(?:///< (.*))?", re.MULTILINE)

print("// Made by train/python/bind_ops.py.")
with open(sys.argv[1], encoding="utf-8") as header:
    found = FUNCTION.findall(header.read())
for before, name, parameters, after in found:
    if name in UNBOUND | {"operator"} or "initializer_list" in parameters:  # a span is bound
        continue
    taken, given, named, first = [], [], [], None
    for parameter in re.split(r",\s*", parameters):
        declared, _, default = parameter.partition(" = ")
        kind, argument = declared.rsplit(" ", 1)
        if kind not in PLAIN | OTHER.keys():
            sys.exit(f"bind_ops.py: {name}: how is a {kind} to be bound? OTHER does not say")
        argument = RENAMED.get(argument, argument)
        theirs, ours = OTHER.get(kind, (kind, "{}"))
        taken.append(f"{theirs} {argument}")
        given.append(ours.format(argument))
        first = first or {"Var": argument, "std::span<const Var>": f"first_of({argument})"}.get(kind)
        named.append(f'nb::arg("{argument}")' +
                     (f" = {default}".replace("Op::none", "false") if default else ""))
    comment = after or re.sub(r"^/// ?", "", before, flags=re.MULTILINE).strip()
    print(f'ops.def("{name}", []({", ".join(taken)}) {{\n'
          f"  const Turn turn({first}.tape());\n"
          f"  return {name}({', '.join(given)});\n"
          f"}},\n"
          f'        {", ".join(named)}, Free(), R"({comment})");')
