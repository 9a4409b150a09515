"""The attention methods in PyTorch: an operator torch.ops.skytape.<name> for each, with a backward that is
an operator too, the function skytape.torch.attention, and a module Attention.

Notation: B batch, H heads, N tokens, D head width, E model width.
"""
import torch
from torch import nn
from torch._subclasses import FakeTensor
from torch.autograd import forward_ad

from .. import UsageError, _by_name, _engine, _flag, _name, _seed, _texts, _whole, arrays, traits
from ..traits import METHODS
from . import settings
from .differentiable import composed_call, wrong_options
from .operators import ONCE
from .transforms import NO_GRADIENT_OF_DRAWS, Forward

_FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


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
    given = own or {}
    _check_tensors(name, v, q, k, x, given, differentiable)
    if v.device.type != "meta" and torch.is_autocast_enabled(v.device.type):
        kind = torch.get_autocast_dtype(v.device.type)
        q, k, v, x = (tensor if tensor is None or tensor.dtype == torch.float64 else tensor.to(kind)
                      for tensor in (q, k, v, x))
    # The method's own arrays may be in float32 beside half precision, which is computed in float32.
    for key, tensor in (("q", q), ("k", k), ("x", x), *given.items()):
        if (tensor is not None and tensor.dtype != v.dtype
                and (key not in given or torch.float64 in (tensor.dtype, v.dtype))):
            raise UsageError(f"{key} and v differ in dtype: {key} is {tensor.dtype}, v is {v.dtype}")
    for key, tensor in (("q", q), ("k", k), ("x", x), ("mask", mask), *given.items(), *draws.items()):
        if tensor is not None and tensor.device != v.device:
            raise UsageError(f"{key} and v differ in device: {key} is on {tensor.device}, v on {v.device}")
    for key, tensor in draws.items():
        if tensor.requires_grad and not differentiable:
            raise UsageError(NO_GRADIENT_OF_DRAWS.format(key))
    seed = _seed_tensor(seed, v)
    text = settings.text_of(training, length, None if own is None else list(own), averages, list(draws),
                            options)
    own, draws = list(given.values()), list(draws.values())
    if differentiable:
        return composed_call(name, v, q, k, x, mask, seed, own, draws, text)
    if not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active():
        out, *moved = Forward.apply(name, text, len(own), v, q, k, x, mask, seed, *own, *draws)
        return out, moved
    tensors = [tensor for tensor in (q, k, v, x, *own) if tensor is not None]
    # A traced graph keeps nothing for backward, which calls once more: it serves training and evaluation.
    keep = (torch.is_grad_enabled() and any([tensor.requires_grad for tensor in tensors])
            and not torch.jit.is_tracing())
    out, _, moved = getattr(torch.ops.skytape, name).default(
        v, q, k, x, mask, seed, own or None, draws or None, text, keep)
    return out, moved


def _check_tensors(name, v, q, k, x, own, differentiable):
    if _name(name) not in METHODS:
        raise UsageError(wrong_options(  # names those that there are
            name, settings.text_of(False, 0, None, (), (), {}), "1,1,1,1"))
    for key, tensor in {"q": q, "k": k, "v": v, "x": x, **own}.items():
        if tensor is None and key not in own:
            continue
        if not isinstance(tensor, torch.Tensor):
            raise UsageError(f"{key}: expected a torch.Tensor, got {_what(tensor)}")
        arrays.dense(tensor, key)
        if tensor.dtype not in _FLOATS:
            raise UsageError(f"{key}: expected float32, float64, bfloat16 or float16, "
                             f"got {arrays.what(tensor)}")
        if (not differentiable and forward_ad._current_level >= 0
                and forward_ad.unpack_dual(tensor).tangent is not None):
            raise NotImplementedError(ONCE.format(f"attention by {name}"))
    if v is None:
        raise UsageError(f"{name}: v is missing")


def _seed_tensor(seed, v):
    """As the operators take it, a tensor of one int64."""
    if not isinstance(seed, torch.Tensor):
        seed = _seed(seed)
        return torch.full((1,), seed if seed < 2**63 else seed - 2**64, dtype=torch.int64, device="cpu")
    if seed.device.type not in ("cpu", v.device.type):
        raise UsageError(f"seed and v differ in device: seed is on {seed.device}, v on {v.device}")
    if seed.numel() != 1 or seed.dtype.is_floating_point or seed.dtype.is_complex or seed.dtype == torch.bool:
        raise UsageError(f"seed: expected one whole number, got {arrays.what(seed)}")
    return seed


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
    if name in METHODS and not traits.draws(name, options, fresh):
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
        row = METHODS[name]
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
            whole = what == "constant" and (value == value.round()).all()  # bfloat16 rounds numbers of blocks
            value = torch.empty(value.shape, device=device, dtype=torch.int64 if whole else dtype)
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
            if f"{self.name}_mask" in METHODS:
                raise UsageError(f"key_padding_mask: {self.name} reads padding; "
                                 f"cut the batch, or take {self.name}_mask")
        q, k, v = (projection and projection(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
                   for projection in (self.q_proj, self.k_proj, self.v_proj))  # [B, H, N, D]
        if self.reads_padding and key_padding_mask is not None:  # then it reads zeros there
            k = k.masked_fill(key_padding_mask[:, None, :, None], 0)
        own, averages = ({key: getattr(self, ours) for key, ours in self.own.items()},
                         self.averages if self.training else [])
        numbers = torch.promote_types(v.dtype, torch.float32)  # which half precision does not round
        own = {key: value if value.is_floating_point() else value.to(numbers) for key, value in own.items()}
        own.update({key: own[key].clone() for key in averages})  # backward reads what forward read
        seed = self.seed
        if self.training:  # by self.seed a compiled graph tells the calls of two layers apart
            seed = _fresh_seed(self.name, self.options, False, x, key_padding_mask, self.seed)
        out, moved = _apply(  # [B, H, N, D]
            self.name, v, q, k, x if self.reads_x else None,
            None if key_padding_mask is None else ~key_padding_mask,
            seed, self.training, self.length or 0, own or None, averages, {}, self.options,
            self.differentiable)
        for key, value in zip(averages, moved):
            getattr(self, self.own[key]).copy_(value.detach())
        return self.out_proj(out.transpose(1, 2).flatten(2))
