"""Gradient norms and losses of the first steps of training, from stability.json."""

from style import Axis, Figure, Line, Lines, small_multiples


def figures(data: dict) -> list[Figure]:
    traces = data.get("details", {}).get("gradients", [])
    if not traces:
        return []  # nothing was trained

    def panel(title, key, y):
        lines = []
        for trace in traces:
            name = trace["attention"] + (
                f" (not finite at {trace['failed_at']})" if trace["failed_at"] else ""
            )
            lines.append(Line(name, list(range(1, len(trace[key]) + 1)), trace[key]))
        return small_multiples(Lines(title, Axis("step"), y, lines))

    facts = data["facts"]
    return [
        Figure(
            "stability_gradients",
            f"Gradients: {facts['trained on']}, recipe {facts['recipe']}",
            panel("gradient norm before clipping", "norm", Axis("norm", "log10"))
            + panel("training loss", "loss", Axis("cross entropy")),
        )
    ]
