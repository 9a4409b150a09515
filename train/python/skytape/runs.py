"""Trained runs, and what their folders say, as rows for pandas.DataFrame."""
import json
import pathlib

from . import _engine

__all__ = ["load", "results", "curves", "attention_matrices"]


def load(folder, checkpoint="best", device="auto"):
    """The model of a run's folder: predict, encode, attention_maps, labels."""
    return _engine.Run(str(folder), checkpoint, device)


def predict(run, texts, draws=1):
    """(labels, probabilities [B, C]) of texts, as `skytape predict` reads and answers them."""
    probabilities = run.probabilities(list(texts), draws)
    return [run.labels[best] for best in probabilities.argmax(1)], probabilities


_engine.Run.predict = predict


def results(folder="runs"):
    """A row for each run below a folder: its settings, and what result.json says, a key a column."""
    rows = []
    for config in sorted(pathlib.Path(folder).rglob("config.json")):
        result = config.with_name("result.json")
        rows.append({"run": str(config.parent), **_flat(json.loads(config.read_text())),
                     **(_flat(json.loads(result.read_text())) if result.exists() else {})})
    return rows


def curves(run):
    """The rows of a run's metrics.jsonl: losses and accuracies over steps."""
    with open(pathlib.Path(run) / "metrics.jsonl", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def _flat(tree, prefix=""):
    """{"a": {"b": 1}} as {"a.b": 1}."""
    rows = {}
    for key, value in tree.items():
        rows |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return rows


def attention_matrices(q, k, v, x, methods=None, features=0, head=0, seed=42):
    """{method: (matrix, the exact one it stands for, error)} of every method whose output is a matrix
    [N, N] times the values, for one example: q, k, v [1, H, N, D], the layer's input x [1, N, E].
    features=0: a quarter of N."""
    known = [row["name"] for row in _engine.methods()]
    return _engine.matrices(q, k, v, x, methods or known, features, head, seed)
