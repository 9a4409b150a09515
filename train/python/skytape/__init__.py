"""Attention methods with checked gradients, and a tape: for NumPy, PyTorch, JAX and every library that
speaks DLPack. Arrays are read where they are; what comes back is of the caller's kind, and the caller's.

    skytape.torch.Attention("skyformer", 64, heads=2)      a module of PyTorch
    skytape.torch.attention("skyformer", q, k, v)          the same as a function; q, k, v [B, H, N, D]
    skytape.jax.attention("skyformer", q, k, v)            for jax.jit, jax.grad and jax.vmap
    skytape.attention("skyformer", q, k, v)                NumPy and others; vjp() gives gradients, too
    skytape.methods()                                      names, options, costs, papers
    skytape.load("runs/...").predict(["a text"])           a trained run; results("runs"): their numbers
    skytape.Tape(), skytape.ops, skytape.gradcheck(...)    the tape, its operations, a check of gradients

Wrong arguments raise UsageError, which is a ValueError and a TypeError; files that cannot be read, DataError.

Notation: B batch, H heads, N tokens, D head width, E width of the layer's input.
"""
import functools
import numbers
import os
from typing import Any

# Our waiting threads leave the cores to whoever has work, such as PyTorch's. Read once, on loading.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from . import _engine, arrays, waiting  # noqa: E402
from ._engine import DataError, Error, NonFiniteError, UsageError, has_cuda, methods  # noqa: E402
from .runs import Run, curves, load, results  # noqa: E402
from .tape import Dropout, GradcheckReport, Tape, Var, gradcheck, ops  # noqa: E402
from .version import __version__  # noqa: E402, F401

__all__ = ["DataError", "Dropout", "Error", "GradcheckReport", "NonFiniteError", "Run", "Tape", "UsageError",
           "Var", "attention", "curves", "draws", "gradcheck", "has_cuda", "load", "methods", "ops",
           "results", "set_threads", "vjp"]
Array = Any  # of NumPy, PyTorch, JAX and every library that speaks DLPack; lists, too


def attention(name: str, q: Array, k: Array, v: Array, mask: Array = None, seed: int = 0,
              training: bool = False, **more: Any) -> Array:
    """Output [B, H, N, D] of a method on q, k, v [B, H, N, D]; methods() lists names and options.

    mask      bool [B, N], true for a token, false for padding. No finite number at padding changes
              anything, but for methods of which methods() says reads_padding: give these zeros there
    seed      of what the method draws, and of parameters that are not given
    training  dropout on. Without it each example gives what it gives alone, whatever the others are
    more      x: the layer's input [B, N, E], where methods() says reads_x; length: the nominal N that
              parameters are made for; parameters, draws: arrays by name, to use instead of fresh ones;
              the rest are the method's options. A method with shared_qk takes None for k.
    """
    call, dtype = _call(False, name, q, k, v, mask, seed, training, **more)
    return arrays.like(v, call.out(), dtype)["out"]


def vjp(name: str, q: Array, k: Array, v: Array, dout: Array, mask: Array = None, seed: int = 0,
        training: bool = False, **more: Any) -> tuple[Array, dict[str, Array]]:
    """(out, gradients): as attention(), and dLoss/dinput by name ("q", "k", "v", "x", parameters) for
    dout, which is dLoss/dout [B, H, N, D]."""
    call, dtype = _call(True, name, q, k, v, mask, seed, training, **more)
    dout, _ = arrays.given(dout, "dout")
    return (arrays.like(v, call.out(), dtype)["out"],
            arrays.like(v, waiting.attending(v, call.backward, {"dout": dout}), dtype))


def draws(name: str, q: Array, k: Array, v: Array, mask: Array = None, seed: int = 0, training: bool = False,
          **more: Any) -> dict[str, Array]:
    """The random arrays of attention() with these arguments, by name; given to it again as `draws`, they
    stay while its inputs change."""
    return arrays.like(v, _call(False, name, q, k, v, mask, seed, training, **more)[0].draws())


def set_threads(threads: int) -> None:
    """Sets how many threads compute from now on, PyTorch's too where both share OpenMP; 0 changes nothing."""
    _engine.set_threads(_whole("threads", threads, bits=31))


def _call(differentiable, name, q, k, v, mask, seed, training, *,
          x=None, length=0, parameters=None, draws=None, **options):
    """The call, and the type that its results are to have if another than they have."""
    named = {"q": q, "k": k, "v": v, "x": x}
    draws = _by_name("draws", draws)
    named |= _by_name("parameters", parameters)
    if any(getattr(array, "requires_grad", False) for array in named.values()):
        raise UsageError("a tensor requires its gradient: call skytape.torch.attention, or detach it")
    dtypes, read = set(), {}
    for key, array in named.items():
        if array is not None:
            read[key], dtype = arrays.given(array, key)
            dtypes.add(dtype)
    if len(dtypes) > 1:
        raise UsageError("arrays of half precision mixed with others: " +
                         ", ".join(f"{key} is {arrays.dtype_of(array)}"
                                   for key, array in named.items() if array is not None))
    if mask is not None and "v" in read:
        read["mask"] = _ones(mask, read["v"])
    call = waiting.attending(read.get("v"), _engine.Call, _name(name), read, _texts(options), _seed(seed),
                             _flag("training", training), _whole("length", length), parameters is None, draws,
                             differentiable)
    return call, dtypes.pop() if dtypes else None


