"""Attention methods with checked gradients, and a tape: for NumPy, PyTorch, JAX and every library that
speaks DLPack. Arrays are shared, not copied; what comes back is of the caller's kind.

Letters: B batch, H heads, N tokens, D head width, E width of the layer's input.
"""
import os
import sys

# Our waiting threads leave the cores to whoever has work, such as PyTorch's. Read once, on loading.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from . import _engine  # noqa: E402
from ._engine import (DataError, Error, NonFiniteError, UsageError,  # noqa: E402, F401
                      has_cuda, methods, set_threads)
from .runs import curves, load, results  # noqa: E402, F401
from .tape import Dropout, Tape, Var, gradcheck, ops  # noqa: E402, F401


def attention(name, q, k, v, mask=None, seed=0, training=False, **more):
    """Output [B, H, N, D] of a method on q, k, v [B, H, N, D]; methods() lists names and options.

    mask      bool [B, N], true for a token, false for padding
    seed      of what the method draws, and of parameters that are not given
    training  dropout on
    more      x: the layer's input [B, N, E], where methods() says reads_x; length: the nominal N that
              parameters are made for; parameters, draws: arrays by name, to use instead of fresh ones;
              the rest are the method's options. A method with shared_qk takes None for k.
    """
    return _as(v, _call(False, name, q, k, v, mask, seed, training, **more).out())["out"]


def vjp(name, q, k, v, dout, mask=None, seed=0, training=False, **more):
    """(out, gradients): as attention(), and dLoss/dinput by name ("q", "k", "v", "x", parameters) for
    dout, which is dLoss/dout [B, H, N, D]."""
    call = _call(True, name, q, k, v, mask, seed, training, **more)
    return _as(v, call.out())["out"], _as(v, call.backward({"dout": dout}, False))


def draws(name, q, k, v, mask=None, seed=0, training=False, **more):
    """The random arrays of attention() with these arguments, by name; given to it again as `draws`, they
    stay while its inputs change."""
    return _as(v, _call(False, name, q, k, v, mask, seed, training, **more).draws())


def _call(differentiable, name, *arguments, **more):
    arrays, settings = _gather(*arguments, **more)
    if any(getattr(array, "requires_grad", False) for array in arrays.values()):
        raise UsageError("a tensor requires its gradient: call skytape.torch.attention, or detach it")
    return _engine.Call(name, arrays, *settings, differentiable)


def _gather(q, k, v, mask, seed, training, *, x=None, length=0, parameters=None, draws=None, **options):
    """What _engine.Call takes: arrays by name, and the rest."""
    if not 0 <= seed < 2**64:
        raise UsageError(f"seed: expected 0 to 2^64 - 1, got {seed}")
    arrays = {"q": q, "k": k, "v": v, "x": x, **(parameters or {})}
    if mask is not None and hasattr(v, "__dlpack__"):
        arrays["mask"] = _ones(mask, v)
    return ({key: array for key, array in arrays.items() if array is not None},
            (_texts(options), seed, training, length, parameters is None, draws or {}))


def _ones(mask, v):
    """The mask in v's type, one for a token. Numbers are refused: they could be ones for padding, or -inf
    to be added to scores."""
    kind = str(getattr(mask, "dtype", type(mask)))
    if not kind.endswith("bool"):
        raise UsageError(f"mask: expected an array of bool [B, N], got {kind}")
    mask = _as(v, {"mask": mask})["mask"]
    return mask.astype(v.dtype) if hasattr(mask, "astype") else mask.to(v.dtype)


def _texts(options):
    """Values of options as the command line spells them: True is 1."""
    return {key: str(int(value) if isinstance(value, bool) else value) for key, value in options.items()}


def _as(array, results):
    """The results, which speak DLPack, as arrays of the library that `array` is of."""
    own = getattr(array, "__array_namespace__", None)
    library = own() if own else sys.modules[type(array).__module__.partition(".")[0]]
    return {key: library.from_dlpack(value) for key, value in results.items()}
