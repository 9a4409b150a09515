"""Arrays of any library as what the engine reads, and its results as arrays of the caller's library."""
import sys

import numpy as np

from ._engine import UsageError

HALF = ("float16", "bfloat16")
MASK = "true for a token, false for padding"


def library(array):
    """"torch", "jax", "numpy", or "dlpack" for another library that speaks it."""
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    if torch is not None and isinstance(array, torch.Tensor):
        return "torch"
    if jax is not None and isinstance(array, jax.Array):
        return "jax"
    if isinstance(array, (np.ndarray, np.generic)) or not hasattr(array, "__dlpack__"):
        return "numpy"
    return "dlpack"


def dense(array, argument):
    """UsageError where a tensor of PyTorch is sparse or nested, or an array of NumPy hides entries."""
    if isinstance(array, np.ma.MaskedArray):
        raise UsageError(f"{argument}: expected a plain array, got a masked one, "
                         "whose mask would not be read: .filled(0) makes one")
    if library(array) == "torch" and (array.layout != sys.modules["torch"].strided or array.is_nested):
        layout = "a nested one" if array.is_nested else f"one of layout {array.layout}: .to_dense() makes one"
        raise UsageError(f"{argument}: expected a dense tensor, got {layout}")


def plain(array, argument):
    """The same numbers as the engine can read them: dense, in this machine's byte order, of no subclass;
    whole numbers as int32 where all are within it, and numbers of half precision as float32."""
    dense(array, argument)
    kind = library(array)
    if kind == "torch":
        if array.device.type == "meta":
            raise UsageError(f"{argument}: expected a tensor with numbers, got one on the device meta")
        if array.requires_grad:
            raise UsageError(f"{argument}: the tensor requires its gradient: "
                             "call skytape.torch.attention, or detach it")
        array = array.detach().as_subclass(sys.modules["torch"].Tensor).contiguous().resolve_neg()
        if dtype_of(array) in HALF:
            return array.float()
        if dtype_of(array) in ("int64", "int16", "int8", "uint8") and _within_32_bits(array):
            return array.int()
        return array
    if kind == "jax":
        if isinstance(array, sys.modules["jax"].core.Tracer):
            raise UsageError(f"{argument}: JAX traces this function, so the array has no numbers yet: "
                             "call skytape.jax.attention")
        array = np.asarray(array)
    elif kind == "dlpack":
        return array
    try:
        array = np.asarray(array)
    except Exception as error:  # a list of lists of different lengths
        raise UsageError(f"{argument}: expected an array, got {type(array).__name__}: {error}") from None
    array = _in_this_order(array)
    if (array.dtype.kind not in "fiub" or array.dtype.itemsize > 8) and dtype_of(array) not in HALF:
        raise UsageError(f"{argument}: expected an array of real numbers of at most 64 bits, "
                         f"got {what(array)}")
    if array.dtype.kind in "iu" and _within_32_bits(array):
        array = array.astype(np.int32)
    elif dtype_of(array) in HALF:
        array = array.astype(np.float32)
    return np.array(array, order="C", subok=False)


def _in_this_order(array):
    """With its bytes in this machine's order."""
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _within_32_bits(array):
    return 0 in array.shape or -2**31 <= int(array.min()) and int(array.max()) < 2**31


def for_engine(array, argument):
    """plain(), whose whole numbers must be within 32 bits."""
    array = plain(array, argument)
    whole = array.dtype.kind in "iu" if library(array) == "numpy" else dtype_of(array) == "int64"
    if whole and not _within_32_bits(array):
        raise UsageError(f"{argument}: expected whole numbers of 32 bits, "
                         f"got {int(array.min())} to {int(array.max())}")
    return array


def dtype_of(array):
    """Its name, as "float32"."""
    return str(getattr(array, "dtype", type(array).__name__)).removeprefix("torch.")


def what(array):
    """Describes an argument for messages: float64 [2, 3], or its kind if it is no array."""
    if not hasattr(array, "dtype") or not hasattr(array, "shape"):
        return type(array).__name__
    return f"{dtype_of(array)} {list(array.shape)}"


def given(array, argument):
    """An array of q's kind that the engine reads, in float32 or float64, and the type that its results
    are to have."""
    dense(array, argument)
    kind = library(array)
    if kind == "numpy" and not isinstance(array, np.ndarray):
        array = plain(array, argument)  # a list, a number
        if array.dtype.kind in "iu":
            array = array.astype(np.float64)
    elif kind == "numpy":
        array = _in_this_order(array)
    name = dtype_of(array)
    if name not in ("float32", "float64", "int32", *HALF):
        raise UsageError(f"{argument}: expected float32, float64, float16 or bfloat16, got {what(array)}")
    if kind == "torch" and (array.requires_grad or type(array) is not sys.modules["torch"].Tensor):
        array = plain(array, argument)
    if name in HALF:
        return (array.astype(np.float32) if kind in ("numpy", "jax") else plain(array, argument)), array.dtype
    return array, None


def like(array, results, dtype=None):
    """The results, which speak DLPack, as arrays of the library that `array` is of; of `dtype` if given."""
    kind = library(array)
    if kind == "numpy":
        results = {key: np.asarray(value) for key, value in results.items()}
    elif kind == "torch":
        results = {key: sys.modules["torch"].from_dlpack(value) for key, value in results.items()}
    elif kind == "jax":
        from jax.dlpack import from_dlpack
        results = {key: from_dlpack(value) for key, value in results.items()}
    else:
        own = (array.__array_namespace__() if hasattr(array, "__array_namespace__")
               else sys.modules[type(array).__module__.partition(".")[0]])
        return {key: own.from_dlpack(value) for key, value in results.items()}
    if dtype is None:
        return results
    return {key: value.to(dtype) if kind == "torch" else value.astype(dtype)
            for key, value in results.items()}
