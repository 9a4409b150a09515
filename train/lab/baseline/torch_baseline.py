#!/usr/bin/env python3
"""The benchmark model in plain PyTorch: the baseline with which `make race` compares skytape.

    torch_baseline.py --attn skyformer,linformer --n 2048 --batch 4 [--compile] [--device cuda --amp bf16]

The model is recipe skyformer's: two pre-norm layers of width 64, two heads, feed-forward width 128,
learned positions, the mean over tokens, a classifier of two layers. `--size` makes it as large as a
known encoder, with norms behind every sum as in BERT. A step is forward, backward, clipping by
value and AdamW; with --forward it is a forward pass in evaluation mode. Each method is written as a PyTorch user would write it for speed: no
Python loop over tokens, heads or examples, and PyTorch's fused attention where it has one.
Prints one line a method, which race.py reads: "name n=… batch=… 12.34 ms/step (min …) peak 56 MB …".
"""
import argparse
import dataclasses
import math
import resource
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

CLASSES, DROPOUT = 10, 0.1


@dataclasses.dataclass
class Size:
    layers: int
    width: int
    heads: int
    hidden: int  # of the MLP
    vocabulary: int
    norm_behind: bool  # every sum, as in BERT; else before attention and MLP

    @property
    def head_width(self):
        return self.width // self.heads


SIZES = {
    "papers": Size(2, 64, 2, 128, 32, False),
    "minilm": Size(6, 384, 12, 1536, 30522, True),
    "bert-base": Size(12, 768, 12, 3072, 30522, True),
}


class Attention(nn.Module):
    """q, k, v: [B, H, N, D]; keep: [B, N], 1 for a token and 0 for padding -> [B, H, N, D]."""

    takes_amp = False  # scores in float32, as in the papers' code

    def __init__(self, size, length, features):
        super().__init__()
        self.heads, self.width = size.heads, size.head_width
        self.length, self.features = length, features

    def drop(self, weights):
        return F.dropout(weights, DROPOUT, self.training)


def minus_infinity(keep):
    """Returns the term that is added to scores, [B, 1, 1, N]: 0 for a token, a large negative number for padding."""
    return (keep - 1)[:, None, None, :] * 1e9


def rows(keep):
    """The mask as a column: [B, 1, N, 1]."""
    return keep[:, None, :, None]


def pick(x, index):
    """Rows of x [B, H, N, D] at index [B, 1 or H, L]: [B, H, L, D]."""
    index = index[..., None].expand(x.size(0), x.size(1), -1, x.size(3))
    return x.gather(2, index)


def draw_tokens(keep, count):
    """Places of real tokens, drawn with repetition and shared by the heads: [B, 1, count]."""
    lengths = keep.sum(-1, keepdim=True)  # [B, 1]
    return (torch.rand(keep.size(0), count, device=keep.device) * lengths).long()[:, None]


class SoftmaxPlain(Attention):
    def forward(self, q, k, v, keep):
        scores = q @ k.mT / math.sqrt(self.width) + minus_infinity(keep)  # [B, H, N, N]
        return self.drop(scores.softmax(-1)) @ v


class SoftmaxFused(Attention):
    takes_amp = True

    def forward(self, q, k, v, keep):
        # With full sequences there is no mask, so that PyTorch may take its fastest kernel.
        mask = None if self.full else keep.bool()[:, None, None, :]
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


class VMean(Attention):
    def forward(self, q, k, v, keep):
        mean = (v * rows(keep)).sum(2, keepdim=True) / keep.sum(-1)[:, None, None, None]
        return mean.expand_as(q)


def gaussian(x, y):
    """exp(-|x - y|^2 / 2) of each row of x with each of y: [B, H, N, L]."""
    squares = x.square().sum(-1, keepdim=True) + y.square().sum(-1)[..., None, :]
    return torch.exp(x @ y.mT - squares / 2)


class Kernelized(Attention):
    def forward(self, q, k, v, keep):
        scale = self.width ** -0.25
        return self.drop(gaussian(q * scale, k * scale) * keep[:, None, None, :]) @ v


def iterative_inverse(a, steps=6):
    """Razavi's third-order iteration for the inverse of each matrix [.., L, L]."""
    one = torch.eye(a.size(-1), device=a.device, dtype=a.dtype)
    z = a.mT / (a.sum(-2).amax(-1) * a.sum(-1).amax(-1))[..., None, None]
    for _ in range(steps):
        p = a @ z
        z = z @ (13 * one - p @ (15 * one - p @ (7 * one - p))) / 4
    return z


class Skyformer(Attention):
    def forward(self, q, k, v, keep):
        scale = rows(keep) * self.width ** -0.25
        q, k, half = q * scale, k * scale, self.features // 2
        marks = torch.cat([pick(q, draw_tokens(keep, half)), pick(k, draw_tokens(keep, half))], 2)
        middle = gaussian(marks, marks)                               # [B, H, L, L]
        middle = middle + 0.1 * torch.eye(self.features, device=q.device, dtype=q.dtype)
        d = middle.sum(-1, keepdim=True).rsqrt()                      # [B, H, L, 1]
        inverse = d * iterative_inverse(d * middle * d.mT) * d.mT
        keys = gaussian(marks, k) * keep[:, None, None, :]            # [B, H, L, N]
        return gaussian(q, marks) @ (inverse @ (keys @ v))


