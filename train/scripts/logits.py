#!/usr/bin/env python3
"""logits.py CHECKPOINT TEXT...: class scores of texts, from a checkpoint of skytape, with NumPy alone.

The whole model in Python, for softmax attention; train/run/checkpoint.md says what is what. TEXT is
a text where the run's tokens are bytes; of any other run the numbers of its tokens, apart by blanks,
from 0 in the order of its vocabulary: "4 17 2", or a picture's intensities. Prints a line for each
text: the label with the highest score, then all scores.
"""
import json
import math
import sys

try:
    import numpy as np
except ImportError:
    sys.exit("logits.py: needs NumPy: apt-get install python3-numpy, or pip install numpy")


class Tensors(dict):
    """By name; `unread` has the names that nobody has asked for."""

    def __init__(self, tensors):
        super().__init__(tensors)
        self.unread = {name for name in tensors if not name.startswith(("optimizer.", "train."))}

    def __getitem__(self, name):
        self.unread.discard(name)
        return super().__getitem__(name)


def read(path):
    """Tensors by name, and what the file says about the model."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    config = header.pop("__metadata__", {}).get("skytape.config")
    model = json.loads(config).get("model", {}) if config else {}
    if not {"token_offset", "nominal_length"} <= model.keys():
        sys.exit(f"logits.py: {path}: expected best.safetensors or last.safetensors of a run of skytape")
    if "seq_classifer.mlpblock.0.weight" not in header:
        sys.exit(f"logits.py: {path}: a pre-training, which has no classes")
    types = {"F32": "<f4", "F64": "<f8", "I32": "<i4"}
    tensors = {name: np.frombuffer(data[slice(*entry["data_offsets"])], types[entry["dtype"]])
               .reshape(entry["shape"]).astype(np.float64) for name, entry in header.items()}
    return Tensors(tensors), model


def numbers(w, model, text):
    """The ids of a text's tokens, as far as the model reads them."""
    if model["tokens"] == "bytes":
        tokens = list(text.encode(errors="surrogateescape"))
    else:
        if not all(word.isdecimal() for word in text.split()):
            sys.exit(f"logits.py: '{text}': the run's tokens are {model['tokens']}: expected their "
                     "numbers, apart by blanks")
        tokens = [int(word) for word in text.split()]
    ids = [token + model["token_offset"] for token in tokens][:model["max_length"]]
    rows = len(w["model.embeddings.word_embeddings.weight"])
    if not ids or max(ids) >= rows:
        sys.exit(f"logits.py: '{text}': expected one token at least, each of 0 to "
                 f"{rows - model['token_offset'] - 1}")
    return ids


def logits(w, model, ids):
    def linear(x, name): return x @ w[name + ".weight"].T + w[name + ".bias"]
    def gelu(x): return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2
    def heads(x): return x.reshape(len(x), model["heads"], -1).swapaxes(0, 1)  # [H, N, D]

    def placed(heads):  # rotary: entries j and j + D/2 are turned by the angle of (n, j)
        if model["positions"] != "rotary":
            return heads
        cosine, sine = np.split(w["model.rotary_angles"][:heads.shape[1]], 2, axis=1)  # [N, D/2]
        a, b = np.split(heads, 2, axis=2)
        return np.concatenate([a * cosine - b * sine, b * cosine + a * sine], axis=2)

    def norm(x, name):
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + model["layer_norm_epsilon"])
        return scaled * w[name + ".weight"] + w[name + ".bias"]

    def ngrams(table, ids, longest):  # a row of the table for each n-gram, by its last position
        total = np.zeros((len(ids), table.shape[1]))
        for i in range(len(ids)):
            h = 0
            for back in range(longest):
                token = ids[i - back] if back <= i else 0
                h = (h ^ (token + 1)) * 0x9E3779B97F4A7C15 % 2**64
                h ^= h >> 32
                total[i] += table[h % len(table)] if back > 0 else 0
        return total

    x = w["model.embeddings.word_embeddings.weight"][ids]  # [N, E]
    if model["positions"] == "learned":
        x = x + w["model.embeddings.position_embeddings.weight"][:len(ids)]
    if model["ngrams"]:
        x = x + ngrams(w["model.embeddings.ngram_embeddings.weight"], ids, model["ngrams"])
    for layer in (f"model.transformer_{i}" for i in range(model["layers"])):
        y = norm(x, layer + ".norm1")
        q, k, v = (heads(linear(y, f"{layer}.mha.W_{part}")) for part in "qkv")
        q, k = placed(q), placed(k)
        scores = q @ k.swapaxes(1, 2) / math.sqrt(model["head_width"])  # [H, N, N]
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = weights / weights.sum(-1, keepdims=True) @ v
        x = x + linear(mixed.swapaxes(0, 1).reshape(len(ids), -1), layer + ".mha.ff")
        y = norm(x, layer + ".norm2")
        x = x + linear(gelu(linear(y, layer + ".mlpblock.0")), layer + ".mlpblock.3")
    x = norm(x, "model.norm")
    pooled = x.sum(0) / (model["nominal_length"] if model["pooling"] == "nominal" else len(ids))
    return linear(np.maximum(linear(pooled, "seq_classifer.mlpblock.0"), 0), "seq_classifer.mlpblock.2")


if len(sys.argv) < 3:
    sys.exit(__doc__)
try:
    tensors, facts = read(sys.argv[1])
except (OSError, ValueError, OverflowError, MemoryError, AttributeError) as problem:
    sys.exit(f"logits.py: {sys.argv[1]}: {problem}")
# The values of each option that this model computes: known values; ANY for options that it reads,
# that only training uses, and that have a tensor, which is missed below if nobody reads it. A key
# not here is a newer one, which changes nothing where it is off: 0, false or none.
ANY = None
READ = {"attention": ["softmax"], "positions": ["learned", "rotary"], "norm": ["pre"], "sequences": [1],
        "pooling": ["nominal", "mean"], "patch": [0], "pair_cosine": [False], "pyramid": [False]}
READ |= dict.fromkeys((
    "layers", "width", "ff_width", "heads", "head_width", "layer_norm_epsilon", "norm_epsilon",
    "nominal_length", "max_length", "tokens", "token_offset", "labels", "gelu", "rotary_base", "ngrams",
    "ngram_rows", "ngram_deviation", "dropout", "attention_dropout", "label_smoothing",
    "residual_scale", "both_ends", "token_types", "conv_width"), ANY)
for key, value in facts.items():
    if key not in READ and value not in (0, "none"):
        sys.exit(f"logits.py: the model has {key} {value}, an option unknown here")
    if READ.get(key) is not ANY and value not in READ[key]:
        sys.exit(f"logits.py: the model has {key} {value}, this script knows {READ[key]}")
for argument in sys.argv[2:]:
    scores = logits(tensors, facts, numbers(tensors, facts, argument))
    if tensors.unread:
        sys.exit(f"logits.py: the model has {', '.join(sorted(tensors.unread))}, which are unknown here")
    best = int(scores.argmax())
    print(facts["labels"][best] if facts["labels"] else best, *(f"{s:.9g}" for s in scores), sep="\t")
