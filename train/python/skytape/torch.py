"""The attention methods in PyTorch: skytape.torch.attention, and a module Attention.

Letters: B batch, H heads, N tokens, D head width, E model width.
"""
import torch
from torch import nn

from . import UsageError, _as, _engine, _gather, _texts, methods


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, name, settings, move_averages, keys, *tensors):
        ctx.save_for_backward(*tensors)
        ctx.name, ctx.settings, ctx.move_averages, ctx.keys = name, settings, move_averages, keys
        ctx.done = _Attention.call(ctx, tensors)
        return torch.from_dlpack(ctx.done.out()["out"])

    @staticmethod
    def call(ctx, tensors):
        arrays = {key: tensor.detach() for key, tensor in zip(ctx.keys, tensors)}
        return _engine.Call(ctx.name, arrays, *ctx.settings, any(ctx.needs_input_grad))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dout):
        tensors = ctx.saved_tensors  # an error where one was changed in place
        call, ctx.done = ctx.done or _Attention.call(ctx, tensors), None  # again: the graph was retained
        gradients = _as(dout, call.backward({"dout": dout}, ctx.move_averages))
        return None, None, None, None, *(gradients[key] if needed else None
                                         for key, needed in zip(ctx.keys, ctx.needs_input_grad[4:]))


def attention(name, q, k, v, mask=None, seed=0, training=False, *, move_averages=False, **more):
    """As skytape.attention, on tensors that may require gradients.

    move_averages  running averages among the parameters (those of routing) move with each backward
    """
    arrays, settings = _gather(q, k, v, mask, seed, training, **more)
    return _Attention.apply(name, settings, move_averages, list(arrays), *arrays.values())


class Attention(nn.Module):
    """Multi-head self-attention by any method: projections, the method, output projection; batch first.

    Beside nn.MultiheadAttention: x [B, N, E] -> [B, N, E], and key_padding_mask [B, N] is true at
    padding. A method's own parameters and buffers are this module's; where it has some, `length` says
    the longest N. Draws come from torch's random numbers in training, and from `seed` in evaluation.
    """

    def __init__(self, name, dim, heads, length=None, bias=True, seed=0, **options):
        super().__init__()
        if heads < 1 or dim % heads != 0:
            raise UsageError(f"Attention: dim {dim} is no multiple of heads {heads}")
        self.name, self.heads, self.length, self.seed, self.options = name, heads, length, seed, options
        own = _engine.initial(name, _texts(options), heads, dim // heads, length or 1024, dim, seed)
        if own and length is None:
            raise UsageError(f"Attention: {name} has parameters of its own; say length=, the longest N")
        row, = (row for row in methods() if row["name"] == name)
        self.reads_x = row["reads_x"]
        self.q_proj, self.v_proj, self.out_proj = (nn.Linear(dim, dim, bias) for _ in range(3))
        self.k_proj = None if row["shared_qk"] else nn.Linear(dim, dim, bias)
        self.own = {key: key.replace(".", "_") for key in own}  # a method's name of each: ours
        for key, (value, trained) in own.items():
            value = torch.as_tensor(value, dtype=torch.get_default_dtype())
            if trained:
                self.register_parameter(self.own[key], nn.Parameter(value))
            else:
                self.register_buffer(self.own[key], value)

    def forward(self, x, key_padding_mask=None):
        q, k, v = (projection and projection(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # [B, H, N, D]
                   for projection in (self.q_proj, self.k_proj, self.v_proj))
        seed = int(torch.randint(2**62, ())) if self.training else self.seed
        out = attention(self.name, q, k, v, None if key_padding_mask is None else ~key_padding_mask, seed,
                        self.training, x=x if self.reads_x else None, length=self.length or 0,
                        parameters={key: getattr(self, ours) for key, ours in self.own.items()} or None,
                        move_averages=self.training, **self.options)  # [B, H, N, D]
        return self.out_proj(out.transpose(1, 2).flatten(2))