class Nystrom(Attention):
    def forward(self, q, k, v, keep):
        scale = rows(keep) * self.width ** -0.25
        q, k = q * scale, k * scale
        segments = (self.features, self.length // self.features)
        q_marks, k_marks = (x.unflatten(2, segments).mean(3) for x in (q, k))  # [B, H, L, D]
        left, middle = (q @ k_marks.mT).softmax(-1), (q_marks @ k_marks.mT).softmax(-1)
        right = (q_marks @ k.mT + minus_infinity(keep)).softmax(-1)
        return (left @ iterative_inverse(middle)) @ (right @ v)


class Linformer(Attention):
    def __init__(self, size, length, features):
        super().__init__(size, length, features)
        self.project = nn.Parameter(torch.randn(self.heads, features, length) * 0.02)  # of keys and values

    def forward(self, q, k, v, keep):
        keys, values = (self.project @ (x * rows(keep)) for x in (k, v))          # [B, H, L, D]
        return (q @ keys.mT / math.sqrt(self.width)).softmax(-1) @ values


class Performer(Attention):
    def __init__(self, size, length, features):
        super().__init__(size, length, features)
        blocks = [torch.linalg.qr(torch.randn(self.width, self.width))[0]
                  for _ in range(math.ceil(features / self.width))]
        self.register_buffer("directions", torch.cat(blocks)[:features] * math.sqrt(self.width))

    def feature_map(self, x, axes):
        x = x * self.width ** -0.25
        h = x @ self.directions.T                                                 # [B, H, N, R]
        h = h - h.amax(axes, keepdim=True) - x.square().sum(-1, keepdim=True) / 2
        return h.exp() + 1e-4

    def forward(self, q, k, v, keep):
        left = self.feature_map(q, (-1,))
        right = self.feature_map(k, (-2, -1)) * rows(keep)
        return left @ (right.mT @ v) / (left @ right.sum(2)[..., None])


class Skeinformer(Attention):
    def forward(self, q, k, v, keep):
        scale = rows(keep) * self.width ** -0.25
        q, k, v, count = q * scale, k * scale, v * rows(keep), self.features
        pilot = draw_tokens(keep, count)                                          # [B, 1, S]
        exact = (pick(q, pilot) @ k.mT + minus_infinity(keep)).softmax(-1)        # [B, H, S, N]
        with torch.no_grad():  # columns by norm of the pilot's rows and of the values, eq. (6)
            weight = exact.square().sum(2).sqrt() * v.norm(dim=-1) + 1e-12 * keep[:, None]
            columns = torch.multinomial(weight.flatten(0, 1), count).unflatten(0, weight.shape[:2])
        keys, values = pick(k, columns), pick(v, columns)
        scores = q @ keys.mT                                                      # [B, H, N, S]
        other = scores.mean(-1, keepdim=True).exp()     # stands for each column that is not drawn
        left_out = (keep.sum(-1) - count).clamp(min=0)[:, None, None, None]
        scores = scores.exp()
        out = scores @ values + other * (v.sum(2, keepdim=True) - values.sum(2, keepdim=True))
        out = out / (scores.sum(-1, keepdim=True) + left_out * other)
        return out.scatter(2, pilot[..., None].expand(-1, self.heads, -1, self.width), exact @ v)


class Informer(Attention):
    def forward(self, q, k, v, keep):
        count = min(self.features, self.length)
        seen = q @ pick(k, draw_tokens(keep, count)).mT                           # [B, H, N, S]
        top = (seen.amax(-1) - seen.mean(-1)).topk(count, sorted=False).indices   # [B, H, S]
        scores = pick(q, top) @ k.mT / math.sqrt(self.width) + minus_infinity(keep)
        mean = (v * rows(keep)).sum(2, keepdim=True) / keep.sum(-1)[:, None, None, None]
        rest = mean.expand_as(q)
        return rest.scatter(2, top[..., None].expand(-1, -1, -1, self.width), scores.softmax(-1) @ v)


METHODS = {
    "softmax_plain": SoftmaxPlain, "softmax_sdpa": SoftmaxFused, "vmean": VMean,
    "kernelized": Kernelized, "skyformer": Skyformer, "nystrom": Nystrom, "linformer": Linformer,
    "performer": Performer, "skeinformer": Skeinformer, "informer": Informer,
}


class Layer(nn.Module):
    def __init__(self, size, attention):
        super().__init__()
        self.attention, self.norm_behind = attention, size.norm_behind
        self.heads = (3, size.heads, size.head_width)
        width, hidden = size.width, size.hidden
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.project, self.merge = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Dropout(DROPOUT),
                                 nn.Linear(hidden, width), nn.Dropout(DROPOUT))

    def attend(self, x, keep):
        heads = self.project(x).unflatten(-1, self.heads)
        q, k, v = heads.permute(2, 0, 3, 1, 4)                                    # [B, H, N, D]
        if self.attention.takes_amp:
            out = self.attention(q, k, v, keep)
        else:
            with torch.autocast(x.device.type, enabled=False):
                out = self.attention(q.float(), k.float(), v.float(), keep)
        return F.dropout(self.merge(out.transpose(1, 2).flatten(2)), DROPOUT, self.training)

    def forward(self, x, keep):
        if self.norm_behind:
            x = self.norms[0](x + self.attend(x, keep))
            return self.norms[1](x + self.mlp(x))
        x = x + self.attend(self.norms[0](x), keep)
        return x + self.mlp(self.norms[1](x))


