"""The matrices that methods multiply the values with, from matrix.json."""

import numpy as np

from style import Cells, Figure

MOST_OVER_EXACT = (
    4  # a method's weights may be this many times the exact ones before they leave the colours
)


def magnitude(matrices: list) -> float:
    return max(float(np.abs(np.array(matrix)).max()) for matrix in matrices)


def figures(data: dict) -> list[Figure]:
    facts, results = data["facts"], data["details"]["results"]
    exact = data["details"]["exact"]  # by its name: softmax, kernelized
    tokens = facts["tokens"]
    where = f"{facts['model']}, layer {facts['layer']}, head {facts['head']}"

    def cells(title, matrix, ends):
        return Cells(title, "key", "query", tokens, tokens, matrix, "weight", ends)

    found = []
    if len(results) > 1:
        bound = MOST_OVER_EXACT * magnitude(list(exact.values()))
        largest = min(bound, magnitude([result["matrix"] for result in results]))
        negative = any((np.array(result["matrix"]) < 0).any() for result in results)
        ends = (-largest if negative else 0.0, largest)  # one map of colours for all methods
        found.append(
            Figure(
                "matrices",
                f"{where}: what each method weighs tokens by",
                [cells(result["method"], result["matrix"], ends) for result in results],
                4,
            )
        )
    for result in results:
        target = exact[result["target"]]
        difference = (np.array(result["matrix"]) - np.array(target)).tolist()
        largest = magnitude([target, result["matrix"], difference])
        panels = [
            cells(title, matrix, (-largest, largest))
            for title, matrix in (
                ("exact: " + result["target"], target),
                (result["method"], result["matrix"]),
                ("difference", difference),
            )
        ]
        name = result["method"].replace("(", "").replace(")", "").replace(" ", "-")
        found.append(
            Figure(
                f"matrix-{name}", f"{where}: {result['method']} and {result['target']}", panels, 3
            )
        )
    return found
