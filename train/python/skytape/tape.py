"""The tape and its drawing: Vars with the operators of NumPy's arrays."""
import functools
import math
import numbers
import operator
import shutil
import subprocess
import types
import typing

import numpy as np

from . import _engine, arrays
from ._engine import GradcheckReport, Tape, UsageError, Var  # noqa: F401


def _sentence(function, name, declared=None):
    """The engine's function, whose complaint about its arguments becomes one sentence, without self.
    declared: whose text says what it takes, if not its own."""
    taken = str((declared or function).__doc__).partition(")")[0].partition("(")[2]
    method = taken.startswith("self")

    @functools.wraps(function, assigned=("__doc__",), updated=())
    def call(*arguments, **more):
        try:
            return function(*arguments, **more)
        except TypeError as error:
            if "incompatible function arguments" not in str(error):
                raise
        got = [arrays.what(x) for x in arguments[method and declared is None:]]
        got += [f"{key}={arrays.what(x)}" for key, x in more.items()]
        raise UsageError(f"{name}: expected ({taken.removeprefix('self').removeprefix(', ')}), "
                         f"got ({', '.join(got)})")
    call.__name__ = call.__qualname__ = name
    return call


if typing.TYPE_CHECKING:
    from ._engine import Dropout, ops
else:
    Dropout = _sentence(_engine.Dropout, "Dropout", _engine.Dropout.__init__)
    ops = types.ModuleType("skytape.ops", _engine.ops.__doc__)
    for _name in dir(_engine.ops):
        if not _name.startswith("_"):
            setattr(ops, _name, _sentence(getattr(_engine.ops, _name), _name))


def gradcheck(f: typing.Callable[..., Var], inputs: typing.Sequence[typing.Any], tolerance: float = 1e-6,
              seed: int = 1) -> GradcheckReport:
    """Compares the gradients of f, a function of Vars that returns one, with central differences, in f64, at
    the arrays `inputs`. The report is true where the largest error is below the tolerance."""
    if not callable(f):
        raise UsageError(f"gradcheck: f: expected a function of Vars, got {type(f).__name__}")
    if isinstance(inputs, np.ndarray) or not isinstance(inputs, (list, tuple)):
        raise UsageError(f"gradcheck: inputs: expected a list of arrays, got {arrays.what(inputs)}")
    inputs = [np.asarray(arrays.plain(x, f"inputs[{i}]"), np.float64) for i, x in enumerate(inputs)]
    return _sentence(_engine.gradcheck, "gradcheck")(f, inputs, tolerance, seed)


# ---- operators -----------------------------------------------------------------------------------

def _operator(of_vars, of_number):
    """Returns an operator on a Var and another one, a number, or an array, which becomes a constant on the
    tape."""
    def apply(self, other):
        if not isinstance(other, Var):
            if isinstance(other, numbers.Real) or getattr(other, "shape", None) == ():
                try:
                    number = float(other)
                except TypeError:
                    return NotImplemented
                return of_number(self, number)
            if not isinstance(other, (np.ndarray, list, tuple)) and not hasattr(other, "__dlpack__"):
                return NotImplemented
            other = self.tape.constant(np.asarray(arrays.plain(other, "operand"), self.value.dtype))
        return of_vars(self, other)
    return apply


def _turned(of_vars):
    return lambda a, b: of_vars(b, a)


def _power(x, exponent):
    """x ** exponent; 0 ** 0 is 1 and has the gradient 0."""
    if not math.isfinite(exponent):
        raise UsageError(f"Var: **: expected a finite number or an array as exponent, got {exponent}")
    base = x.value

    def times_power(factor, exponent):
        with np.errstate(all="ignore"):  # as of the engine's operations: 0 ** -1 is infinite
            return np.multiply(factor, np.power(base, exponent, dtype=base.dtype), dtype=base.dtype)
    return x.tape.record("power", [x], times_power(1, exponent),
                         lambda dy: [times_power(dy * exponent, exponent - 1 if exponent else 0)])


def _power_by_logarithm(x, exponent):
    """x ** exponent, a Var each."""
    _require_positive(x.value)
    return ops.exp(exponent._multiply(ops.log(x)))


def _power_of_number(x, base):
    """base ** x."""
    _require_positive(np.asarray(base))
    return ops.exp(ops.affine(x, float(np.log(base))))


def _require_positive(base):
    if isinstance(base, np.ndarray) and not (base > 0).all():
        raise UsageError("Var: **: the base must be positive where the exponent is an array; "
                         "a whole number as exponent takes any base")


def _unordered(self, other):
    raise UsageError("Var: a value on a tape is not compared; compare its array, x.value")


