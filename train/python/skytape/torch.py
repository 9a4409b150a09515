"""The attention methods in PyTorch: an operator torch.ops.skytape.<name> for each, with a backward that is
an operator too, the function skytape.torch.attention, and a module Attention.

Notation: B batch, H heads, N tokens, D head width, E model width.
"""
import functools
import weakref

import torch
from torch import nn
from torch._subclasses import FakeTensor
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from . import (UsageError, _engine, _by_name, _check, _flag, _name, _seed, _texts, _whole, arrays, composed,
               traits, waiting)
from .traits import METHODS as _METHODS

_FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_ONCE = ("skytape: {} has first derivatives of reverse mode alone: its backward is written by hand. "
         "differentiable=True composes it of PyTorch's operations, which have all others")
_NO_GRADIENT_OF_DRAWS = "draws: {}: requires its gradient, which differentiable=True alone has: detach it"

# ---- the operators ---------------------------------------------------------------------------------
# A call's arguments, as both operators take them. `own` are the method's parameters and buffers, and
# `settings` is what _settings() writes: their names among others. A list may be None, since AOTInductor gives
# this for an empty one.
_TAKEN = ("Tensor v, Tensor? q, Tensor? k, Tensor? x, Tensor? mask, Tensor seed, Tensor[]? own, "
          "Tensor[]? draws, str settings")
_library = torch.library.Library("skytape", "DEF")
# The tensors that backward reads are attached to a small tensor, the call's token: PyTorch keeps it
# for backward, and drops it.
_kept = weakref.WeakValueDictionary()  # address of a living call's token: the call


class _Call(_engine.Call):
    # Where the arrays that backward reads lie: the call borrows their memory, and that of its output. A
    # compiler that knows only what the operators are given may write other numbers there, and give backward
    # a copy. What backward is given has the right numbers. Where it lies at the same address in the same
    # order, it is what the call reads, so that the call reads the right numbers, too.
    places = ()


def _places(*tensors):
    return [(tensor.data_ptr(), tensor.stride()) for tensor in tensors if tensor is not None]


def _settings(training, length, own, averages, draws, options):
    """As one text, which a compiled graph takes for a constant. own: the arrays' names; None: fresh from the
    seed."""
    return "\n".join(["1" if training else "0", f"{int(length)}", "fresh" if own is None else "",
                      ",".join(own or ()), ",".join(averages), ",".join(draws),
                      ";".join([f"{key}={value}" for key, value in options.items()])])


def _read(settings):
    # torch.compile warns of a cached function, and reads the text once for each graph.
    return _parts(settings) if torch.compiler.is_compiling() else _cached_parts(settings)


def _parts(settings):
    training, length, fresh, *names, options = settings.split("\n")
    own, averages, draws = (part.split(",") if part else [] for part in names)
    pairs = (pair.partition("=") for pair in options.split(";") if pair)
    return (training == "1", int(length), fresh == "fresh", own, averages, draws,
            {key: value for key, _, value in pairs})


_cached_parts = functools.lru_cache(1024)(_parts)


def _plain(tensor):
    """As the engine reads it."""
    tensor = tensor.detach()
    if type(tensor) is not torch.Tensor:
        tensor = tensor.as_subclass(torch.Tensor)
    if tensor.dtype in (torch.bfloat16, torch.float16):
        tensor = tensor.float()
    return tensor.resolve_neg().contiguous()


def _call(name, v, q, k, x, mask, seed, own, draws, settings, differentiable):
    training, length, fresh, own_names, _, draw_names, options = _read(settings)
    named = {"q": q, "k": k, "v": v, "x": x}
    read = {key: _plain(tensor) for key, tensor in named.items() if tensor is not None}
    read |= zip(own_names, map(_plain, own or ()))
    if mask is not None:
        read["mask"] = _plain(mask).to(read["v"].dtype, copy=True)  # it is not among a call's places
    return waiting.attending(read["v"], _Call, name, read, options, int(seed) % 2**64, training, length,
                             fresh, dict(zip(draw_names, map(_plain, draws or ()))), differentiable)


def _forward(name, v, q, k, x, mask, seed, own, draws, settings, keep):
    call = _call(name, v, q, k, x, mask, seed, own, draws, settings, keep)
    out = torch.from_dlpack(call.out()["out"]).to(v.dtype)
    averages = _read(settings)[4]
    moved = waiting.attending(v, call.averages) if averages else {}
    moved = [torch.from_dlpack(moved[key]).to(v.dtype) for key in averages]
    if not keep:
        return out, torch.empty(0, dtype=torch.int32), moved
    token = torch.from_dlpack(call.token())
    _kept[token.data_ptr()] = call
    call.places = _places(v, q, k, x, *(own or ()), *(draws or ()), out)
    return out, token, moved


