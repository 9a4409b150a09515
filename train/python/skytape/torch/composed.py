"""The methods composed of PyTorch's operations, which can be differentiated as often as one likes:
what skytape.torch.attention(..., differentiable=True) computes. They follow the references in
attention/methods, and take N x N matrices where these do.

Notation: B batch, H heads, N tokens, n nominal tokens, D head width, E width of the layer's input,
L landmarks, slots or projected length.
"""
import dataclasses
import functools
import math

import torch
from torch.nn import functional as F

from .._engine import UsageError

# Settings whose gradient is, on purpose, not that of what is computed.
_NO_DERIVATIVE = (("inverse_backward", "implicit"), ("pilot_gradient", "official"),
                  ("solver", "exact"))


@dataclasses.dataclass
class Call:
    """What a form reads besides q, k, v: [B, H, N, D], of which k may be None."""
    mask: torch.Tensor    # [B, N], 1 for a token, 0 for padding
    x: torch.Tensor       # [B, N, E], or None
    own: dict             # the method's parameters and buffers by name
    draws: dict           # its random arrays by name
    options: dict         # all of its options, as texts
    length: int           # n
    training: bool
    read: set = dataclasses.field(default_factory=set)  # names of draws that the form looked for

    def __getitem__(self, option):
        return self.options[option]

    def number(self, option):
        return float(self.options[option])

    def whole(self, option):
        return int(self.options[option])

    def numbers(self, option):
        """A list such as 10:2."""
        return [int(part) for part in self.options[option].split(":") if part]

    def drawn(self, name):
        """The random array of that name; None where it is not there."""
        self.read.add(name)
        return self.draws.get(name)

    def draw(self, name):
        if self.drawn(name) is None:
            raise UsageError(f"draws: '{name}' is missing: under torch.func and torch.compile the "
                             "composed form needs draws=, which skytape.draws() makes")
        return self.draws[name]

    @property
    def keys(self):
        """How often a key counts: [B, 1, 1, N]."""
        return self.mask[:, None, None, :]

    def rows(self, x, scale=1.0):
        """Rows of tokens times the scale, zeros at padding: [B, H, N, D]."""
        return x * (self.mask * scale)[:, None, :, None]

    def no_token(self):
        """1 for an example without tokens, else 0: [B, 1, 1, 1]."""
        return (1 - self.mask.sum(1)).relu()[:, None, None, None]


def compose(name, q, k, v, call):
    """The output [B, H, N, D] of a method."""
    if name not in _FORMS:
        raise UsageError(f"differentiable=True: no composed form of the method {name!r:.50}; "
                         f"expected one of {', '.join(_FORMS)}")
    for option, value in _NO_DERIVATIVE:
        if call.options.get(option) == value:
            raise UsageError(f"{name}.{option}: {value} has no composed form, since its gradient "
                             "is not that of what is computed")
    if call.training and float(call.options.get("attention_dropout", 0)) > 0:
        raise UsageError(f"{name}.attention_dropout: the composed form drops no weights; "
                         "expected attention_dropout=0 or training=False")
    return _FORMS[name](call, q, k, v)


# ---- parts ----


def _weights(scores, times):
    """Softmax over keys that count so many times; a row without keys gets zeros."""
    scores = scores.masked_fill(times == 0, -math.inf)
    largest = scores.detach().amax(-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).min)
    parts = (scores - largest).exp() * times
    total = parts.sum(-1, keepdim=True)
    return parts / total.masked_fill(total == 0, 1)


