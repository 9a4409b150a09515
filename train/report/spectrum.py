"""Spectra of attention, from spectrum.json: Skyformer's Figure 4, Linformer's Figure 1."""

import numpy as np

from style import MOST_LINES, Axis, Cells, Figure, Line, Lines, small_multiples

Heads = list[dict]


def name_of(head: dict) -> str:
    return f"layer {head['layer']}" + ("" if head["head"] is None else f" head {head['head']}")


def mean(values: list) -> list:
    return np.mean(np.array(values, dtype=float), axis=0).tolist()


def means_of_layers(heads: Heads) -> Heads:
    """Returns for each layer the means of its heads' curves; its head is None."""
    means = []
    for layer in dict.fromkeys(head["layer"] for head in heads):
        some = [head for head in heads if head["layer"] == layer]
        outputs = [
            np.array(h["output_singular_values"]) / h["output_singular_values"][0] for h in some
        ]
        means.append(
            {
                "layer": layer,
                "head": None,
                "output_singular_values": mean(outputs),
                "leverage": mean([h["leverage"] for h in some]),
                "ridges": some[0]["ridges"],
                "statistical_dimension": mean([h["statistical_dimension"] for h in some]),
                **{
                    m: {"cumulative": mean([h[m]["cumulative"] for h in some])}
                    for m in ("softmax", "kernelized")
                },
            }
        )
    return means


def panel(title: str, heads: Heads, x: Axis, y: Axis, points) -> list[Lines]:
    """Returns the panels of one line for each head; `points` gives its x and y."""
    return small_multiples(
        Lines(title, x, y, [Line(name_of(head), *points(head)) for head in heads])
    )


def output_figure(heads: Heads, source: str) -> Figure:
    def points(head):
        values = head["output_singular_values"]
        return list(range(1, len(values) + 1)), [value / values[0] for value in values]

    title = "Singular values of attention outputs: " + source
    x, y = Axis("index"), Axis("singular value, share of the first", "log10")
    if len(heads) > 4 * MOST_LINES:
        return Figure(
            "output-spectrum", title, panel("means of layers", means_of_layers(heads), x, y, points)
        )
    layers = dict.fromkeys(head["layer"] for head in heads)
    return Figure(
        "output-spectrum",
        title,
        [
            one
            for layer in layers
            for one in panel(
                f"layer {layer}", [h for h in heads if h["layer"] == layer], x, y, points
            )
        ],
    )


def heat_map(heads: Heads, matrix: str, low: float) -> Cells:
    """Returns the share of the first quarter of the singular values; the last layer at the top."""
    layers = sorted({head["layer"] for head in heads}, reverse=True)
    numbers = sorted({head["head"] for head in heads})
    share = {(head["layer"], head["head"]): head[matrix]["share_at_quarter"] for head in heads}
    quarter = max(1, heads[0][matrix]["cumulative"][-1][0] // 4)
    return Cells(
        f"{matrix} matrix: share at index {quarter}",
        "head",
        "layer",
        [str(n) for n in numbers],
        [str(layer) for layer in layers],
        [[share.get((layer, n)) for n in numbers] for layer in layers],
        "cumulative share",
        (low, 1.0),
    )


def attention_figure(heads: Heads, lines: Heads, source: str) -> Figure:
    """Lines beside heat maps; both maps have one scale of colours."""
    count = heads[0]["softmax"]["cumulative"][-1][0]
    low = min(head[m]["share_at_quarter"] for head in heads for m in ("softmax", "kernelized"))
    low = min(np.floor(10 * low) / 10, 0.9)
    figure = Figure("attention-spectrum", "Spectra of attention matrices: " + source)
    of_layers = ", means of layers" if lines[0]["head"] is None else ""
    for matrix in ("softmax", "kernelized"):
        figure.panels += panel(
            f"{matrix} matrix{of_layers}",
            lines,
            Axis(f"index of {count} singular values"),
            Axis("cumulative share", ends=(0, 1.02)),
            lambda head, m=matrix: np.array(head[m]["cumulative"]).T.tolist(),
        )
        figure.panels.append(heat_map(heads, matrix, float(low)))
    figure.columns = len(figure.panels) // 2
    return figure


def theory_figure(lines: Heads, source: str) -> Figure:
    dimension = panel(
        "statistical dimension",
        lines,
        Axis("lambda, share of the matrix's norm", "log10"),
        Axis("statistical dimension", "log10"),
        lambda head: (head["ridges"], head["statistical_dimension"]),
    )
    leverage = panel(
        f"leverage scores, lambda = {lines[0]['ridges'][1]:g}",
        lines,
        Axis("rank among queries and keys", "log10"),
        Axis("leverage score", "log10"),
        lambda head: np.array(head["leverage"]).T.tolist(),
    )
    return Figure(
        "kernel-theory",
        "Kernel matrix of queries and keys: " + source,
        dimension + leverage,
        max(2, len(dimension)),
    )


def figures(data: dict) -> list[Figure]:
    heads, source = data["details"]["results"], data["details"]["source"]
    lines = heads if len(heads) <= MOST_LINES else means_of_layers(heads)
    return [
        output_figure(heads, source),
        attention_figure(heads, lines, source),
        theory_figure(lines, source),
    ]
