"""An operator torch.ops.skytape.<name> for each method, with a backward that is an operator too: what
PyTorch knows of a call, in eager mode, in graphs and without numbers.
"""
import functools
import weakref

import torch

from .. import UsageError, _check, _engine, traits, waiting
from ..traits import METHODS
from .settings import settings_of

ONCE = ("skytape: {} has first derivatives of reverse mode alone: its backward is written by hand. "
        "differentiable=True composes it of PyTorch's operations, which have all others")

# A call's arguments, as both operators take them. `own` are the method's parameters and buffers, and
# `settings` is a text of settings.py, with their names. A list may be None, since AOTInductor gives this for
# an empty one.
_TAKEN = ("Tensor v, Tensor? q, Tensor? k, Tensor? x, Tensor? mask, Tensor seed, Tensor[]? own, "
          "Tensor[]? draws, str settings")
library = torch.library.Library("skytape", "DEF")
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


def _plain(tensor):
    """As the engine reads it."""
    tensor = tensor.detach()
    if type(tensor) is not torch.Tensor:
        tensor = tensor.as_subclass(torch.Tensor)
    if tensor.dtype in (torch.bfloat16, torch.float16):
        tensor = tensor.float()
    return tensor.resolve_neg().contiguous()


def call_of(name, v, q, k, x, mask, seed, own, draws, settings, differentiable):
    """The engine's call on these tensors; differentiable: it keeps what its backward reads."""
    told = settings_of(settings)
    named = {"q": q, "k": k, "v": v, "x": x}
    read = {key: _plain(tensor) for key, tensor in named.items() if tensor is not None}
    read |= zip(told.own, map(_plain, own or ()))
    if mask is not None:
        read["mask"] = _plain(mask).to(read["v"].dtype, copy=True)  # it is not among a call's places
    return waiting.attending(read["v"], _Call, name, read, told.options, int(seed) % 2**64, told.training,
                             told.length, told.fresh, dict(zip(told.draws, map(_plain, draws or ()))),
                             differentiable)


def moved_by(call, v, own, settings):
    """The averages as the call moves them, in the type that each has: v's may round small steps away."""
    told = settings_of(settings)
    if not told.averages:
        return []
    moved, given = waiting.attending(v, call.averages), dict(zip(told.own, own))
    return [torch.from_dlpack(moved[key]).to(given[key].dtype) for key in told.averages]


def _forward(name, v, q, k, x, mask, seed, own, draws, settings, keep):
    call = call_of(name, v, q, k, x, mask, seed, own, draws, settings, keep)
    out = torch.from_dlpack(call.out()["out"]).to(v.dtype)
    moved = moved_by(call, v, own, settings)
    if not keep:
        return out, torch.empty(0, dtype=torch.int32), moved
    token = torch.from_dlpack(call.token())
    _kept[token.data_ptr()] = call
    call.places = _places(v, q, k, x, *(own or ()), *(draws or ()), out)
    return out, token, moved


def shaped(names, tensors):
    """(name, shape, dtype) of each tensor, as the engine reads it."""
    return tuple((name, tuple(tensor.shape), "float64" if tensor.dtype == torch.float64 else "float32")
                 for name, tensor in zip(names, tensors) if tensor is not None)


def _forward_fake(name, v, q, k, x, mask, seed, own, draws, settings, keep):
    told = settings_of(settings)
    if v.device.type == "meta":  # elsewhere, what is wrong is told by the call, or when a graph runs
        given, of_own = shaped("vqkx", (v, q, k, x)), shaped(told.own, own or ())
        if all(type(size) is int for _, shape, _ in (*given, *of_own) for size in shape):
            _check(name, told.training, told.length, tuple(told.options.items()), given,
                   None if told.fresh else of_own)
    return (torch.empty(v.shape, dtype=v.dtype, device=v.device), torch.empty(int(keep), dtype=torch.int32),
            [torch.empty_like(own[told.own.index(key)], memory_format=torch.contiguous_format)
             for key in told.averages])


@torch._disable_dynamo
def refuse_untrained(name, settings, wanted, v, x):
    """wanted: of which of `own` the gradient is asked for. A compiled graph, torch.func and torch.vmap tell
    this of no tensor."""
    keys = [key for key, want in zip(settings_of(settings).own, wanted or ()) if want]
    if not keys:
        return
    heads, width = int(v.shape[1]), int(v.shape[3])
    of_x = heads * width if x is None else int(x.shape[-1])
    for key in traits.untrained(name, tuple(settings_of(settings).options.items()),
                                heads, width, of_x).intersection(keys):
        raise UsageError(f"{key}: requires its gradient, but {name} does not train it: detach it")


def _below_autograd(name, keys, *call):
    with torch._C._AutoDispatchBelowAutograd():
        return getattr(torch.ops.skytape, name).default.redispatch(keys, *call)


