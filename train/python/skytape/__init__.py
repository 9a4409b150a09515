"""Attention methods with checked gradients, and a tape: for NumPy, PyTorch, JAX and every library that
speaks DLPack. Arrays are shared, not copied; what comes back is of the caller's kind.

Letters: B batch, H heads, N tokens, D head width, E width of the layer's input.
"""
import os
import sys

# Our waiting threads leave the cores to whoever has work, such as PyTorch's. Read once, on loading.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from ._engine import (DataError, Error, NonFiniteError, UsageError,  # noqa: E402
                      methods, set_threads, thread_count)
from . import _engine  # noqa: E402
from .runs import attention_matrices, curves, load, results  # noqa: E402
from .tape import Dropout, Tape, Var, gradcheck, ops  # noqa: E402

__all__ = ["attention", "vjp", "draws", "methods", "Tape", "Var", "Dropout", "ops", "gradcheck", "set_threads",
           "thread_count", "load", "results", "curves", "attention_matrices", "Error", "UsageError", "DataError", "NonFiniteError"]


def attention(name, q, k, v, mask=None, seed=0, training=False, **more):
    """Output [B, H, N, D] of a method on q, k, v [B, H, N, D]; methods() lists names and options.

    mask      [B, N], true or 1 for a token, false or 0 for padding
    seed      of what the method draws, and of parameters that are not given
    training  dropout on
    more      x: the layer's input [B, N, E], where methods() says reads_x; length: the nominal N that
              parameters are made for; parameters, draws: arrays by name, to use instead of fresh ones;
              the rest are the method's options. A method with shared_qk takes None for k.
    """
    return _like(v, _attend(name, q, k, v, mask, seed, training, False, **more).out)


def vjp(name, q, k, v, dout, mask=None, seed=0, training=False, **more):
    """(out, gradients): as attention(), and dLoss/dinput by name ("q", "k", "v", "x", parameters) for
    dout, which is dLoss/dout [B, H, N, D]."""
    attended = _attend(name, q, k, v, mask, seed, training, True, **more)
    gradients = attended.backward(dout)
    return _like(v, attended.out), {key: _like(v, value) for key, value in gradients.items()}


def draws(name, q, k, v, mask=None, seed=0, training=False, **more):
    """The random arrays of attention() with these arguments, by name; given to it again as `draws`, they
    stay while its inputs change."""
    drawn = _attend(name, q, k, v, mask, seed, training, False, **more).draws
    return {key: _like(v, value) for key, value in drawn.items()}


def _attend(name, q, k, v, mask, seed, training, differentiable, *, x=None, length=0, parameters=None,
            draws=None, **options):
    for argument in (q, k, v, x):
        if getattr(argument, "requires_grad", False):
            raise UsageError("a tensor requires its gradient: call skytape.torch.attention, or detach it")
    return _engine.attend(name, q, k, v, _mask_like(mask, v), x, _texts(options), seed, training, length,
                          parameters, draws or {}, differentiable)


def _texts(options):
    """Values of options as the command line spells them: True is 1, a list 64:128."""
    def text(value):
        if isinstance(value, (list, tuple)):
            return ":".join(map(str, value))
        return str(int(value) if isinstance(value, bool) else value)
    return {key: text(value) for key, value in options.items()}


def _mask_like(mask, v):
    """The mask in v's dtype."""
    if mask is None or mask.dtype == v.dtype:
        return mask
    return mask.astype(v.dtype) if hasattr(mask, "astype") else mask.to(v.dtype)


def _like(array, result):
    """The result, which speaks DLPack, as an array of the library that `array` is of."""
    if hasattr(array, "__array_namespace__"):
        return array.__array_namespace__().from_dlpack(result)
    return sys.modules[type(array).__module__.partition(".")[0]].from_dlpack(result)
