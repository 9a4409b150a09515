"""Perplexity against steps and seconds, from mlm-curves.csv: Linformer's Figure 3."""

import csv
from pathlib import Path

from style import Axis, Figure, Line, Lines, small_multiples

USUAL_SHARING = "keyvalue"  # of Linformer's projections, where sharings are not what is compared


def read(file: Path) -> list[dict]:
    """Returns the curves of the file: n, k (0: exact attention), sharing, and their points."""
    curves: dict[tuple, dict] = {}
    with file.open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            key = int(row["n"]), 0 if row["k"] == "exact" else int(row["k"]), row["sharing"]
            curve = curves.setdefault(key, dict(zip(("n", "k", "sharing"), key)) | {"points": []})
            curve["points"].append({of: float(row[of]) for of in ("step", "seconds", "perplexity")})
    return list(curves.values())


def panels(curves: list[dict], of: str, label: str) -> list[Lines]:
    """A panel for each n, one of the sharings, and one of the k that all n share."""

    def panel(title, some, name):
        lines = [
            Line(
                name(c),
                [p[of] for p in c["points"]],
                [p["perplexity"] for p in c["points"]],
                reference=c["k"] == 0,
            )
            for c in some
        ]
        return small_multiples(
            Lines(title, Axis(label), Axis("perplexity of hidden tokens", "log10"), lines)
        )

    lengths = sorted({c["n"] for c in curves})
    shortest = lengths[0]
    usual = [c for c in curves if c["k"] == 0 or c["sharing"] == USUAL_SHARING]
    found = []
    for n in lengths:
        found += panel(
            f"n = {n}",
            [c for c in usual if c["n"] == n],
            lambda c: "exact" if c["k"] == 0 else f"k = {c['k']}",
        )
    fixed = [{c["k"] for c in usual if c["n"] == n and c["k"]} for n in lengths]
    shared = max(set.intersection(*fixed), default=0)
    sharings = [c for c in curves if c["n"] == shortest and c["k"] == shared and c["k"]]
    if len(sharings) > 1:
        found += panel(f"n = {shortest}, k = {shared}: sharing", sharings, lambda c: c["sharing"])
    if len(lengths) > 1 and shared:
        found += panel(
            f"k = {shared} at every n",
            [c for c in usual if c["k"] == shared],
            lambda c: f"n = {c['n']}",
        )
    return found


def figures(file: Path) -> list[Figure]:
    curves = read(file)
    title = "Masked language models, perplexity against "
    return [
        Figure("mlm-steps", title + "steps", panels(curves, "step", "steps"), 2),
        Figure(
            "mlm-seconds",
            title + "seconds of training",
            panels(curves, "seconds", "seconds of training"),
            2,
        ),
    ]
