"""A classifier of ListOps' first 512 tokens with any method's attention, compared with
nn.MultiheadAttention's.

  skytape data --task listops --limit 20000 --export listops
  python listops.py listops 300 skyformer softmax nn.MultiheadAttention
"""
import pathlib
import sys

import skytape.torch
import torch
from torch import nn

WORDS = ["", "[MIN", "[MAX", "[MED", "[SM", "]", *map(str, range(10))]  # the first is padding
TOKENS, E, HEADS = 512, 64, 2


def split(file, tokens=TOKENS):
    """Tokens [B, N], 0 at padding, and labels [B], of an official file."""
    rows = [row.split("\t") for row in pathlib.Path(file).read_text(encoding="utf-8").splitlines()[1:]]
    words = [[WORDS.index(word) for word in text.split() if word not in "()"][:tokens] for text, _ in rows]
    return (torch.tensor([row + [0] * (tokens - len(row)) for row in words]),
            torch.tensor([int(label) for _, label in rows]))


class Model(nn.Module):
    def __init__(self, method, tokens=TOKENS):
        super().__init__()
        self.words, self.places = nn.Embedding(len(WORDS), E), nn.Parameter(torch.randn(tokens, E) / 5)
        self.norms = nn.ModuleList(nn.LayerNorm(E) for _ in range(3))
        self.attend = (nn.MultiheadAttention(E, HEADS, batch_first=True) if method == "nn.MultiheadAttention"
                       else skytape.torch.Attention(method, E, HEADS, length=tokens))
        self.feed, self.head = (nn.Sequential(nn.Linear(E, 128), nn.GELU(), nn.Linear(128, out))
                                for out in (E, 10))

    def forward(self, ids):  # [B, N]
        x, padding = self.words(ids) + self.places, ids == 0  # [B, N, E], [B, N]
        y = self.norms[0](x)
        theirs = isinstance(self.attend, nn.MultiheadAttention)
        x = x + (self.attend(y, y, y, key_padding_mask=padding, need_weights=False)[0] if theirs
                 else self.attend(y, padding))
        x = self.norms[2](x + self.feed(self.norms[1](x))).masked_fill(padding[:, :, None], 0)
        return self.head(x.sum(1) / (~padding).sum(1, keepdim=True))  # [B, 10]


def trained(method, ids, labels, steps, batch=32):
    torch.manual_seed(0)
    model = Model(method, ids.shape[1])
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(steps):
        rows = torch.randint(len(ids), (batch,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(ids[rows]), labels[rows]).backward()
        optimizer.step()
    return model.eval()


def main(folder, steps, *methods):
    (ids, labels), (unseen, answers) = (split(f"{folder}/basic_{name}.tsv") for name in ("train", "test"))
    for method in methods:
        model = trained(method, ids, labels, int(steps))
        with torch.no_grad():
            right = torch.cat([model(part).argmax(1) for part in unseen.split(64)]) == answers
        print(f"{method:22} accuracy {right.double().mean():.3f}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