def _shaped(names, tensors):
    """(name, shape, dtype) of each tensor, as the engine reads it."""
    return tuple((name, tuple(tensor.shape), "float64" if tensor.dtype == torch.float64 else "float32")
                 for name, tensor in zip(names, tensors) if tensor is not None)


def _forward_fake(name, v, q, k, x, mask, seed, own, draws, settings, keep):
    training, length, fresh, names, averages, _, options = _read(settings)
    if v.device.type == "meta":  # elsewhere, what is wrong is told by the call, or when a graph runs
        given, shaped = _shaped("vqkx", (v, q, k, x)), _shaped(names, own or ())
        if all(type(size) is int for _, shape, _ in (*given, *shaped) for size in shape):
            _check(name, training, length, tuple(options.items()), given, None if fresh else shaped)
    return (torch.empty(v.shape, dtype=v.dtype, device=v.device), torch.empty(int(keep), dtype=torch.int32),
            [torch.empty(own[names.index(key)].shape, dtype=v.dtype, device=v.device) for key in averages])


def _setup(ctx, inputs, output):
    *tensors, own, draws, ctx.settings, _ = inputs
    out, token, _ = output
    ctx.own, ctx.draws = (None if arrays is None else len(arrays) for arrays in (own, draws))
    # The output is among what the call keeps: PyTorch must see it where it is changed in place.
    ctx.save_for_backward(*tensors, *(own or ()), *(draws or ()), token, out)


@torch._disable_dynamo
def _refuse_untrained(name, settings, wanted, v, x):
    """wanted: of which of `own` the gradient is asked for. A compiled graph, torch.func and torch.vmap tell
    this of no tensor."""
    keys = [key for key, want in zip(_read(settings)[3], wanted or ()) if want]
    if not keys:
        return
    heads, width = int(v.shape[1]), int(v.shape[3])
    of_x = heads * width if x is None else int(x.shape[-1])
    for key in traits.untrained(name, tuple(_read(settings)[6].items()),
                                heads, width, of_x).intersection(keys):
        raise UsageError(f"{key}: requires its gradient, but {name} does not train it: detach it")


def _backward_of(name):
    operator = getattr(torch.ops.skytape, f"{name}_backward").default

    def backward(ctx, dout, *_):
        v, q, k, x, mask, seed, *arrays, token, out = ctx.saved_tensors
        own = None if ctx.own is None else arrays[:ctx.own]
        draws = None if ctx.draws is None else arrays[len(arrays) - ctx.draws:]
        _refuse_untrained(name, ctx.settings, ctx.needs_input_grad[6], v, x)
        found = operator(dout, token, v, q, k, x, mask, seed, own, draws, ctx.settings, out)
        given = iter(found)
        dv, dq, dk, dx = (next(given) if tensor is not None else None for tensor in (v, q, k, x))
        return dv, dq, dk, dx, None, None, own and list(given), draws and [None] * len(draws), None, None
    return backward


def _backward(name, dout, token, v, q, k, x, mask, seed, own, draws, settings, out=None):
    """Gradients of v, q, k, x, as far as they are there, and of each of `own` (zeros where nobody wants
    one)."""
    own, draws = own or (), draws or ()
    call = _kept.pop(token.data_ptr(), None) if token.numel() else None
    # Once more where the graph is retained, or what was kept was copied, moved, checkpointed, vectorised, and
    # where PyTorch's cache on disk has a graph of an earlier version, which does not give `out`.
    if call is None or call.places != _places(v, q, k, x, *own, *draws, out):
        call = _call(name, v, q, k, x, mask, seed, own, draws, settings, True)
    found = waiting.attending(v, call.backward, {"dout": _plain(dout)})
    tensors = {"v": v, "q": q, "k": k, "x": x, **dict(zip(_read(settings)[3], own))}
    return [torch.from_dlpack(found[key]).to(tensor.dtype) if key in found else torch.zeros_like(tensor)
            for key, tensor in tensors.items() if tensor is not None]


def _backward_fake(name, dout, token, v, q, k, x, mask, seed, own, draws, settings, out=None):
    return [torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
            for tensor in (v, q, k, x, *(own or ())) if tensor is not None]


def _refuse(name):
    def backward(ctx, *_):
        raise RuntimeError(_ONCE.format(f"attention by {name}"))
    return backward


