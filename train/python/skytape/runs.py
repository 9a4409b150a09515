"""Trained runs, and what their folders say, as rows for pandas.DataFrame."""
import json
import pathlib

import numpy as np

from . import _engine


def load(folder, checkpoint="best", device="auto"):
    """The model of a run's folder: predict, encode, attention_maps, labels."""
    return _engine.Run(str(folder), checkpoint, device)


def predict(run, texts, draws=1):
    """(labels, probabilities [B, C]) of texts, as `skytape predict` reads and answers them."""
    probabilities = np.array(run.probabilities(list(texts), draws))
    return [run.labels[best] for best in probabilities.argmax(1)], probabilities


def attention_maps(run, text):
    """The matrix [H, N, N] that each layer multiplies values with."""
    return [np.array(heads) for heads in run.maps(text)]


_engine.Run.predict, _engine.Run.attention_maps = predict, attention_maps


def results(folder="runs"):
    """A row for each run below a folder: its settings, and what result.json says, a key a column."""
    rows = []
    for config in sorted(pathlib.Path(folder).rglob("config.json")):
        row, result = {"run": str(config.parent)}, config.with_name("result.json")
        for file in filter(pathlib.Path.exists, (config, result)):
            row |= _flat(json.loads(file.read_text()))
        rows.append(row)
    return rows


def curves(run):
    """The rows of a run's metrics.jsonl: losses and accuracies over steps."""
    lines = (pathlib.Path(run) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def _flat(tree, prefix=""):
    """{"a": {"b": 1}} as {"a.b": 1}."""
    rows = {}
    for key, value in tree.items():
        rows |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return rows