def _attend(q, k, v, times, scale=None):
    """Softmax attention; scores are scaled by 1 / sqrt(D) unless `scale` says otherwise."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    return _weights(q @ k.mT * scale, times) @ v


def _gather(x, index):
    """Rows of x [B, H, N, D] at index [B, L] or [B, H, L]: [B, H, L, D]."""
    index = index.long().clamp(min=0)
    index = index[:, None] if index.dim() == 2 else index
    return x.gather(2, index[..., None].expand(*x.shape[:2], -1, x.shape[3]))


def _marked(index, shape):
    """Booleans of that shape, true at the places of its last axis that index names; -1 is none."""
    marks = torch.zeros(*shape[:-1], shape[-1] + 1, dtype=torch.bool, device=index.device)
    places = index.long().where(index >= 0, torch.full_like(index.long(), shape[-1]))
    return marks.scatter(-1, places, True)[..., :-1]


def _gaussian(x, w):
    """exp(-|x_i - w_j|^2 / 2)."""
    norms = x.square().sum(-1, keepdim=True) + w.square().sum(-1, keepdim=True).mT
    return (x @ w.mT - norms / 2).exp()


def _exponential(x, w):
    return (x @ w.mT).exp()


def _inverse(call, m):
    """The iterative inverse of m [B, H, L, L]."""
    largest = m.sum(-2, keepdim=True).amax(-1, keepdim=True)  # [B, H, 1, 1]
    if call["inverse_start"] == "official":
        axes = (0, 1) if call.training else (1,)
        largest = largest.amax(axes, keepdim=True)
    if call.whole("detach_start"):
        largest = largest.detach()
    eye = torch.eye(m.shape[-1], dtype=m.dtype, device=m.device)
    z = m.mT / largest
    for _ in range(call.whole("inverse_steps")):
        x = m @ z
        z = z @ (13 * eye - x @ (15 * eye - x @ (7 * eye - x))) / 4
    return z


def _scaled_inverse(call, m, p):
    """R Z R p with R = diag(m 1)^(-1/2) and Z nearly the inverse of R m R."""
    r = m.sum(-1, keepdim=True) ** -0.5
    return _inverse(call, m * r * r.mT) @ (p * r) * r


def _landmarks(call):
    """Sets of landmarks, indices into queries and then keys: each [B, L] or [B, H, L]."""
    table = call.draw("landmarks")
    return table[..., None, :].unbind(-2) if table.dim() == 2 else table.unbind(-2)


def _elu(x):
    return F.elu(x) + 1


# ---- exact attention and its kernels ----


def _softmax(call, q, k, v):
    return _attend(q, k, v, call.keys)


def _vmean(call, q, k, v):
    weights = call.mask / call.mask.sum(1, keepdim=True).clamp(min=1)
    return (v * weights[:, None, :, None]).sum(2, keepdim=True).expand_as(v)


def _kernelized(call, q, k, v):
    scale = call.number("scale") or q.shape[-1] ** -0.25
    return (_gaussian(call.rows(q, scale), call.rows(k, scale)) * call.keys) @ v


def _linear_attention(call, q, k, v):
    weights = _elu(q) @ call.rows(_elu(k)).mT
    total = weights.sum(-1, keepdim=True) + call.number("epsilon")
    return weights @ v / (total + call.no_token())


def _cosformer(call, q, k, v):
    f = F.relu if call["activation"] == "relu" else _elu
    at = torch.arange(q.shape[2], dtype=q.dtype, device=q.device)
    near = torch.cos((at[:, None] - at) * (math.pi / (2 * call.length)))
    weights = f(q) @ call.rows(f(k)).mT * near
    return weights @ v / weights.sum(-1, keepdim=True).clamp(min=call.number("epsilon"))


def _performer(call, q, k, v):
    official = call["form"] == "official"
    w = call.own["projection"] if "projection" in call.own else call.draw("projection")
    scale = q.shape[-1] ** (-0.5 if official else -0.25)
    x, y = q * scale, call.rows(k, scale) if official else k * scale

    def features(rows, axes):
        logits = rows @ w.mT
        largest = logits.amax(axes, keepdim=True)
        if call.whole("detach_stabiliser"):
            largest = largest.detach()
        half = rows.square().sum(-1, keepdim=True) / 2
        return (logits - half - largest).exp() + call.number("epsilon")
    scope = ((0, 1, 2, 3) if call.training else (1, 2, 3)) if official else (2, 3)
    phi_q, phi_k = features(x, -1), features(y, scope)  # [B, H, N, R]
    if not official:
        phi_k = call.rows(phi_k)
    total = (phi_q * phi_k.sum(2, keepdim=True)).sum(-1, keepdim=True)
    return phi_q @ (phi_k.mT @ call.rows(v)) / (total + call.no_token())


# ---- landmarks ----


def _skyformer(call, q, k, v):
    n, scale = q.shape[2], call.number("scale") or q.shape[-1] ** -0.25
    rows = torch.cat([call.rows(q, scale), call.rows(k, scale)], 2)  # [B, H, 2 N, D]
    sets = _landmarks(call)
    a = sum(_gaussian(rows, _gather(rows, index)) for index in sets)  # [B, H, 2 N, L]
    m = sum(_gather(a, index) for index in sets)
    m = m + call.number("gamma") * torch.eye(m.shape[-1], dtype=m.dtype, device=m.device)
    return a[:, :, :n] @ _scaled_inverse(call, m, a[:, :, n:].mT @ call.rows(v))


def _nystrom_sm(call, q, k, v):
    x, y = (call.rows(each, q.shape[-1] ** -0.25) for each in (q, k))
    index, = _landmarks(call)
    w = _gather(torch.cat([x, y], 2), index)
    m = _exponential(w, w)
    m = m + call.number("gamma") * torch.eye(m.shape[-1], dtype=m.dtype, device=m.device)
    u = torch.cat([call.rows(v), call.rows(torch.ones_like(v[..., :1]))], 3)  # [B, H, N, D + 1]
    found = _exponential(x, w) @ _scaled_inverse(call, m, _exponential(y, w).mT @ u)
    return found[..., :-1] / (found[..., -1:] + call.no_token())


def _nystrom(call, q, k, v):
    segments, n = call.whole("features"), q.shape[2]
    x, y = (call.rows(each, q.shape[-1] ** -0.25) for each in (q, k))
    if segments >= call.length:
        out = _attend(x, y, v, call.keys, 1)
    else:
        bounds = torch.arange(segments + 1, device=q.device) * call.length // segments
        at = torch.arange(n, device=q.device)
        inside = (at >= bounds[:-1, None]) & (at < bounds[1:, None])
        mean = inside.to(q.dtype) / (bounds[1:] - bounds[:-1])[:, None]  # [L, N]
        xl, yl = mean @ x, mean @ y                                      # [B, H, L, D]
        middle = _inverse(call, (xl @ yl.mT).softmax(-1))
        out = (x @ yl.mT).softmax(-1) @ (middle @ _attend(xl, y, v, call.keys, 1))
    if "conv.weight" in call.own:
        weight = call.own["conv.weight"]  # [H, 1, W, 1]
        out = out + F.conv2d(call.rows(v), weight, padding=(weight.shape[2] // 2, 0),
                             groups=weight.shape[0])
    return out


# ---- projections along the sequence ----


def _linformer(call, q, k, v):
    n, kind = q.shape[2], call["projection"]
    slots = (call.numbers("layer_features") or [call.whole("features")])[0]
    window = -(-call.length // slots)

    def project(x, name):
        if kind == "learned":
            return call.own[name][..., :n] @ x
        windows = F.pad(x, (0, 0, 0, slots * window - n)).unflatten(2, (slots, window))
        if kind == "max":
            return windows.amax(3)
        return windows.mean(3) if kind == "mean" else (windows * call.own[name][:, None]).sum(3)
    one = "model.attn.E" if call["sharing"] == "layerwise" else "E"
    keys, values = ("Wk", "Wv") if kind == "conv" else (one, "F" if "F" in call.own else one)
    open_slots = call.own.get("open_slots", torch.ones(1, 1, slots, dtype=q.dtype, device=q.device))
    return _attend(q, project(call.rows(k), keys), project(call.rows(v), values),
                   open_slots[:, :, None])


def _linformer_jlt(call, q, k, v):
    sketch = (call.own["S"] if "S" in call.own else call.draw("S"))[:q.shape[2]]  # [N, L]
    return _attend(q, k, sketch @ (sketch.mT @ call.rows(v)), call.keys)


# ---- rows and columns that were chosen ----


def _informer(call, q, k, v, masked=False):
    if masked:
        q, k, v = (call.rows(each) for each in (q, k, v))
    mask = call.mask if masked else torch.ones_like(call.mask)
    mean = v.sum(2, keepdim=True) / mask.sum(1).clamp(min=1)[:, None, None, None]
    chosen = _marked(call.draw("top"), q.shape[:3])[..., None]  # [B, H, N, 1]
    return torch.where(chosen, _attend(q, k, v, mask[:, None, None]), mean)


def _skeinformer(call, q, k, v, normaliser="adaptive", pilots=False, uniform=False):
    scale, weighted = q.shape[-1] ** -0.25, call.options.get("weighted") == "1"
    x = q * scale if weighted else call.rows(q, scale)
    y, u = call.rows(k, scale), call.rows(v)
    columns = call.draw("columns").long()               # [B, H, L], -1 where unused
    used = (columns >= 0).to(q.dtype)                   # [B, H, L]
    yc, uc = _gather(y, columns), _gather(u, columns) * used[..., None]  # [B, H, L, D]
    if normaliser == "adaptive":  # one more key stands for all others
        count = used.sum(-1)[..., None, None]                             # [B, H, 1, 1]
        rest = call.mask.sum(1)[:, None, None, None] - count
        mean = (yc * used[..., None]).sum(2, keepdim=True) / count.clamp(min=1)
        other = (u.sum(2, keepdim=True) - uc.sum(2, keepdim=True)) / rest.clamp(min=1)
        out = _attend(x, torch.cat([yc, mean], 2), torch.cat([uc, other], 2),
                      torch.cat([used[:, :, None], rest], 3), 1)
    elif normaliser == "selected":
        out = _attend(x, yc, uc, used[:, :, None], 1)
    else:
        every = columns.clamp(min=0)[:, :, None].expand(-1, -1, q.shape[2], -1)
        picked = _weights(x @ y.mT, call.keys).gather(3, every)  # [B, H, N, L]
        if weighted:
            drawn = used.sum(-1, keepdim=True) * call.draw("prob").gather(2, columns.clamp(min=0))
            picked = picked * (used / drawn.masked_fill(drawn == 0, math.inf))[:, :, None]
        out = picked @ uc
    if not uniform:
        call.drawn("pilot")  # the rows by which the engine draws the columns, which are given here
    if pilots or call.options.get("keep_pilot") == "1":
        rows = _marked(call.draw("pilot"), call.mask.shape)[:, None, :, None]
        out = torch.where(rows, _attend(x, y, u, call.keys, 1), out)
    return out


# ---- patterns ----


def _places(q):
    """Places of queries [N, 1] and of keys [1, N]."""
    at = torch.arange(q.shape[2], device=q.device)
    return at[:, None], at[None]


def _seen(call, q, k, v, pairs):
    """Attention over pairs [N, N] or [H, N, N], which say how often a query counts a key."""
    return _attend(q, k, v, pairs * call.keys)


def _local(call, q, k, v):
    i, j = _places(q)
    block = min(call.whole("block"), call.length)
    if call["form"] == "sliding":
        return _seen(call, q, k, v, (i - j).abs() <= call.whole("block") // 2)
    if call["form"] == "block":
        return _seen(call, q, k, v, i // block == j // block)
    return _seen(call, q, k, v, (i - j) % -(-call.length // block) == 0)


def _blockbert(call, q, k, v):
    i, j = _places(q)
    blocks, heads, counts = call.whole("blocks"), q.shape[1], call.numbers("head_counts")
    shifts = [shift for shift, count in enumerate(counts) for _ in range(count)]
    shifts = shifts or [h % blocks for h in range(heads)]
    size = -(-call.length // blocks)
    shifts = torch.tensor(shifts, device=q.device)[:, None, None]
    return _seen(call, q, k, v, (i // size + shifts) % -(-call.length // size) == j // size)


def _sparse_transformer(call, q, k, v):
    i, j = _places(q)
    stride = min(call.whole("stride"), call.length)
    if call["pattern"] == "fixed":
        own, others = i // stride == j // stride, j % stride >= stride - call.whole("summary")
        others = others.expand_as(own)
    else:
        own, others = (i - j).abs() <= stride, (i - j) % stride == 0
    if call["heads"] == "merged":
        return _seen(call, q, k, v, own | others)
    turns = [others if h % 2 else own for h in range(q.shape[1])]
    return _seen(call, q, k, v, torch.stack(turns))


def _bigbird(call, q, k, v):
    block, n, heads = call.whole("block"), q.shape[2], q.shape[1]
    blocks = -(-call.length // block)
    at = torch.arange(blocks, device=q.device)
    ends = (at == 0) | (at == blocks - 1)
    pairs = ((at[:, None] - at).abs() <= 1) | ends | ends[:, None]
    pairs = pairs.to(q.dtype).expand(heads, -1, -1)
    table = call.drawn("blocks")  # [H, Q - 2, r], -1: none
    if table is None:
        table = call.own.get("blocks")
    if blocks < 5:
        pairs = torch.ones_like(pairs)
    elif table is not None:  # a block that is listed twice counts twice
        drawn = F.one_hot(table.long() + 1, blocks + 1).sum(2)[..., 1:]
        pairs = pairs + F.pad(drawn, (0, 0, 1, 1))
    pairs = pairs.repeat_interleave(block, 1).repeat_interleave(block, 2)[:, :n, :n]
    return call.rows(_seen(call, q, k, v, pairs))


def _longformer(call, q, k, v):
    i, j = _places(q)
    first = min(call.whole("globals"), q.shape[2])
    step = torch.tensor(call.numbers("dilation") or [1], device=q.device)[:, None, None]
    near = ((i - j).abs() <= call.whole("window") // 2 * step) & ((i - j) % step == 0)
    windows = _seen(call, q, k, v, near | (j < first))
    if first == 0:
        return windows

    def project(x, name):
        return F.linear(x, call.own[f"{name}.weight"],
                        call.own.get(f"{name}.bias")).unflatten(2, (q.shape[1], -1)).transpose(1, 2)
    answers = _attend(project(call.x[:, :first], "query_global"), project(call.x, "key_global"),
                      project(call.x, "value_global"), call.keys)
    return torch.cat([answers, windows[:, :, first:]], 2)


# ---- other sources of weights ----


def _synthesizer(call, q, k, v):
    n, own = v.shape[2], call.own
    if call["logits"] == "random":
        logits = own["random"][:, :n, :n]
    elif call["logits"] == "factorised":
        logits = own["random1"][:, :n] @ own["random2"][:, :n].mT
    else:
        hidden = F.linear(call.x, own["hidden.weight"], own["hidden.bias"]).relu()
        hidden = hidden.unflatten(2, (v.shape[1], -1)).transpose(1, 2)  # [B, H, N, F]
        logits = hidden @ own["logits.weight"][:, :n].mT + own["logits.bias"][:, :n].mT
    return _weights(logits.expand(*v.shape[:2], n, n), call.keys) @ v


def _luna(call, q, k, v):
    own, heads = call.own, q.shape[1]

    def project(x, name):
        y = F.linear(x, own[f"{name}.weight"], own[f"{name}.bias"])
        return y.unflatten(-1, (heads, -1)).transpose(-3, -2)
    memory = own["memory"].expand(len(v), -1, -1)  # [B, L, H D]
    if call["norm"] == "before":
        memory = F.layer_norm(memory, memory.shape[-1:], own["norm.weight"], own["norm.bias"])
    packed = _attend(project(memory, "pack"), k, v, call.keys).transpose(1, 2).flatten(2)
    ones = torch.ones(1, dtype=q.dtype, device=q.device)
    return _attend(q, project(packed, "key"), project(packed, "value"), ones)


def _sinkhorn(call, q, k, v):
    size, n, width = call.whole("block"), q.shape[2], q.shape[3]
    blocks = -(-call.length // size)

    def cut(x):  # [B, H, Q, b, D]
        return F.pad(x, (0, 0, 0, blocks * size - n)).unflatten(2, (blocks, size))
    keys, values = cut(call.rows(k)), cut(call.rows(v))
    real = F.pad(call.mask, (0, blocks * size - n)).unflatten(1, (blocks, size))  # [B, Q, b]
    there = real.amax(2) > 0                                                      # [B, Q]
    scores = keys.mean(3) @ call.own["sort"]                                      # [B, H, Q, Q]
    gumbel = call.drawn("gumbel")
    if gumbel is not None:
        scores = scores + gumbel
    both = there[:, :, None] & there[:, None]
    alone = torch.eye(blocks, dtype=torch.bool, device=q.device) & ~there[:, :, None]
    scores = (scores / call.number("temperature")).masked_fill(~both[:, None], -math.inf)
    scores = scores.masked_fill(alone[:, None], 0)
    for _ in range(call.whole("steps")):
        scores = scores.log_softmax(3).log_softmax(2)
    matrix = scores.exp()

    def with_mixed(x):  # [B, H, Q, 2 b, D]
        return torch.cat([x, (matrix @ x.flatten(3)).unflatten(3, (size, width))], 3)
    mixed = real.amax(1, keepdim=True).expand_as(real)
    times = torch.cat([real, mixed], 2)[:, None, :, None]
    return _attend(cut(q), with_mixed(keys), with_mixed(values), times).flatten(2, 3)[:, :, :n]


def _routing(call, q, k, v):
    clusters, n = call.own["centroids"].shape[1], q.shape[2]
    window = min(call.whole("window") or -(-call.length // clusters), n)
    centroids = F.normalize(call.own["centroids"], dim=-1, eps=0)

    def members(x):  # [B, H, C, N], true for the tokens of a cluster
        x = x.detach() * (x.detach().square().mean(-1, keepdim=True) + 1e-6) ** -0.5
        scores = (centroids @ x.mT).masked_fill(call.keys == 0, -math.inf)
        best = scores.sort(dim=-1, descending=True, stable=True)[1][..., :window]
        return _marked(best, scores.shape) & (call.keys > 0)
    queries, keys = members(q), members(k)
    weights = _weights((q @ k.mT * q.shape[-1] ** -0.5)[:, :, None], keys[:, :, :, None])
    outs = (weights @ v[:, :, None]) * queries[..., None]  # [B, H, C, N, D]
    return outs.sum(2) / queries.sum(2).clamp(min=1)[..., None]


def _reformer(call, q, k, v):
    n, chunk, rounds = q.shape[2], call.whole("chunk"), call.whole("hashes")
    keys = q * (q.square().mean(-1, keepdim=True) + 1e-6) ** -0.5 * q.shape[-1] ** -0.5
    if call.length <= chunk:
        token = F.pad(torch.arange(n, device=q.device), (0, chunk - n), value=n)
        token = token.expand(*q.shape[:2], 1, chunk)  # [B, H, chunks, c]
        slot = None
    else:
        order = _buckets(call, q).sort(dim=-1, stable=True)[1]  # [B, H, R, N]
        per_round = -(-call.length // chunk) * chunk
        token = F.pad(order, (0, per_round - n), value=n).flatten(2).unflatten(2, (-1, chunk))
        first = torch.arange(rounds, device=q.device)[:, None] * per_round
        slot = order.argsort(-1) + first
    around = token if token.shape[2] == 1 else torch.cat([token.roll(1, 2), token], 3)

    def take(x, index):
        x = F.pad(x, (0, 0, 0, 1))  # row n is zero
        return _gather(x, index.flatten(2)).unflatten(2, index.shape[2:])
    itself = token[..., None] == around[..., None, :]
    real = F.pad(call.mask, (0, 1)) > 0
    real = real[:, None].expand(-1, q.shape[1], -1).gather(2, around.flatten(2))
    times = real.unflatten(2, around.shape[2:])[..., None, :] | itself
    scores = (take(q, token) @ take(keys, around).mT).masked_fill(itself, -1e5)
    out = (_weights(scores, times) @ take(v, around)).flatten(2, 3)  # [B, H, slots, D]
    if slot is None:
        return out[:, :, :n]
    sums = scores.masked_fill(~times, -math.inf).logsumexp(-1).flatten(2)[..., None]
    outs = _gather(out, slot.flatten(2)).unflatten(2, (rounds, n))
    weights = _gather(sums, slot.flatten(2)).unflatten(2, (rounds, n)).softmax(2)
    return (outs * weights).sum(2)


def _buckets(call, q):
    """Reformer's bucket of each token in each round: [B, H, R, N]."""
    given = call.drawn("buckets")
    if given is not None:
        return given.reshape(*q.shape[:2], call.whole("hashes"), q.shape[2])
    rotated = torch.einsum("bhnd,hdrw->bhrnw", q.detach(), call.draw("rotations"))
    factors = [2 * rotated.shape[-1]]
    if not call.whole("buckets"):  # many are hashed in two parts
        chunks = call.length // call.whole("chunk")
        power = (2 * chunks).bit_length() - 1
        if 2**power > 2 * max(math.isqrt(chunks), call.whole("chunk")):
            factors = [2 ** (power // 2), 2 ** (power - power // 2)]
    bucket, begin, times = 0, 0, 1
    for factor in factors:
        part = rotated[..., begin:begin + factor // 2]
        bucket = bucket + times * torch.cat([part, -part], -1).argmax(-1)
        begin, times = begin + factor // 2, times * factor
    return bucket.masked_fill(call.mask[:, None, None] == 0, times)


_FORMS = {
    "softmax": _softmax, "vmean": _vmean, "kernelized": _kernelized, "skyformer": _skyformer,
    "linformer": _linformer, "linformer_jlt": _linformer_jlt, "performer": _performer,
    "informer": _informer, "informer_mask": functools.partial(_informer, masked=True),
    "skeinformer": functools.partial(_skeinformer, pilots=True), "skein_nopilot": _skeinformer,
    "skein_uniform": functools.partial(_skeinformer, uniform=True),
    "skein_simplenorm": functools.partial(_skeinformer, normaliser="selected"),
    "skein_nonorm": functools.partial(_skeinformer, normaliser="exact"),
    "nystrom": _nystrom, "nystrom_sm": _nystrom_sm, "reformer": _reformer, "bigbird": _bigbird,
    "linear_attention": _linear_attention, "cosformer": _cosformer, "synthesizer": _synthesizer,
    "luna": _luna, "local": _local, "blockbert": _blockbert,
    "sparse_transformer": _sparse_transformer, "longformer": _longformer, "sinkhorn": _sinkhorn,
    "routing": _routing,
}
