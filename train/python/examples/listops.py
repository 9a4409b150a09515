"""A small model on ListOps' first 64 tokens, its attention by skytape and by PyTorch.

  skytape data --task listops --limit 20000 --export listops
  python listops.py listops [STEPS]
"""
import pathlib
import sys
import time

import skytape.torch
import torch
from torch import nn
from torch.nn.functional import cross_entropy

WORDS = ["[MIN", "[MAX", "[MED", "[SM", "]", *map(str, range(10))]
N, E = 64, 32  # tokens, width
ATTENTIONS = {
    "skytape, skyformer": lambda: skytape.torch.Attention("skyformer", E, heads=2, features=16),
    "skytape, softmax": lambda: skytape.torch.Attention("softmax", E, heads=2),
    "nn.MultiheadAttention": lambda: nn.MultiheadAttention(E, 2, batch_first=True),
}


def split(file):
    """Tokens [B, N] without parentheses, and labels [B], of an official file."""
    rows = [row.split("\t") for row in pathlib.Path(file).read_text().splitlines()[1:]]
    words = [[WORDS.index(word) for word in text.split() if word not in "()"] for text, _ in rows]
    return torch.tensor([row[:N] for row in words]), torch.tensor([int(label) for _, label in rows])


class Model(nn.Module):
    def __init__(self, attention):
        super().__init__()
        self.words, self.places = nn.Embedding(len(WORDS), E), nn.Parameter(torch.randn(N, E) / 5)
        self.norm, self.attend = nn.LayerNorm(E), attention
        self.head = nn.Sequential(nn.LayerNorm(E), nn.Linear(E, 64), nn.GELU(), nn.Linear(64, 10))

    def forward(self, ids):  # [B, N]
        x = self.words(ids) + self.places  # [B, N, E]
        y = self.norm(x)
        theirs = isinstance(self.attend, nn.MultiheadAttention)
        x = x + (self.attend(y, y, y, need_weights=False)[0] if theirs else self.attend(y))
        return self.head(x.mean(1))  # [B, 10]


def trained(attention, ids, labels, steps, batch=64):
    torch.manual_seed(0)
    model = Model(attention())
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(steps):
        rows = torch.randint(len(ids), (batch,))
        optimizer.zero_grad()
        cross_entropy(model(ids[rows]), labels[rows]).backward()
        optimizer.step()
    return model.eval()


def main(folder, steps="500"):
    (ids, labels), (unseen, answers) = (split(f"{folder}/basic_{name}.tsv") for name in ("train", "test"))
    print(f"most frequent class: {(answers == labels.mode().values).double().mean():.3f}")
    for name, attention in ATTENTIONS.items():
        start = time.perf_counter()
        model = trained(attention, ids, labels, int(steps))
        seconds = time.perf_counter() - start
        with torch.no_grad():
            right = (model(unseen).argmax(1) == answers).double().mean()
        print(f"{name:22} accuracy {right:.3f}, {seconds / int(steps) * 1e3:.1f} ms a step")


if __name__ == "__main__":
    main(*sys.argv[1:])