# torch.vmap: the axis is folded into the batch where that changes nothing. Where arrays are of the method's
# own, whose gradients are sums over the batch, or draws are given, or a training call draws (by the places
# in the batch) or lets its examples enter each other's results, and where backward alone has the axis (its
# draws go by the places that forward had), each entry is a call.


def _apart(name, settings, v, dim):
    """True where an example's result hangs neither on the others of its batch nor on its place."""
    training, length, _, _, _, _, options = _read(settings)
    if not training:
        return True
    _, heads, n, width = [size for axis, size in enumerate(v.shape) if axis != dim]
    if traits.draws(name, options):
        return False
    return (_METHODS[name]["per_example"]
            and not _engine.initial(name, options, heads, width, length or n, heads * width, 0)[1])


def _front(tensor, dim, size):
    """The axis in front, and as long as the others', of a tensor that may not have it."""
    if tensor is None:
        return None
    return tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


def _map(name, size, dims, arguments, settings, call):
    """call(arguments) for all entries: its tensors with the axis in front. dims, arguments: of dout (None in
    forward), v, q, k, x, mask, seed, own, draws."""
    *tensors, own, draws = arguments
    *of_tensors, of_own, of_draws = dims
    own, draws, of_own, of_draws = own or (), draws or (), of_own or (), of_draws or ()
    if size == 0:  # one entry tells the shapes
        def one(tensor, dim):
            return tensor if dim is None else tensor.new_zeros(
                [1 if axis == dim else each for axis, each in enumerate(tensor.shape)])
        entry = (*map(one, tensors, of_tensors), list(map(one, own, of_own)), list(map(one, draws, of_draws)))
        return [tensor[:0] for tensor in _map(name, 1, dims, entry, settings, call)]
    if (not own and not draws and of_tensors[6] is None and any(dim is not None for dim in of_tensors[1:])
            and _apart(name, settings, arguments[1], of_tensors[1])):
        fronts = [_front(tensor, dim, size) for tensor, dim in zip(tensors[:6], of_tensors)]
        found = call(*(front if front is None else front.flatten(0, 1) for front in fronts),
                     tensors[6], own, draws)
        return [tensor.unflatten(0, (size, tensor.shape[0] // size)) for tensor in found]
    fronts = [_front(tensor, dim, size)
              for tensor, dim in zip((*tensors, *own, *draws), (*of_tensors, *of_own, *of_draws))]
    found = []
    for i in range(size):
        entry = [front if front is None else front[i] for front in fronts]
        count = len(tensors)
        found.append(call(*entry[:count], entry[count:count + len(own)], entry[count + len(own):]))
    return [torch.stack(each) for each in zip(*found)]


def _forward_mapped(name):
    operator = getattr(torch.ops.skytape, name).default

    def mapped(info, dims, v, q, k, x, mask, seed, own, draws, settings, keep):
        def call(_, v, q, k, x, mask, seed, own, draws):
            out, _, moved = operator(v, q, k, x, mask, seed, own, draws, settings, False)
            return [out, *moved]
        out, *moved = _map(name, info.batch_size, (None, *dims[:8]),
                           (None, v, q, k, x, mask, seed, own, draws), settings, call)
        return (out, torch.empty(int(keep), dtype=torch.int32), moved), (0, None, [0] * len(moved))
    return mapped


def _backward_mapped(name):
    operator = getattr(torch.ops.skytape, f"{name}_backward").default

    def mapped(info, dims, dout, token, v, q, k, x, mask, seed, own, draws, settings, out=None):
        nothing = torch.empty(0, dtype=torch.int32)

        def call(dout, v, q, k, x, mask, seed, own, draws):
            return operator(dout, nothing, v, q, k, x, mask, seed, own, draws, settings)
        found = _map(name, info.batch_size, (dims[0], *dims[2:10]),
                     (dout, v, q, k, x, mask, seed, own, draws), settings, call)
        return found, [0] * len(found)
    return mapped


def _define(name):
    forward, backward = f"skytape::{name}", f"skytape::{name}_backward"
    for operator, arguments, results, run, fake in [
        (name, f"{_TAKEN}, bool keep", "(Tensor, Tensor, Tensor[])", _forward, _forward_fake),
        (f"{name}_backward", f"Tensor dout, Tensor token, {_TAKEN}, Tensor? out=None", "Tensor[]",
         _backward, _backward_fake),
    ]:
        _library.define(f"{operator}({arguments}) -> {results}", tags=(torch.Tag.pt2_compliant_tag,))
        for device in ("CPU", "CUDA"):
            _library.impl(operator, functools.partial(run, name), device)
        torch.library.register_fake(f"skytape::{operator}", functools.partial(fake, name), lib=_library)
    torch.library.register_autograd(forward, _backward_of(name), setup_context=_setup, lib=_library)
    torch.library.register_autograd(backward, _refuse(name), lib=_library)
    torch.library.register_vmap(forward, _forward_mapped(name), lib=_library)
    torch.library.register_vmap(backward, _backward_mapped(name), lib=_library)


for _each in _METHODS:
    _define(_each)


def _seed_mapped(info, dims, call, batch, *, device):
    if info.randomness == "error":
        raise RuntimeError("vmap: a training call draws random numbers; "
                           "expected randomness='same' or 'different'")
    if info.randomness == "same":
        return torch.ops.skytape.seed([], batch, device=device), None
    with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.FuncTorchVmapMode)):
        return torch.ops.skytape.seed([], [info.batch_size, *batch], device=device), 0


# The tensors of the call that wants a seed tell torch.vmap, compiled too, that each entry is a call. The
# device tells checkpoints in a compiled graph whose random numbers they have to draw once more: the CPU's.
_library.define("seed(Tensor[] call, SymInt[] batch, *, Device device) -> Tensor",
                tags=(torch.Tag.pt2_compliant_tag, torch.Tag.nondeterministic_seeded))
_library.impl("seed", lambda call, batch, *, device: torch.randint(2**63 - 1, (*batch, 1), device=device),
              "CompositeExplicitAutograd")
torch.library.register_fake(
    "skytape::seed",
    lambda call, batch, *, device: torch.empty(*batch, 1, dtype=torch.int64, device=device), lib=_library)
torch.library.register_vmap("skytape::seed", _seed_mapped, lib=_library)


# Under torch.func PyTorch asks for a function instead: it does not differentiate operators there.


class _Forward(torch.autograd.Function):
    """The operator on (name, settings, how many are `own`, v, q, k, x, mask, seed, *own, *draws):
    (out, *averages)."""

    @staticmethod
    def forward(name, settings, count, v, q, k, x, mask, seed, *rest):
        operator = getattr(torch.ops.skytape, name).default
        out, _, moved = operator(v, q, k, x, mask, seed, rest[:count], rest[count:], settings, False)
        return (out, *moved)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.settings = inputs[:3]
        ctx.save_for_backward(*inputs[3:])

    @staticmethod
    def backward(ctx, dout, *_):
        tensors, (name, settings, count) = ctx.saved_tensors, ctx.settings
        wanted = ctx.needs_input_grad[9:]
        _refuse_untrained(name, settings, wanted[:count], tensors[0], tensors[3])
        for key, want in zip(_read(settings)[5], wanted[count:]):
            if want:  # under torch.vmap a tensor in _apply does not say so
                raise UsageError(_NO_GRADIENT_OF_DRAWS.format(key))
        found = iter(_Backward.apply(*ctx.settings, dout, *tensors))
        dv, dq, dk, dx = (next(found) if tensor is not None else None for tensor in tensors[:4])
        return None, None, None, dv, dq, dk, dx, None, None, *found, *[None] * (len(tensors) - 6 - count)

    @staticmethod
    def jvp(ctx, *_):
        raise NotImplementedError(_ONCE.format(f"attention by {ctx.settings[0]}"))

    @staticmethod
    def vmap(info, dims, name, settings, count, v, q, k, x, mask, seed, *rest):
        def call(_, v, q, k, x, mask, seed, own, draws):
            return _Forward.apply(name, settings, count, v, q, k, x, mask, seed, *own, *draws)
        found = _map(name, info.batch_size, (None, *dims[3:9], dims[9:9 + count], dims[9 + count:]),
                     (None, v, q, k, x, mask, seed, rest[:count], rest[count:]), settings, call)
        return tuple(found), (0,) * len(found)


class _Backward(torch.autograd.Function):
    """The operator's backward, on the same arguments behind dout."""

    @staticmethod
    def forward(name, settings, count, dout, v, q, k, x, mask, seed, *rest):
        operator = getattr(torch.ops.skytape, f"{name}_backward").default
        return tuple(operator(dout, torch.empty(0, dtype=torch.int32), v, q, k, x, mask, seed,
                              rest[:count], rest[count:], settings))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.name = inputs[0]

    @staticmethod
    def backward(ctx, *_):
        raise RuntimeError(_ONCE.format(f"attention by {ctx.name}"))

    @staticmethod
    def jvp(ctx, *_):
        raise NotImplementedError(_ONCE.format(f"attention by {ctx.name}"))

    @staticmethod
    def vmap(info, dims, name, settings, count, dout, v, q, k, x, mask, seed, *rest):
        def call(dout, v, q, k, x, mask, seed, own, draws):
            return _Backward.apply(name, settings, count, dout, v, q, k, x, mask, seed, *own, *draws)
        found = _map(name, info.batch_size, (*dims[3:10], dims[10:10 + count], dims[10 + count:]),
                     (dout, v, q, k, x, mask, seed, rest[:count], rest[count:]), settings, call)
        return tuple(found), (0,) * len(found)


# ---- what users call -------------------------------------------------------------------------------


def attention(name: str, q: torch.Tensor | None, k: torch.Tensor | None, v: torch.Tensor,
              mask: torch.Tensor | None = None, seed: int | torch.Tensor | None = None,
              training: bool = False, *, x: torch.Tensor | None = None, length: int = 0,
              parameters: dict[str, torch.Tensor] | None = None,
              draws: dict[str, torch.Tensor] | None = None, differentiable: bool = False,
              **options: float | str) -> torch.Tensor:
    """As skytape.attention, on tensors that may require gradients, under torch.compile, torch.func and
    torch.autocast too.

    seed            an int, or a tensor of one int64. None: in training from PyTorch's random numbers, else 0
    differentiable  True: the method composed of PyTorch's operations, with second derivatives and forward
                    mode. It is slow, may take N x N memory, and drops no attention weights
    """
    training, differentiable = _flag("training", training), _flag("differentiable", differentiable)
    _by_name("parameters", parameters)
    draws = _by_name("draws", draws)
    for key, tensor in draws.items():
        if not isinstance(tensor, torch.Tensor):
            raise UsageError(f"draws: {key}: expected a torch.Tensor, got {_what(tensor)}")
    if seed is None:
        seed = (_fresh_seed(_name(name), _texts(options), parameters is None, q, k, v, x, mask)
                if training else 0)
    if mask is not None:
        _check_mask("mask", mask, v)
    return _apply(name, v, q, k, x, mask, seed, training, _whole("length", length), parameters, (), draws,
                  _texts(options), differentiable)[0]


def _apply(name, v, q, k, x, mask, seed, training, length, own, averages, draws, options, differentiable):
    """The output, and the running averages as this call moves them."""
    if _name(name) not in _METHODS:
        raise UsageError(_wrong_options(  # names those that there are
            name, _settings(False, 0, None, (), (), {}), "1,1,1,1"))
    given = own or {}
    for key, tensor in {"q": q, "k": k, "v": v, "x": x, **given}.items():
        if tensor is None and key not in given:
            continue
        if not isinstance(tensor, torch.Tensor):
            raise UsageError(f"{key}: expected a torch.Tensor, got {_what(tensor)}")
        arrays.dense(tensor, key)
        if tensor.dtype not in _FLOATS:
            raise UsageError(f"{key}: expected float32, float64, bfloat16 or float16, "
                             f"got {arrays.what(tensor)}")
        if (not differentiable and forward_ad._current_level >= 0
                and forward_ad.unpack_dual(tensor).tangent is not None):
            raise NotImplementedError(_ONCE.format(f"attention by {name}"))
    if v is None:
        raise UsageError(f"{name}: v is missing")
    kind = None
    if v.device.type != "meta" and torch.is_autocast_enabled(v.device.type):
        kind = torch.get_autocast_dtype(v.device.type)
        q, k, v, x = (tensor if tensor is None or tensor.dtype == torch.float64 else tensor.to(kind)
                      for tensor in (q, k, v, x))
    for key, tensor in (("q", q), ("k", k), ("x", x), *given.items()):
        if tensor is not None and tensor.dtype != v.dtype and (kind is None or key in ("q", "k", "x")):
            raise UsageError(f"{key} and v differ in dtype: {key} is {tensor.dtype}, v is {v.dtype}")
    for key, tensor in (("q", q), ("k", k), ("x", x), ("mask", mask), *given.items(), *draws.items()):
        if tensor is not None and tensor.device != v.device:
            raise UsageError(f"{key} and v differ in device: {key} is on {tensor.device}, v on {v.device}")
    if isinstance(seed, torch.Tensor):
        if seed.device.type not in ("cpu", v.device.type):
            raise UsageError(f"seed and v differ in device: seed is on {seed.device}, v on {v.device}")
        if (seed.numel() != 1 or seed.dtype.is_floating_point or seed.dtype.is_complex
                or seed.dtype == torch.bool):
            raise UsageError(f"seed: expected one whole number, got {arrays.what(seed)}")
    for key, tensor in draws.items():
        if tensor.requires_grad and not differentiable:
            raise UsageError(_NO_GRADIENT_OF_DRAWS.format(key))
    tensors = [tensor for tensor in (q, k, v, x, *given.values()) if tensor is not None]
    # A traced graph keeps nothing for backward, which calls once more: it serves training and evaluation.
    keep = (torch.is_grad_enabled() and any([tensor.requires_grad for tensor in tensors])
            and not torch.jit.is_tracing())
    if not isinstance(seed, torch.Tensor):
        seed = _seed(seed)
        seed = torch.full((1,), seed if seed < 2**63 else seed - 2**64, dtype=torch.int64, device="cpu")
    settings = _settings(training, length, None if own is None else list(own), averages, list(draws), options)
    own, draws = list(given.values()), list(draws.values())
    if differentiable:
        return _composed(name, v, q, k, x, mask, seed, own, draws, settings)
    if not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active():
        out, *moved = _Forward.apply(name, settings, len(own), v, q, k, x, mask, seed, *own, *draws)
    else:
        out, _, moved = getattr(torch.ops.skytape, name).default(
            v, q, k, x, mask, seed, own or None, draws or None, settings, keep)
    return out, moved


# A method's own arrays from a seed. torch.compile traces no function of the engine: their names are a
# constant to it, and an operator makes them.


def _constant(function):
    """torch.compiler.assume_constant_result, which would import torch.compile."""
    function._dynamo_marked_constant = True
    return function


def _initial(seed, name, settings, sizes):
    return _engine.initial(name, _read(settings)[6], *map(int, sizes.split(",")), int(seed) % 2**64)[0]


@_constant
def _initial_shapes(name, settings, sizes):
    """Each name and shape, as "E [3, 64]"."""
    return ";".join([f"{key} {list(value.shape)}" for key, value, _ in _initial(0, name, settings, sizes)])


@_constant
def _wrong_options(name, settings, sizes):
    """The text of the error that they are elsewhere, or none: an error here would be one of torch.compile."""
    try:
        _initial(0, name, settings, sizes)
    except UsageError as error:
        return str(error)
    return ""


_library.define("initial(Tensor seed, str name, str settings, str sizes) -> Tensor[]",
                tags=(torch.Tag.pt2_compliant_tag,))
_library.impl("initial", lambda *call: [torch.from_numpy(value) for _, value, _ in _initial(*call)],
              "CompositeExplicitAutograd")
def _initial_fake(seed, *call):
    return [torch.empty(value.shape, dtype=torch.float64, device="cpu") for _, value, _ in _initial(0, *call)]


torch.library.register_fake("skytape::initial", _initial_fake, lib=_library)


@torch._disable_dynamo
def _check_composed(*call):
    _check(*call)


def _check_traced(name, v, q, k, x, length, settings, sizes, own):
    """What composed operations would take for something else, where sizes may be symbols and the engine
    cannot run. own: names and shapes of the method's own arrays, where they are given."""
    row, wrong = _METHODS[name], _wrong_options(name, settings, sizes)
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


def _composed(name, v, q, k, x, mask, seed, own, draws, settings):
    """As _apply's operator, by PyTorch's operations. Draws and moved averages are the engine's, where the
    tensors have numbers that it can read."""
    training, length, fresh, own_names, averages, draw_names, options = _read(settings)
    every = {option["key"]: option["default"] for option in _METHODS[name]["options"]} | options
    draws, moved = dict(zip(draw_names, draws)), []
    traced, transformed = (torch.compiler.is_compiling() or get_proxy_mode() is not None,
                           torch._C._are_functorch_transforms_active())
    if averages and (traced or transformed):
        raise UsageError(f"{name}: under torch.func and torch.compile the composed form moves no averages; "
                         "call .eval()")
    if v.dim() != 4:
        raise UsageError(f"{name}: v: expected [B, H, N, D], got {arrays.what(v)}")
    heads, n, width = v.shape[1:]
    owns = not fresh or traits.owns(name, options)
    # Without arrays of its own a method is told no N, which may then be a symbol of torch.compile.
    sizes = ",".join([f"{int(size)}" for size in (heads, width, length or (n if owns else 1),
                                                  heads * width if x is None else x.shape[-1])])
    # A method with attention_dropout draws that alone, and its composed form does not.
    if not traced and not transformed and (
            draws or averages or "attention_dropout" not in every and traits.draws(name, options)):
        call = _call(name, v, q, k, x, mask, seed, own, list(draws.values()), settings, False)
        draws = {key: torch.from_dlpack(value) for key, value in call.draws().items()} | draws
        found = call.averages() if averages else {}
        moved = [torch.from_dlpack(found[key]).to(v.dtype) for key in averages]
    elif traced:
        shapes = None if fresh else [f"{key} {[int(size) for size in tensor.shape]}"
                                     for key, tensor in zip(own_names, own)]
        _check_traced(name, v, q, k, x, length, settings, sizes, shapes)
    else:
        _check_composed(name, training, length, tuple(options.items()), _shaped("vqkx", (v, q, k, x)),
                        None if fresh else _shaped(own_names, own))
    if v.numel() == 0:
        return v * 0, moved
    kind = torch.float32 if v.dtype in (torch.bfloat16, torch.float16) else v.dtype
    q, k, v_, x, *own = (tensor if tensor is None else tensor.to(kind) for tensor in (q, k, v, x, *own))
    own = dict(zip(own_names, own))
    if fresh and owns:
        made = torch.ops.skytape.initial(seed, name, settings, sizes)
        own = {shape.partition(" ")[0]: value.to(v_)
               for shape, value in zip(_initial_shapes(name, settings, sizes).split(";"), made)}
    draws = {key: value.to(kind) if value.is_floating_point() else value for key, value in draws.items()}
    mask = torch.ones(v.shape[0], n, dtype=kind, device=v.device) if mask is None else mask.to(kind)
    with torch.autocast("cpu" if v.device.type == "meta" else v.device.type,
                        enabled=False):  # it would take products to half precision
        call = composed.Call(mask, x, own, draws, every, max(length, n), training)
        out = composed.compose(name, q, k, v_, call)
    for key in draws:
        if (traced or transformed) and key not in call.read:  # elsewhere the engine has refused it
            raise UsageError(f"unknown array of draws '{key}' "
                             f"(known: {', '.join(sorted(call.read)) or 'none'})")
    return out.to(v.dtype), moved


def _what(value):
    """Describes an argument for messages, and of an array of another library the kind."""
    kind = ("" if isinstance(value, torch.Tensor) or not hasattr(value, "dtype") else
            f" in a {type(value).__name__}")
    return arrays.what(value) + kind


def _check_mask(argument, mask, x):
    """x: [B, ..., N, D]."""
    if not isinstance(mask, torch.Tensor) or mask.dtype != torch.bool:
        # Who converts another kind must know that one argument is the other's opposite.
        meaning = "true at padding" if argument == "key_padding_mask" else arrays.MASK
        raise UsageError(f"{argument}: expected a tensor of bool [B, N], {meaning}, got {_what(mask)}")
    arrays.dense(mask, argument)
    if (isinstance(x, torch.Tensor) and x.dim() > 2
            and (mask.dim() != 2 or mask.shape[0] != x.shape[0] or mask.shape[1] != x.shape[-2])):
        raise UsageError(f"{argument}: expected [B, N] = [{x.shape[0]}, {x.shape[-2]}], "
                         f"got {arrays.what(mask)}")


def _fresh_seed(name, options, fresh, *tensors):
    """From PyTorch's random numbers; under torch.vmap as its `randomness` says, where the method draws."""
    if name in _METHODS and not traits.draws(name, options, fresh):
        return 0
    return torch.ops.skytape.seed([tensor.detach() for tensor in tensors if isinstance(tensor, torch.Tensor)],
                                  [], device="cpu")


class Attention(nn.Module):
    """Multi-head self-attention by any method: projections, the method, output projection; batch first.

    Unlike nn.MultiheadAttention: x [B, N, E] -> [B, N, E], and key_padding_mask [B, N] is true at
    padding. A method's own parameters and buffers are this module's; where it has some, `length` says
    the longest N. They start from PyTorch's random numbers, as all parameters do. Some methods choose
    blocks, clusters or weights of positions by `length`: like `heads` it is a setting of the layer, which
    a state dict does not hold. Draws come from PyTorch's random numbers in training; in evaluation from the
    buffer `seed`, so that equal inputs have equal outputs, whatever the rest of the batch is. No weights
    are dropped unless `attention_dropout` says so. `differentiable` is that of attention().
    """

    def __init__(self, name: str, dim: int, heads: int, length: int | None = None, bias: bool = True,
                 seed: int | None = None, device: torch.device | str | int | None = None,
                 dtype: torch.dtype | None = None, differentiable: bool = False,
                 **options: float | str) -> None:
        super().__init__()
        dim, heads, bias = _whole("dim", dim, 1), _whole("heads", heads, 1), _flag("bias", bias)
        if dim % heads != 0:
            raise UsageError(f"Attention: dim {dim} is no multiple of heads {heads}")
        options = _texts(options)
        length = length if length is None else _whole("length", length, 1)
        own, _ = _engine.initial(_name(name), options, heads, dim // heads, length or 1024, dim, 0)
        if own and length is None:
            raise UsageError(f"Attention: {name} has its own parameters; say length=, the longest N")
        row = _METHODS[name]
        if any(option["key"] == "attention_dropout" for option in row["options"]):
            options = {"attention_dropout": "0", **options}
        self.name, self.dim, self.heads, self.length, self.options = name, dim, heads, length, options
        self.reads_x, self.reads_padding, self.differentiable = (
            row["reads_x"], row["reads_padding"], _flag("differentiable", differentiable))
        kind = {"device": device, "dtype": dtype}
        self.q_proj, self.v_proj, self.out_proj = (nn.Linear(dim, dim, bias, **kind) for _ in range(3))
        self.k_proj = None if row["shared_qk"] else nn.Linear(dim, dim, bias, **kind)
        self.own = {key: key.replace(".", "_") for key, _, _ in own}  # a method's name of each: ours
        self.averages = [key for key, _, what in own if what == "average"]
        for key, value, what in own:
            value = torch.empty(value.shape, **kind)
            if what == "trained":
                self.register_parameter(self.own[key], nn.Parameter(value))
            else:
                self.register_buffer(self.own[key], value)
        self.register_buffer("seed", torch.empty(1, dtype=torch.int64, device=device))
        self._draw(seed)

    def reset_parameters(self) -> None:
        """Draws all parameters, the method's own and the seed anew."""
        for linear in (self.q_proj, self.k_proj, self.v_proj, self.out_proj):
            if linear is not None:
                linear.reset_parameters()
        self._draw(None)

    @torch.no_grad()
    def _draw(self, seed):
        if isinstance(self.seed, FakeTensor):
            return  # as nn.Linear's, its numbers are not there
        seed = int(torch.randint(2**62, (), device="cpu")) if seed is None else _seed(seed)
        self.seed.fill_(seed if seed < 2**63 else seed - 2**64)
        own, _ = _engine.initial(self.name, self.options, self.heads, self.dim // self.heads,
                                 self.length or 1024, self.dim, seed)
        for key, value, _ in own:
            getattr(self, self.own[key]).copy_(torch.from_numpy(value))

    def extra_repr(self) -> str:
        """The arguments that made the layer."""
        more = "".join(f", {key}={value}" for key, value in self.options.items())
        more += ", differentiable=True" if self.differentiable else ""
        return f"{self.name!r}, dim={self.dim}, heads={self.heads}, length={self.length}{more}"

    def forward(self, x: torch.Tensor, key_padding_mask: torch.Tensor | None = None) -> torch.Tensor:
        """The output [B, N, E] for x [B, N, E]; key_padding_mask: bool [B, N], true at padding."""
        if not isinstance(x, torch.Tensor) or x.dim() != 3 or x.shape[2] != self.dim:
            raise UsageError(f"Attention: x: expected a tensor [B, N, {self.dim}], got {_what(x)}")
        if key_padding_mask is not None:
            _check_mask("key_padding_mask", key_padding_mask, x)
            if f"{self.name}_mask" in _METHODS:
                raise UsageError(f"key_padding_mask: {self.name} reads padding; "
                                 f"cut the batch, or take {self.name}_mask")
        q, k, v = (projection and projection(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
                   for projection in (self.q_proj, self.k_proj, self.v_proj))  # [B, H, N, D]
        if self.reads_padding and key_padding_mask is not None:  # then it reads zeros there
            k = k.masked_fill(key_padding_mask[:, None, :, None], 0)
        own, averages = ({key: getattr(self, ours) for key, ours in self.own.items()},
                         self.averages if self.training else [])
        own.update({key: own[key].clone() for key in averages})  # backward reads what forward read
        out, moved = _apply(  # [B, H, N, D]
            self.name, v, q, k, x if self.reads_x else None,
            None if key_padding_mask is None else ~key_padding_mask,
            _fresh_seed(self.name, self.options, False, x, key_padding_mask) if self.training else self.seed,
            self.training, self.length or 0, own or None, averages, {}, self.options, self.differentiable)
        for key, value in zip(averages, moved):
            getattr(self, self.own[key]).copy_(value.detach())
        return self.out_proj(out.transpose(1, 2).flatten(2))
