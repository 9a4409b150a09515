"""Time of a step and of inference against length, from cost.json: Linformer's Figure 2."""

from style import Axis, Figure, Line, Lines, small_multiples


def step_figure(rows: list[list], title: str) -> Figure:
    """Training steps of one example and of a number of tokens; softmax is in each panel."""
    tokens = title.rsplit("batch of ", 1)[-1]
    lengths = Axis("tokens in a sequence", "log2")

    def panel(name, column):
        lines = []
        for method in dict.fromkeys(row[0] for row in rows):
            timed = [(row[1], row[column]) for row in rows if row[0] == method and row[column]]
            lines.append(
                Line(
                    method,
                    [n for n, _ in timed],
                    [ms for _, ms in timed],
                    reference=method == "softmax",
                )
            )
        return small_multiples(Lines(name, lengths, Axis("step, ms", "log10"), lines))

    one = panel("one example", 2)
    return Figure(
        "cost_length", "Training step against length", one + panel(tokens, 6), max(2, len(one))
    )


def inference_figure(rows: list[list]) -> Figure:
    """Linformer's forward pass: time of an example, and times faster than exact attention."""
    lengths = Axis("tokens in a sequence", "log2")
    exact = {row[0]: row[2] for row in rows}
    times = [Line("exact", list(exact), list(exact.values()), reference=True)]
    gains, papers = [], []
    for k in sorted({row[1] for row in rows}):
        some = [row for row in rows if row[1] == k]
        x = [row[0] for row in some]
        times.append(Line(f"k = {k:g}", x, [row[3] for row in some]))
        gains.append(Line(f"k = {k:g}", x, [row[4] for row in some]))
        papers.append(Line(f"k = {k:g}", x, [row[7] for row in some]))
    gain = Axis("times faster than exact attention", "log10")
    return Figure(
        "cost_inference",
        "Linformer's inference against length",
        small_multiples(
            Lines("time of an example", lengths, Axis("forward pass, ms", "log10"), times)
        )
        + small_multiples(Lines("gain, measured", lengths, gain, gains))
        + small_multiples(Lines("gain, as the paper prints it", lengths, gain, papers)),
        3,
    )


def figures(data: dict) -> list[Figure]:
    tables, found = data["tables"], []
    if "length" in tables:
        found.append(step_figure(tables["length"]["rows"], tables["length"]["title"]))
    if "inference" in tables and tables["inference"]["rows"]:
        found.append(inference_figure(tables["inference"]["rows"]))
    return found
