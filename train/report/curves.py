"""Training curves of runs, from report.json.

Skyformer's Figures 2 and 3, Skeinformer's Figure 2.
"""

import math

from style import Axis, Figure, Line, Lines, small_multiples


def mean_of(runs: list[dict], step: str, x: str, y: str) -> dict[str, list[float]]:
    """Returns the mean of the runs' values at each step, against the mean of x there.

    Of several runs, low and high are the ends of a band from the lowest to the highest value.
    """
    points: dict[float, list[tuple[float, float]]] = {}
    for run in runs:
        for at, where, value in zip(run[step], run[x], run[y]):
            if value is not None and math.isfinite(value):
                points.setdefault(at, []).append((where, value))
    rows = [points[at] for at in sorted(points)]
    curve = {
        "x": [sum(where for where, _ in row) / len(row) for row in rows],
        "y": [sum(value for _, value in row) / len(row) for row in rows],
    }
    if len(runs) > 1:
        curve |= {
            "low": [min(value for _, value in row) for row in rows],
            "high": [max(value for _, value in row) for row in rows],
        }
    return curve


def panels(task: dict) -> list[list[Lines]]:
    """Returns loss, dev loss and dev accuracy against steps and seconds, where there are any."""
    masked = "masked " if task["pretraining"] else ""
    kinds = [
        ("Training loss", "", "loss", f"{masked or 'training '}loss"),
        ("Dev loss", "dev_", "dev_loss", f"{masked}dev loss"),
        ("Dev accuracy", "dev_", "dev_accuracy", f"{masked}dev accuracy, %"),
    ]
    found = []
    for title, prefix, key, label in kinds:
        for x, axis, against in (
            ("step", "steps", "steps"),
            ("seconds", "seconds of training", "time"),
        ):
            lines = [
                Line(
                    line["name"].removeprefix(task["task"] + "-"),
                    **mean_of(line["runs"], prefix + "step", prefix + x, key),
                )
                for line in task["lines"]
            ]
            lines = [line for line in lines if line.x]
            if not lines:
                continue  # a run may have kept its evaluations alone
            last = max(line.x[-1] for line in lines)
            for name, level in (
                ("papers' best", task["papers_best"]),
                ("trivial", task["trivial"]),
            ):
                if key == "dev_accuracy" and level is not None:
                    lines.append(Line(name, [0.0, last], [level, level], reference=True))
            found.append(
                small_multiples(Lines(f"{title} against {against}", Axis(axis), Axis(label), lines))
            )
    return found


def figure(task: dict) -> Figure:
    several = any(len(line["runs"]) > 1 for line in task["lines"])
    title = task["task"] + (": pre-training" if task["pretraining"] else "")
    if several:
        title += "; lines: means over seeds, bands: lowest to highest"
    rows = panels(task)
    columns = max([2, *map(len, rows)])
    return Figure(
        ("pretraining-" if task["pretraining"] else "curves-") + task["task"],
        title,
        [panel for row in rows for panel in row],
        columns,
    )


def figures(report: dict) -> list[Figure]:
    return [figure(task) for task in report["curves"]]