@functools.lru_cache(1024)
def _check(name, training, length, options, given, own):
    """Raises what a call would raise whose arrays have no numbers, by a call without examples. given, own:
    (name, shape, dtype) of q, k, v, x, and of parameters, None for fresh ones; options: pairs."""
    shapes = {key: list(shape) for key, shape, _ in given}
    dtypes = {key: dtype for key, _, dtype in given}
    v = shapes["v"]
    if len(v) != 4:
        raise UsageError(f"{name}: v: expected [B, H, N, D], got {dtypes['v']} {v}")
    for key in shapes.keys() & {"q", "k"}:
        if shapes[key] != v:
            raise UsageError(f"{name}: {key}: expected v's shape {v}, got {dtypes[key]} {shapes[key]}")
    if "x" in shapes and (len(shapes["x"]) != 3 or shapes["x"][:2] != [v[0], v[2]]):
        raise UsageError(f"{name}: x: expected [B, N, E] = [{v[0]}, {v[2]}, E], "
                         f"got {dtypes['x']} {shapes['x']}")
    empty = {key: arrays.np.empty((0, *shape[1:]), dtypes[key]) for key, shape in shapes.items()}
    own = None if own is None else {key: arrays.np.empty(shape, dtype) for key, shape, dtype in own}
    attention(name, **{"q": None, "k": None, **empty}, training=training, length=length, parameters=own,
              **dict(options))


def _name(name):
    if not isinstance(name, str):
        raise UsageError(f"name: expected a method's name, a str, got {type(name).__name__}")
    return _word("name", "a method's name", name)


def _word(argument, expected, text, marks=""):
    """The text, in which nothing stands that the engine could take for its end."""
    if not text.isprintable() or any(mark in text for mark in marks):
        raise UsageError(f"{argument}: expected {expected}, got {text!r:.50}")
    return text


def _flag(argument, value):
    """True or False, of NumPy too, or 1 or 0."""
    if not isinstance(value, (numbers.Integral, arrays.np.bool_)) or value not in (0, 1):
        raise UsageError(f"{argument}: expected True or False, got {value!r:.50}")
    return bool(value)


def _seed(seed):
    return _whole("seed", seed, bits=64)


def _whole(argument, value, least=0, bits=63):
    """A whole number, of NumPy too, from `least` to 2^bits - 1."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        raise UsageError(f"{argument}: expected a whole number, got {value!r:.50}")
    if not least <= value < 2**bits:
        raise UsageError(f"{argument}: expected {least} to 2^{bits} - 1, got {value!r:.50}")
    return int(value)


def _by_name(argument, given):
    """The dict of arrays by name, or an empty one for None."""
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise UsageError(f"{argument}: expected a dict of arrays by name, got {type(given).__name__}")
    for key in given:
        if not isinstance(key, str):
            raise UsageError(f"{argument}: expected a name as key, got {key!r:.50}")
        _word(argument, "a name as key", key, ",")
        if key in ("q", "k", "v", "x", "mask"):
            raise UsageError(f"{argument}: the method has no '{key}', which is an argument")
    return given


def _ones(mask, v):
    """The mask in v's type, one for a token. Numbers are refused: they could be ones for padding, or -inf
    to be added to scores."""
    arrays.dense(mask, "mask")
    if arrays.library(mask) == "numpy":
        mask = arrays.np.asarray(mask)
    if arrays.dtype_of(mask) != "bool":
        raise UsageError(f"mask: expected an array of bool [B, N], {arrays.MASK}, got {arrays.what(mask)}")
    if arrays.library(v) == "torch":
        from torch import Tensor, as_tensor
        return as_tensor(mask, device=v.device).detach().as_subclass(Tensor).to(v.dtype)
    if arrays.library(v) == "numpy" or arrays.library(mask) == "torch":
        return arrays.np.asarray(mask).astype(v.dtype)
    return mask.astype(v.dtype)


def _texts(options):
    """Values of options as the command line spells them: True is 1."""
    for key, value in options.items():
        if not isinstance(value, (str, numbers.Number, arrays.np.bool_)):
            raise UsageError(f"{key}: expected a number or a text, as options of a method are, "
                             f"got {arrays.what(value)}")
        _word("options", "a name", key, "=;")
        if isinstance(value, str):
            _word(key, "one value", value, ";")
    return {key: _text(value) for key, value in options.items()}


def _text(value):
    # Of a number that changes from call to call torch.compile takes f"{int()}", and no str(), for a constant.
    if isinstance(value, (numbers.Integral, arrays.np.bool_)):
        return f"{int(value)}"
    if isinstance(value, float):
        return f"{float(value)}"
    # An enumerator's value, and not its name.
    return str.__str__(value) if isinstance(value, str) else str(value)