def _item(self, index):
    """x[...] by whole numbers, slices of step 1 and None, as of an array."""
    index = index if isinstance(index, tuple) else (index,)
    taken = sum(part is not None and part is not Ellipsis for part in index)
    places = [i for i, part in enumerate(index) if part is Ellipsis]
    if taken > len(self.shape) or len(places) > 1:
        raise UsageError(f"Var: {taken} indices for the shape {list(self.shape)}")
    at = places[0] if places else len(index)
    index = index[:at] + (slice(None),) * (len(self.shape) - taken) + index[at + 1:]
    found, shape, axis = self, [], 0
    for part in index:
        if part is None:
            shape.append(1)
            continue
        size = self.shape[axis]
        if isinstance(part, slice):
            begin, end, step = part.indices(size)
            if step != 1:
                raise UsageError(f"Var: a slice must have step 1, got {step}; ops.gather_rows takes any rows")
            shape.append(max(end - begin, 0))
        else:
            try:
                if isinstance(part, bool):  # which is no position for NumPy, but a mask
                    raise TypeError
                begin = operator.index(part)
            except TypeError:
                raise UsageError("Var: expected whole numbers and slices as indices, "
                                 f"got {arrays.what(part)}") from None
            if not -size <= begin < size:
                raise UsageError(f"Var: index {begin} is outside axis {axis}, of {size}")
            begin %= size
            end = begin + 1
        found = ops.narrow(found, axis, begin, max(begin, end))
        axis += 1
    return ops.reshape(found, shape)


def _no_array(self, *_, **__):
    raise UsageError("Var: NumPy cannot take a value on a tape; take its array, x.value")


def _reduction(one, name):
    def reduce(self, axis=None, keepdims=False):
        """Over an axis, several or all, as of an array."""
        shape = list(self.shape)
        axes = range(len(shape)) if axis is None else axis if isinstance(axis, (tuple, list)) else (axis,)
        for each in axes:
            if not isinstance(each, numbers.Integral) or not -len(shape) <= each < len(shape):
                raise UsageError(f"{name}: axis: expected -{len(shape)} to {len(shape) - 1}, "
                                 f"got {each!r:.50}")
        axes = {each % len(shape) for each in axes}
        found = self
        for each in sorted(axes):
            found = one(found, each, True)
        kept = [1 if i in axes else size for i, size in enumerate(shape)]
        return (found if keepdims else
                ops.reshape(found, [size for i, size in enumerate(kept) if i not in axes]))
    reduce.__name__ = name
    return reduce


def _transposed(self):
    if len(self.shape) != 2:
        raise UsageError(f"Var: T is of a matrix, got the shape {list(self.shape)}; "
                         "ops.transpose exchanges the last two axes")
    return ops.transpose(self)


Var.__array_ufunc__ = None  # NumPy's arrays leave array * Var to us
Var.shape = property(lambda self: self.value.shape)
Var.dtype = property(lambda self: self.value.dtype)
Var.ndim = property(lambda self: len(self.shape))
Var.T = property(_transposed)
Var.__len__ = lambda self: len(self.value)
Var.__iter__ = lambda self: (self[i] for i in range(len(self)))
Var.__array__ = _no_array
Var.__getitem__ = _item
Var.sum, Var.mean = _reduction(ops.sum, "sum"), _reduction(ops.mean, "mean")
Var.reshape = lambda self, *shape: ops.reshape(
    self, list(shape[0]) if len(shape) == 1 and not isinstance(shape[0], numbers.Integral) else list(shape))
for _name, _vars, _number, _right in [
    ("add", Var._add, lambda x, c: ops.affine(x, 1, c), lambda x, c: ops.affine(x, 1, c)),
    ("sub", Var._subtract, lambda x, c: ops.affine(x, 1, -c), lambda x, c: ops.affine(x, -1, c)),
    ("mul", Var._multiply, lambda x, c: ops.affine(x, c), lambda x, c: ops.affine(x, c)),
    ("truediv", Var._divide, lambda x, c: x._divide(x.tape.constant(np.full((), c, x.dtype))),
     lambda x, c: ops.affine(ops.reciprocal(x), c)),
    ("pow", _power_by_logarithm, _power, _power_of_number),
]:
    setattr(Var, f"__{_name}__", _operator(_vars, _number))
    setattr(Var, f"__r{_name}__", _operator(_turned(_vars), _right))
Var.__matmul__ = _operator(lambda a, b: ops.matmul(a, b), lambda x, c: NotImplemented)
Var.__rmatmul__ = _operator(lambda a, b: ops.matmul(b, a), lambda x, c: NotImplemented)
Var.__neg__, Var.__pos__ = lambda self: ops.negate(self), lambda self: self
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Var, f"__{_name}__", _unordered)
Var.__hash__ = object.__hash__
for _class, _names in ((Tape, ("input", "constant", "record", "backward", "grad", "dot")),):
    for _name in _names:
        setattr(_class, _name, _sentence(getattr(_class, _name), f"{_class.__name__}.{_name}"))


class Drawing(str):
    """The graph of a tape as SVG; a notebook shows it."""

    def _repr_svg_(self):
        return str(self)


def draw(tape: Tape, title: str = "", merge: bool = False) -> Drawing:
    """The tape as a graph, drawn by Graphviz: leaves on top, the last value at the bottom. merge leaves
    out operations that only move values."""
    if shutil.which("dot") is None:
        raise FileNotFoundError("draw: Graphviz is not installed; to install it: apt-get install graphviz")
    svg = subprocess.run(["dot", "-Tsvg"], input=tape.dot(title, merge), capture_output=True, text=True,
                         encoding="utf-8", check=True).stdout
    return Drawing(svg[svg.index("<svg"):])


Tape.draw = draw
