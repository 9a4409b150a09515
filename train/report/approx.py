"""Error against the number of features, from approx.json: Figure 1 of both papers."""

from style import Axis, Figure, Line, Lines, common_ends, small_multiples

REFERENCES = ("best rank d", "vmean")
MEASURES = {
    "absolute": ("error", 1.0, "error (spectral norm)"),
    "relative": ("relative", 100.0, "error, % of exact output"),
}


def line_of(name: str, cells: list[dict], features: list[int], key: str, scale: float) -> Line:
    """Returns the line of a method; one without features is the same at all numbers of them."""
    by = {cell["features"]: cell for cell in cells}
    some = [by[d] if d in by else by[None] for d in features]
    errors = [cell[f"{key}_se"] for cell in some]
    mean = [cell[f"{key}_mean"] for cell in some]
    return Line(
        name,
        features,
        [None if value is None else scale * value for value in mean],
        errors=None if None in errors else [scale * error for error in errors],
        reference=name in REFERENCES,
    )


def lines_of(cells: list[dict], target: str, measure: str) -> dict[int, list[Line]]:
    """Returns the lines of each length that has methods with a number of features."""
    key, scale, _ = MEASURES[measure]
    lines = {}
    for n in dict.fromkeys(cell["n"] for cell in cells):
        some = [cell for cell in cells if cell["n"] == n and cell["target"] == target]
        features = list(dict.fromkeys(cell["features"] for cell in some if cell["features"]))
        if features:
            lines[n] = [
                line_of(name, [c for c in some if c["attention"] == name], features, key, scale)
                for name in dict.fromkeys(cell["attention"] for cell in some)
            ]
    return lines


def figure(name: str, title: str, lines: dict[int, list[Line]], y: Axis) -> Figure:
    """Returns a picture with a row of panels for each length, all with one axis."""
    rows = [
        small_multiples(Lines(f"n = {n}", Axis("features d", "log2"), y, some))
        for n, some in lines.items()
    ]
    columns = len(rows[0]) if len(rows[0]) > 1 else min(3, len(rows))
    return Figure(name, title, [panel for row in rows for panel in row], columns)


def close_up(name: str, title: str, lines: dict[int, list[Line]], label: str) -> Figure | None:
    """Returns the same on an axis that ends a little above V-Mean's error: many lie close to it.

    Methods that are above it at every length and number of features are named in the title.
    Returns nothing without V-Mean.
    """
    means = [line.y[0] for some in lines.values() for line in some if line.name == "vmean"]
    if None in means or len(means) < len(lines):
        return None
    top = 1.2 * max(means)
    inside = {
        line.name
        for some in lines.values()
        for line in some
        if any(value is not None and value <= top for value in line.y)
    }
    above = [line.name for line in next(iter(lines.values())) if line.name not in inside]
    title += f" (close-up; above it: {', '.join(above)})" if above else " (close-up)"
    near = {n: [line for line in some if line.name in inside] for n, some in lines.items()}
    return figure(f"{name}-close-up", title, near, Axis(label, ends=(0, top)))


def figures(data: dict) -> list[Figure]:
    cells, source = data["details"]["results"], data["details"]["source"]
    found = []
    for target in ("softmax", "kernelized"):
        for measure, (_, _, label) in MEASURES.items():
            lines = lines_of(cells, target, measure)
            if not lines:
                continue
            name = f"{target}-{measure}"
            title = f"{measure.capitalize()} error against {target} attention: {source}"
            y = Axis(label, "log10")
            y.ends = common_ends([line for some in lines.values() for line in some], y, "y")
            found.append(figure(name, title, lines, y))
            closer = close_up(name, title, lines, label)
            if closer:
                found.append(closer)
    return found
