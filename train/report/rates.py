"""Accuracy and time against learning rate and batch, from report.json: Skeinformer's Figure 3."""

from style import Cells, Figure


def cells(group: dict, key: str, title: str, label: str, scale: float, numbers: str) -> Cells:
    """Returns the means over seeds, a row for each learning rate, the largest at the top."""
    rates = sorted({run["lr"] for run in group["runs"]}, reverse=True)
    batches = sorted({run["batch"] for run in group["runs"]})
    means = []
    for lr in rates:
        row = []
        for batch in batches:
            some = [
                scale * run[key]
                for run in group["runs"]
                if (run["lr"], run["batch"]) == (lr, batch)
            ]
            row.append(sum(some) / len(some) if some else None)
        means.append(row)
    known = [value for row in means for value in row if value is not None]
    return Cells(
        title,
        "batch",
        "learning rate",
        [f"{batch:g}" for batch in batches],
        [f"{lr:g}" for lr in rates],
        means,
        label,
        (min(known), max(known) if max(known) > min(known) else min(known) + 1),
        numbers,
    )


def figures(report: dict) -> list[Figure]:
    found = []
    for i, group in enumerate(report["rates"]):
        name = f"rates-{group['task']}-{group['attention']}" + (f"-{i}" if i else "")
        found.append(
            Figure(
                name,
                f"{group['task']}, {group['attention']}: learning rate and batch",
                [
                    cells(group, "dev_accuracy", "dev accuracy", "dev accuracy, %", 1.0, "{:.1f}"),
                    cells(group, "seconds", "time of training", "minutes", 1 / 60, "{:.3g}"),
                ],
            )
        )
    return found