class Classifier(nn.Module):
    def __init__(self, size, method, length, features, full):
        super().__init__()
        self.tokens = nn.Embedding(size.vocabulary, size.width)
        self.places = nn.Embedding(length, size.width)
        self.layers = nn.ModuleList(Layer(size, METHODS[method](size, length, features))
                                    for _ in range(size.layers))
        for layer in self.layers:
            layer.attention.full = full
        self.norm_behind, self.norm = size.norm_behind, nn.LayerNorm(size.width)
        self.head = nn.Sequential(nn.Linear(size.width, size.hidden), nn.ReLU(),
                                  nn.Linear(size.hidden, CLASSES))

    def forward(self, ids, keep, labels):
        x = self.tokens(ids) + self.places.weight[:ids.size(1)]
        if self.norm_behind:  # the norm of the embedding instead of one behind the last layer
            x = self.norm(x)
        x = F.dropout(x, DROPOUT, self.training)
        for layer in self.layers:
            x = layer(x, keep)
        if not self.norm_behind:
            x = self.norm(x)
        pooled = (x * keep[..., None]).mean(1)                                    # [B, E]
        return F.cross_entropy(self.head(pooled).float(), labels)


def time_steps(args, method):
    """Milliseconds of each timed step, the peak in MB, and the last loss."""
    torch.manual_seed(1)
    on_gpu = args.device == "cuda"
    size = dataclasses.replace(SIZES[args.size])
    size.layers = args.layers or size.layers
    model = Classifier(size, method, args.n, args.features, args.fill == 1).to(args.device)
    model.train(not args.forward)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, eps=1e-6, weight_decay=0)
    keep = torch.ones(args.batch, args.n, device=args.device)
    keep[:, int(args.fill * args.n):] = 0
    ids = torch.randint(1, size.vocabulary, (args.batch, args.n), device=args.device) * keep.long()
    labels = torch.randint(CLASSES, (args.batch,), device=args.device)
    form = torch.compile(model) if args.compile else model
    dtype = {"none": torch.bfloat16, "bf16": torch.bfloat16, "fp16": torch.float16}[args.amp]

    def loss_of_batch():
        with torch.autocast(args.device, dtype=dtype, enabled=args.amp != "none"):
            return form(ids, keep, labels)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of_batch()
        loss.backward()
        nn.utils.clip_grad_value_(model.parameters(), 1)
        optimizer.step()
        return loss

    if args.forward:
        step = torch.no_grad()(loss_of_batch)
    for _ in range(10 if on_gpu else 2):
        loss = step()
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(args.steps):
        if on_gpu:
            torch.cuda.synchronize()
        start = time.perf_counter()
        loss = step()
        if on_gpu:
            torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - start))
    if on_gpu:
        peak = torch.cuda.max_memory_allocated() / 2**20
    else:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    return times, peak, loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--attn", default="all", help=f"all, or some of {', '.join(METHODS)}")
    parser.add_argument("--n", type=int, default=2048, help="tokens of a sequence")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--size", choices=SIZES, default="papers", help="of the model")
    parser.add_argument("--layers", type=int, default=0, help="in place of the size's")
    parser.add_argument("--forward", action="store_true", help="forward passes instead of steps")
    parser.add_argument("--steps", type=int, default=5, help="timed steps")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--amp", choices=["none", "bf16", "fp16"], default="none")
    parser.add_argument("--tf32", action="store_true", help="products of f32 in TF32, on a GPU")
    parser.add_argument("--compile", action="store_true", help="through torch.compile")
    parser.add_argument("--fill", type=float, default=1, help="share of a sequence that is no padding")
    args = parser.parse_args()
    methods = list(METHODS) if args.attn == "all" else args.attn.split(",")
    for method in methods:
        if method not in METHODS:
            parser.error(f"unknown method {method}; there are {', '.join(METHODS)}")
    torch.set_num_threads(args.threads)
    torch.backends.cuda.matmul.allow_tf32 = args.tf32
    for method in methods:
        times, peak, loss = time_steps(args, method)
        if not math.isfinite(loss):
            sys.exit(f"{method}: the loss is {loss}")
        print(f"{method:14s} n={args.n} batch={args.batch} {statistics.median(times):9.2f} ms/step "
              f"(min {min(times):.2f})  peak {peak:.0f} MB  loss {loss:.3f}", flush=True)


if __name__ == "__main__":
    main()
