"""The operators under torch.vmap and torch.func."""
import torch

from .. import UsageError, _engine, traits
from ..traits import METHODS
from .operators import ONCE, library, refuse_untrained
from .settings import settings_of

NO_GRADIENT_OF_DRAWS = "draws: {}: requires its gradient, which differentiable=True alone has: detach it"

# torch.vmap: the axis is folded into the batch where that changes nothing. Where arrays are of the method's
# own, whose gradients are sums over the batch, or draws are given, or a training call draws (by the places
# in the batch) or lets its examples enter each other's results, and where backward alone has the axis (its
# draws go by the places that forward had), each entry is a call.


def _apart(name, settings, v, dim):
    """True where an example's result hangs neither on the others of its batch nor on its place."""
    told = settings_of(settings)
    if not told.training:
        return True
    _, heads, n, width = [size for axis, size in enumerate(v.shape) if axis != dim]
    if traits.draws(name, told.options):
        return False
    return (METHODS[name]["per_example"] and not _engine.initial(
        name, told.options, heads, width, told.length or n, heads * width, 0)[1])


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


def _seed_mapped(info, dims, call, batch, *, device):
    if info.randomness == "error":
        raise RuntimeError("vmap: a training call draws random numbers; "
                           "expected randomness='same' or 'different'")
    if info.randomness == "same":
        return torch.ops.skytape.seed([], batch, device=device), None
    with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.FuncTorchVmapMode)):
        return torch.ops.skytape.seed([], [info.batch_size, *batch], device=device), 0


for _each in METHODS:
    torch.library.register_vmap(f"skytape::{_each}", _forward_mapped(_each), lib=library)
    torch.library.register_vmap(f"skytape::{_each}_backward", _backward_mapped(_each), lib=library)
torch.library.register_vmap("skytape::seed", _seed_mapped, lib=library)

# Under torch.func PyTorch asks for a function instead: it does not differentiate operators there.


class Forward(torch.autograd.Function):
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
        refuse_untrained(name, settings, wanted[:count], tensors[0], tensors[3])
        for key, want in zip(settings_of(settings).draws, wanted[count:]):
            if want:  # under torch.vmap a tensor in _apply does not say so
                raise UsageError(NO_GRADIENT_OF_DRAWS.format(key))
        found = iter(Backward.apply(*ctx.settings, dout, *tensors))
        dv, dq, dk, dx = (next(found) if tensor is not None else None for tensor in tensors[:4])
        return None, None, None, dv, dq, dk, dx, None, None, *found, *[None] * (len(tensors) - 6 - count)

    @staticmethod
    def jvp(ctx, *_):
        raise NotImplementedError(ONCE.format(f"attention by {ctx.settings[0]}"))

    @staticmethod
    def vmap(info, dims, name, settings, count, v, q, k, x, mask, seed, *rest):
        def call(_, v, q, k, x, mask, seed, own, draws):
            return Forward.apply(name, settings, count, v, q, k, x, mask, seed, *own, *draws)
        found = _map(name, info.batch_size, (None, *dims[3:9], dims[9:9 + count], dims[9 + count:]),
                     (None, v, q, k, x, mask, seed, rest[:count], rest[count:]), settings, call)
        return tuple(found), (0,) * len(found)


class Backward(torch.autograd.Function):
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
        raise RuntimeError(ONCE.format(f"attention by {ctx.name}"))

    @staticmethod
    def jvp(ctx, *_):
        raise NotImplementedError(ONCE.format(f"attention by {ctx.name}"))

    @staticmethod
    def vmap(info, dims, name, settings, count, dout, v, q, k, x, mask, seed, *rest):
        def call(dout, v, q, k, x, mask, seed, own, draws):
            return Backward.apply(name, settings, count, dout, v, q, k, x, mask, seed, *own, *draws)
        found = _map(name, info.batch_size, (*dims[3:10], dims[10:10 + count], dims[10 + count:]),
                     (dout, v, q, k, x, mask, seed, rest[:count], rest[count:]), settings, call)
        return tuple(found), (0,) * len(found)