class _Differentiable(torch.autograd.Function):
    """The operator below autograd, on (name, keys, how many are `own`, settings, keep, v, q, k, x, mask,
    seed, *own, *draws): (out, token, *averages)."""

    @staticmethod
    def forward(ctx, name, keys, count, settings, keep, v, q, k, x, mask, seed, *arrays):
        out, token, moved = _below_autograd(name, keys, v, q, k, x, mask, seed, arrays[:count],
                                            arrays[count:], settings, keep)
        ctx.name, ctx.count, ctx.settings = name, count, settings
        # The output is among what the call keeps: PyTorch must see it where it is changed in place.
        ctx.save_for_backward(v, q, k, x, mask, seed, *arrays, token, out)
        return (out, token, *moved)

    @staticmethod
    def backward(ctx, dout, *_):
        v, q, k, x, mask, seed, *arrays, token, out = ctx.saved_tensors
        own, draws = arrays[:ctx.count], arrays[ctx.count:]
        refuse_untrained(ctx.name, ctx.settings, ctx.needs_input_grad[11:11 + ctx.count], v, x)
        found = iter(getattr(torch.ops.skytape, f"{ctx.name}_backward").default(
            dout, token, v, q, k, x, mask, seed, own, draws, ctx.settings, out))
        dv, dq, dk, dx = (next(found) if tensor is not None else None for tensor in (v, q, k, x))
        return *[None] * 5, dv, dq, dk, dx, None, None, *found, *[None] * len(draws)


def _differentiated(name, keys, v, q, k, x, mask, seed, own, draws, settings, keep):
    """The operator where autograd looks on. register_autograd would do the same, and take longer than a short
    call: it takes lists of any nesting apart, in Python."""
    below, own, draws = keys & torch._C._after_autograd_keyset, own or (), draws or ()
    given = v, q, k, x, mask, seed, *own, *draws
    if torch.is_grad_enabled() and any([tensor is not None and tensor.requires_grad for tensor in given]):
        out, token, *moved = _Differentiable.apply(name, below, len(own), settings, keep, *given)
        return out, token, moved
    return _below_autograd(name, below, v, q, k, x, mask, seed, own, draws, settings, keep)


def _backward(name, dout, token, v, q, k, x, mask, seed, own, draws, settings, out=None):
    """Gradients of v, q, k, x, as far as they are there, and of each of `own` (zeros where nobody wants
    one)."""
    own, draws = own or (), draws or ()
    call = _kept.pop(token.data_ptr(), None) if token.numel() else None
    # Once more where the graph is retained, or what was kept was copied, moved, checkpointed, vectorised, and
    # where PyTorch's cache on disk has a graph of an earlier version, which does not give `out`.
    if call is None or call.places != _places(v, q, k, x, *own, *draws, out):
        call = call_of(name, v, q, k, x, mask, seed, own, draws, settings, True)
    found = waiting.attending(v, call.backward, {"dout": _plain(dout)})
    tensors = {"v": v, "q": q, "k": k, "x": x, **dict(zip(settings_of(settings).own, own))}
    return [torch.from_dlpack(found[key]).to(tensor.dtype) if key in found else torch.zeros_like(tensor)
            for key, tensor in tensors.items() if tensor is not None]


def _backward_fake(name, dout, token, v, q, k, x, mask, seed, own, draws, settings, out=None):
    return [torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
            for tensor in (v, q, k, x, *(own or ())) if tensor is not None]


def _refuse(name):
    def backward(ctx, *_):
        raise RuntimeError(ONCE.format(f"attention by {name}"))
    return backward


def _define(name):
    for operator, arguments, results, run, fake in [
        (name, f"{_TAKEN}, bool keep", "(Tensor, Tensor, Tensor[])", _forward, _forward_fake),
        (f"{name}_backward", f"Tensor dout, Tensor token, {_TAKEN}, Tensor? out=None", "Tensor[]",
         _backward, _backward_fake),
    ]:
        library.define(f"{operator}({arguments}) -> {results}", tags=(torch.Tag.pt2_compliant_tag,))
        for device in ("CPU", "CUDA"):
            library.impl(operator, functools.partial(run, name), device)
        torch.library.register_fake(f"skytape::{operator}", functools.partial(fake, name), lib=library)
    library.impl(name, functools.partial(_differentiated, name), "Autograd", with_keyset=True)
    torch.library.register_autograd(f"skytape::{name}_backward", _refuse(name), lib=library)


for _each in METHODS:
    _define(_each)

# The tensors of the call that wants a seed tell torch.vmap, compiled too, that each entry is a call. The
# device tells checkpoints in a compiled graph whose random numbers they have to draw once more: the CPU's.
library.define("seed(Tensor[] call, SymInt[] batch, *, Device device) -> Tensor",
               tags=(torch.Tag.pt2_compliant_tag, torch.Tag.nondeterministic_seeded))
library.impl("seed", lambda call, batch, *, device: torch.randint(2**63 - 1, (*batch, 1), device=device),
              "CompositeExplicitAutograd")
torch.library.register_fake(
    "skytape::seed",
    lambda call, batch, *, device: torch.empty(*batch, 1, dtype=torch.int64, device=device), lib=library)
