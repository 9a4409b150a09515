"""What attention(..., differentiable=True) does: the method composed of PyTorch's operations, with the
arrays and draws that the engine gives it.
"""
import torch
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from .. import UsageError, _check, _engine, arrays, traits
from ..traits import METHODS
from . import composed
from .operators import call_of, library, moved_by, shaped
from .settings import settings_of

# A method's own arrays from a seed. torch.compile traces no function of the engine: their names are a
# constant to it, and an operator makes them.


def _constant(function):
    """torch.compiler.assume_constant_result, which would import torch.compile."""
    function._dynamo_marked_constant = True
    return function


def _initial(seed, name, settings, sizes):
    options = settings_of(settings).options
    return _engine.initial(name, options, *map(int, sizes.split(",")), int(seed) % 2**64)[0]


@_constant
def _initial_shapes(name, settings, sizes):
    """Each name and shape, as "E [3, 64]"."""
    return ";".join([f"{key} {list(value.shape)}" for key, value, _ in _initial(0, name, settings, sizes)])


@_constant
def wrong_options(name, settings, sizes):
    """The text of the error that they are elsewhere, or none: an error here would be one of torch.compile."""
    try:
        _initial(0, name, settings, sizes)
    except UsageError as error:
        return str(error)
    return ""


library.define("initial(Tensor seed, str name, str settings, str sizes) -> Tensor[]",
               tags=(torch.Tag.pt2_compliant_tag,))
library.impl("initial", lambda *call: [torch.from_numpy(value) for _, value, _ in _initial(*call)],
              "CompositeExplicitAutograd")
def _initial_fake(seed, *call):
    return [torch.empty(value.shape, dtype=torch.float64, device="cpu") for _, value, _ in _initial(0, *call)]


torch.library.register_fake("skytape::initial", _initial_fake, lib=library)


@torch._disable_dynamo
def _check_shapes(*call):
    _check(*call)


def _check_traced(name, v, q, k, x, length, settings, sizes, own):
    """What composed operations would take for something else, where sizes may be symbols and the engine
    cannot run. own: names and shapes of the method's own arrays, where they are given."""
    row, wrong = METHODS[name], wrong_options(name, settings, sizes)
    if wrong:
        raise UsageError(wrong)
    for key, tensor, read in (("q", q, True), ("k", k, not row["shared_qk"]), ("x", x, row["reads_x"])):
        if (tensor is not None) != read:
            raise UsageError(f"{name}: {key} is missing" if read else
                             f"{name}: {key} must be None: the method reads none")
        if read and tensor.shape != ((v.shape[0], v.shape[2], tensor.shape[-1]) if key == "x" else v.shape):
            raise UsageError(f"{name}: {key} and v differ in shape: {key} has {tuple(tensor.shape)}, "
                             f"v {tuple(v.shape)}")
    if length and length < v.shape[2]:
        raise UsageError(f"{name}: length is {length}, but v has N = {v.shape[2]}")
    if own is not None:
        expected = _initial_shapes(name, settings, sizes)
        if sorted(own) != sorted(expected.split(";")):
            raise UsageError(f"{name}: parameters: expected {expected or 'none'}, got {';'.join(own)}")


def composed_call(name, v, q, k, x, mask, seed, own, draws, settings):
    """(out, averages), as of the operator, by PyTorch's operations. Draws and moved averages are the
    engine's, where the tensors have numbers that it can read."""
    told = settings_of(settings)
    options = {option["key"]: option["default"] for option in METHODS[name]["options"]} | told.options
    draws, moved = dict(zip(told.draws, draws)), []
    traced, transformed = (torch.compiler.is_compiling() or get_proxy_mode() is not None,
                           torch._C._are_functorch_transforms_active())
    if told.averages and (traced or transformed):
        raise UsageError(f"{name}: under torch.func and torch.compile the composed form moves no averages; "
                         "call .eval()")
    if v.dim() != 4:
        raise UsageError(f"{name}: v: expected [B, H, N, D], got {arrays.what(v)}")
    heads, n, width = v.shape[1:]
    owns = not told.fresh or traits.owns(name, told.options)
    # Without arrays of its own a method is told no N, which may then be a symbol of torch.compile.
    sizes = ",".join([f"{int(size)}" for size in (heads, width, told.length or (n if owns else 1),
                                                  heads * width if x is None else x.shape[-1])])
    # A method with attention_dropout draws that alone, and its composed form does not.
    draws_itself = "attention_dropout" not in options and traits.draws(name, told.options)
    if not traced and not transformed and (draws or told.averages or draws_itself):
        call = call_of(name, v, q, k, x, mask, seed, own, list(draws.values()), settings, False)
        draws = {key: torch.from_dlpack(value) for key, value in call.draws().items()} | draws
        moved = moved_by(call, v, own, settings)
    elif traced:
        shapes = None if told.fresh else [f"{key} {[int(size) for size in tensor.shape]}"
                                          for key, tensor in zip(told.own, own)]
        _check_traced(name, v, q, k, x, told.length, settings, sizes, shapes)
    else:
        _check_shapes(name, told.training, told.length, tuple(told.options.items()),
                      shaped("vqkx", (v, q, k, x)), None if told.fresh else shaped(told.own, own))
    if v.numel() == 0:
        return v * 0, moved
    kind = torch.float32 if v.dtype in (torch.bfloat16, torch.float16) else v.dtype
    q, k, v_, x, *own = (tensor if tensor is None else tensor.to(kind) for tensor in (q, k, v, x, *own))
    own = dict(zip(told.own, own))
    if told.fresh and owns:
        made = torch.ops.skytape.initial(seed, name, settings, sizes)
        own = {shape.partition(" ")[0]: value.to(v_)
               for shape, value in zip(_initial_shapes(name, settings, sizes).split(";"), made)}
    draws = {key: value.to(kind) if value.is_floating_point() else value for key, value in draws.items()}
    mask = torch.ones(v.shape[0], n, dtype=kind, device=v.device) if mask is None else mask.to(kind)
    with torch.autocast("cpu" if v.device.type == "meta" else v.device.type,
                        enabled=False):  # it would take products to half precision
        call = composed.Call(mask, x, own, draws, options, max(told.length, n), told.training)
        out = composed.compose(name, q, k, v_, call)
    for key in draws:
        if (traced or transformed) and key not in call.read:  # elsewhere the engine has refused it
            raise UsageError(f"unknown array of draws '{key}' "
                             f"(known: {', '.join(sorted(call.read)) or 'none'})")
    return out.to(v.dtype), moved
