"""Trained runs, and what their folders say, as rows for pandas.DataFrame."""
import json
import os
import pathlib
import warnings
from collections.abc import Iterable
from typing import Any

from numpy.typing import NDArray

from ._engine import DataError, UsageError
from ._engine import Run as _Run
from .waiting import interruptible


class Run:
    """A trained model: predict, encode, attention_maps, labels."""

    def __init__(self, folder: str | os.PathLike[str], checkpoint: str = "best",
                 device: str = "auto") -> None:
        if not isinstance(folder, (str, os.PathLike)):
            raise UsageError(f"load: folder: expected a path, got {type(folder).__name__}")
        folder = os.fspath(folder)
        for argument, value in (("folder", folder), ("checkpoint", checkpoint), ("device", device)):
            if not isinstance(value, str):
                raise UsageError(f"load: {argument}: expected a str, got {type(value).__name__}")
            if "\0" in value or value.encode(errors="ignore").decode() != value:
                raise UsageError(f"load: {argument}: expected text in UTF-8 without zeros, got {value!r:.80}")
        self._run = _Run(folder, checkpoint, device)

    def __repr__(self) -> str:
        return repr(self._run)

    @property
    def labels(self) -> list[str]:
        """The classes' names, in the order of predict()'s columns."""
        return self._run.labels

    def predict(self, texts: Iterable[str], draws: int = 1) -> tuple[list[str], NDArray[Any]]:
        """(labels, probabilities [B, C]) of texts, as `skytape predict` reads and answers them. draws: the
        answer is the mean of so many draws of the method, 1 to 1000."""
        from . import _whole
        probabilities = interruptible(self._run.probabilities, _list("predict", texts),
                                      _whole("draws", draws, 1))
        return [self.labels[best] for best in probabilities.argmax(1)], probabilities

    def encode(self, texts: Iterable[str]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Encodings [B, N, E] of texts, zero at padding, and the mask, bool [B, N], true for a token."""
        encodings, mask = interruptible(self._run.encodings, _list("encode", texts))
        return encodings, mask != 0

    def attention_maps(self, text: str) -> list[NDArray[Any]]:
        """The matrix [H, N, N] that each layer multiplies values with."""
        if not isinstance(text, str):
            raise UsageError(f"attention_maps: text: expected one text, a str, got {type(text).__name__}")
        _in_utf8("attention_maps: text", text)
        return interruptible(self._run.maps, text)


def _list(function, texts):
    """A list of texts; one text alone is refused, since it would be taken for a list of letters."""
    if isinstance(texts, (str, bytes)):
        raise UsageError(f"{function}: texts: expected a list of texts, got one {type(texts).__name__}; "
                         f"{function}([text]) takes one")
    try:
        texts = list(texts)
    except TypeError:
        raise UsageError(f"{function}: texts: expected a list of texts, got {type(texts).__name__}") from None
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise UsageError(f"{function}: texts[{i}]: expected a str, got {type(text).__name__}")
        _in_utf8(f"{function}: texts[{i}]", text)
    return texts


def _in_utf8(argument, text):
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{argument}: expected text that UTF-8 has, "
                         f"got {text[error.start]!r} at place {error.start}") from None


def load(folder: str | os.PathLike[str], checkpoint: str = "best", device: str = "auto") -> Run:
    """The model of a run's folder: predict, encode, attention_maps, labels."""
    return Run(folder, checkpoint, device)


def results(folder: str | os.PathLike[str] = "runs") -> list[dict[str, Any]]:
    """A row for each run below a folder: its settings, and what result.json says, a key a column. A run whose
    files cannot be read is left out, with a warning that names it."""
    rows = []
    for config in sorted(_folder("results", folder).rglob("config.json")):
        row, result = {"run": str(config.parent)}, config.with_name("result.json")
        try:
            for file in filter(pathlib.Path.exists, (config, result)):
                row |= _flat(_json(file, file.read_text(encoding="utf-8")))
        except (DataError, OSError, UnicodeDecodeError) as error:
            warnings.warn(f"results: left out {config.parent}: {error}", stacklevel=2)
            continue
        rows.append(row)
    return rows


def curves(run: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The rows of a run's metrics.jsonl: losses and accuracies over steps."""
    file = _folder("curves", run) / "metrics.jsonl"
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"curves: {file}: {error}") from None
    return [_json(f"{file}:{number}", line) for number, line in enumerate(lines, 1)]


def _folder(function, folder):
    if not isinstance(folder, (str, os.PathLike)):
        raise UsageError(f"{function}: expected a folder's path, got {type(folder).__name__}")
    path = pathlib.Path(folder)
    if not path.is_dir():
        raise DataError(f"{function}: no folder {path}")
    return path


def _json(place, text):
    """The object that the text is."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise DataError(f"{place}: no JSON: {error}") from None
    if not isinstance(found, dict):
        raise DataError(f"{place}: expected a JSON object, got {type(found).__name__}")
    return found


def _flat(tree, prefix=""):
    """{"a": {"b": 1}} as {"a.b": 1}."""
    rows = {}
    for key, value in tree.items():
        rows |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return rows
