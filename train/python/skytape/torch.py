"""The attention methods in PyTorch: skytape.torch.attention, and a module Attention.

Letters: B batch, H heads, N tokens, D head width, E model width.
"""
import torch
from torch import nn

from . import UsageError, _engine, _mask_like, _texts
from ._engine import methods

__all__ = ["attention", "Attention"]


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, call, move_averages, names, *tensors):
        ctx.save_for_backward(*tensors)
        ctx.names, ctx.move_averages, differentiable = names, move_averages, any(ctx.needs_input_grad)
        ctx.call = lambda: call({name: tensor.detach() for name, tensor in zip(names, tensors)},
                                differentiable)
        ctx.attended = ctx.call()
        return torch.from_dlpack(ctx.attended.out)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dout):
        ctx.saved_tensors  # an error where one was changed in place
        attended, ctx.attended = ctx.attended or ctx.call(), None  # again: the graph was retained
        gradients = attended.backward(dout.contiguous(), ctx.move_averages)
        return (None, None, None, *(torch.from_dlpack(gradients[name]) if needed else None
                              for name, needed in zip(ctx.names, ctx.needs_input_grad[3:])))


def attention(name, q, k, v, mask=None, seed=0, training=False, *, x=None, length=0, parameters=None,
              draws=None, move_averages=False, **options):
    """As skytape.attention, on tensors that may require gradients.

    move_averages  running averages among the parameters (those of routing) move with each backward
    """
    tensors = {"q": q, "k": k, "v": v, "x": x}
    trained = parameters or {}
    buffers = {key: value for key, value in trained.items() if not value.requires_grad}
    tensors = {key: value for key, value in {**tensors, **trained}.items()
               if value is not None and key not in buffers}

    def call(given, differentiable):
        known = {key: given.pop(key, None) for key in ("q", "k", "v", "x")}
        return _engine.attend(name, known["q"], known["k"], known["v"], _mask_like(mask, v), known["x"],
                              _texts(options), seed, training, length,
                              None if parameters is None else {**given, **buffers}, draws or {},
                              differentiable)

    return _Attention.apply(call, move_averages, list(tensors), *tensors.values())


class Attention(nn.Module):
    """Multi-head self-attention by any method: projections, the method, output projection; batch first.

    Beside nn.MultiheadAttention: x [B, N, E] -> [B, N, E], and key_padding_mask [B, N] is true at
    padding. A method's own parameters and buffers are this module's; where it has some, `length` says
    the longest N. Draws come from torch's random numbers in training, and from `seed` in evaluation.
    """

    def __init__(self, name, dim, heads, length=None, bias=True, seed=0, **options):
        super().__init__()
        rows = {row["name"]: row for row in methods()}
        if dim % heads != 0:
            raise UsageError(f"Attention: dim {dim} is no multiple of heads {heads}")
        self.name, self.heads, self.length, self.seed, self.options = name, heads, length, seed, options
        own = _engine.initial(name, _texts(options), heads, dim // heads, length or 1024, dim, seed)
        if own and length is None:
            raise UsageError(f"Attention: {name} has parameters of its own; say length=, the longest N")
        self.reads_x = rows[name]["reads_x"]
        self.q_proj, self.v_proj, self.out_proj = (nn.Linear(dim, dim, bias) for _ in range(3))
        self.k_proj = None if rows[name]["shared_qk"] else nn.Linear(dim, dim, bias)
        self.own = {key: key.replace(".", "_") for key in own}  # a method's name of each: ours
        for key, (value, trained) in own.items():
            value = torch.from_dlpack(value).to(torch.get_default_dtype())
            if trained:
                self.register_parameter(self.own[key], nn.Parameter(value))
            else:
                self.register_buffer(self.own[key], value)

    def forward(self, x, key_padding_mask=None):
        def heads(projection):  # [B, N, E] -> [B, H, N, D]
            return None if projection is None else projection(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)

        seed = int(torch.randint(2**62, ())) if self.training else self.seed
        out = attention(self.name, heads(self.q_proj), heads(self.k_proj), heads(self.v_proj),
                        None if key_padding_mask is None else ~key_padding_mask, seed, self.training,
                        x=x if self.reads_x else None, length=self.length or 0,
                        parameters={key: getattr(self, ours) for key, ours in self.own.items()} or None,
                        move_averages=self.training, **self.options)  # [B, H, N, D]
        return self.out_proj(out.transpose(1, 2).flatten(2))
