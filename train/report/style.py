"""What all pictures share: panels of lines and of coloured cells, their colours, labels and files.

A figure is a list of panels. `save` draws all of them into one picture; `panel_svg` draws a single
one, for a page that puts as many beside one another as the screen is wide.
"""

import io
import math
import sys
import textwrap
from dataclasses import dataclass, field, replace
from pathlib import Path

try:
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure as Canvas
    from matplotlib.text import Text
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
    import numpy as np
except ImportError as missing:
    print(
        f"Pictures need the Python package {missing.name}, which {sys.executable} does not have: "
        "apt-get install python3-matplotlib and use PYTHON=/usr/bin/python3, or install matplotlib "
        "in a venv and use PYTHON=VENV/bin/python.",
        file=sys.stderr,
    )
    sys.exit(3)

MOST_LINES = 7  # in a panel
LABEL_LETTERS = 18  # in a row of a label
TITLE_LETTERS = 52  # in a row of a title, for each panel in a row
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#5e3c99", "#8c510a")
MARKERS = "osv^D<>"
REFERENCE_COLOURS = ("#000000", "#777777")
ONE_SIGN, BOTH_SIGNS = "viridis", "RdBu_r"  # colour maps; of both signs, zero is white
PANEL_INCHES = (4.0, 3.0)
POINTS_INCHES = (4.8, 4.4)
FONT = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "figure.titlesize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.fonttype": "path",
    "svg.hashsalt": "skytape",
}


@dataclass
class Line:
    """A line; a value that is not finite is a gap. `low` and `high` are the ends of a band."""

    name: str
    x: list[float]
    y: list[float]
    errors: list[float] | None = None  # half lengths of error bars
    low: list[float] | None = None
    high: list[float] | None = None
    reference: bool = False  # drawn dashed in black or grey, and in each panel of the same kind
    place: int = -1  # of its colour in this picture, as `choose_colours` chooses it


@dataclass
class Axis:
    label: str  # with the unit
    scale: str = "linear"  # or log2, log10
    ends: tuple[float, float] | None = None  # none: as the numbers ask


@dataclass
class Lines:
    title: str
    x: Axis
    y: Axis
    lines: list[Line]


@dataclass
class Point:
    name: str
    x: float
    y: float
    low: float  # ends of a bar
    high: float


@dataclass
class Points:
    """Points with their names beside them. `front` is joined by a line, with its names in black."""

    title: str
    x: Axis
    y: Axis
    points: list[Point]
    front: list[Point]
    levels: list[tuple[str, float]]  # of y, drawn dashed


@dataclass
class Cells:
    """A rectangle of coloured cells, the first row at the top. NaN is an empty cell."""

    title: str
    x_label: str
    y_label: str
    columns: list[str]
    rows: list[str]
    values: list[list[float]]
    value_label: str
    ends: tuple[
        float, float
    ]  # of the colours; the label says them, and what lies beyond is counted
    numbers: str = ""  # format of a number in each cell; empty: none


@dataclass
class Figure:
    name: str  # of the files
    title: str
    panels: list["Panel"] = field(default_factory=list)
    columns: int = 2


Panel = Lines | Points | Cells


def text_of(value: float) -> str:
    """Returns a tick's text: 0.05, 200, 12,000, 2M, 1e-05."""
    if value != 0 and abs(value) < 1e-3:
        return f"{value:.0e}"
    return f"{value / 1e6:g}M" if abs(value) >= 1e6 else f"{value:,g}"


def drawable(values: list[float] | None, axis: Axis) -> np.ndarray:
    """Returns the values with NaN for those that the axis cannot show."""
    numbers = np.array([math.nan if v is None else v for v in values or []], dtype=float)
    with np.errstate(invalid="ignore"):
        bad = ~np.isfinite(numbers) | ((numbers <= 0) if axis.scale != "linear" else False)
    numbers[bad] = np.nan
    return numbers


def common_ends(lines: list[Line], axis: Axis, of: str) -> tuple[float, float] | None:
    """Returns the least and the largest value of the lines, a little widened; none: no value."""
    parts = [drawable(getattr(line, of), axis) for line in lines]
    if of == "y":
        parts += [drawable(side, axis) for line in lines for side in (line.low, line.high) if side]
    values = np.concatenate(parts) if parts else np.array([])
    values = values[np.isfinite(values)]
    if values.size == 0:
        return None
    low, high = float(values.min()), float(values.max())
    if axis.scale == "linear":
        room = 0.04 * (high - low) or 0.5
        return low - (room if of == "y" else 0), high + room
    room = (high / low) ** 0.04 if high > low else 1.5
    return low / room, high * room


def small_multiples(panel: Lines) -> list[Lines]:
    """Splits a panel of many lines into panels of seven at most, with the same axes.

    Reference lines stand in each of them.
    """
    references = [line for line in panel.lines if line.reference]
    others = [line for line in panel.lines if not line.reference]
    most = MOST_LINES - len(references)
    if len(others) <= most:
        return [panel]
    x = replace(panel.x, ends=panel.x.ends or common_ends(panel.lines, panel.x, "x"))
    y = replace(panel.y, ends=panel.y.ends or common_ends(panel.lines, panel.y, "y"))
    count = -(-len(others) // most)
    panels = []
    for i in range(count):
        some = others[len(others) * i // count : len(others) * (i + 1) // count]
        panels.append(Lines(f"{panel.title} ({i + 1} of {count})", x, y, some + references))
    return panels


def choose_colours(panels: list[Panel]) -> None:
    """Gives each name one colour, and no two lines of a panel the same."""
    places: dict[str, int] = {}
    drawn_lines = [
        [line for line in p.lines if not line.reference] for p in panels if isinstance(p, Lines)
    ]
    for lines in drawn_lines:
        for line in lines:
            near = {
                places.get(other.name)
                for some in drawn_lines
                if any(o.name == line.name for o in some)
                for other in some
                if other.name != line.name
            }
            free = [i for i in range(len(COLOURS)) if i not in near]
            places.setdefault(line.name, free[0] if free else len(places) % len(COLOURS))
    for lines in drawn_lines:
        taken: set[int] = set()
        for line in lines:
            free = [i for i in range(len(COLOURS)) if i not in taken]
            line.place = places[line.name] if places[line.name] in free else free[0]
            taken.add(line.place)


def set_axis(axes, name: str, axis: Axis) -> None:
    """Gives an axis its label, scale, ends and ticks."""
    getattr(axes, f"set_{name}label")(axis.label)
    ticks = axes.xaxis if name == "x" else axes.yaxis
    if axis.scale != "linear":
        getattr(axes, f"set_{name}scale")("log", base=int(axis.scale[3:]))
    if axis.ends:
        getattr(axes, f"set_{name}lim")(axis.ends)
    low, high = getattr(axes, f"get_{name}lim")()
    if axis.scale == "log10" and 0 < low < high:
        decades = math.log10(high / low)
        subs = (1,) if decades > 3 else (1, 2, 5) if decades > 1 else (1, 1.5, 2, 3, 4, 5, 6, 8)
        ticks.set_major_locator(LogLocator(subs=subs, numticks=12))
        ticks.set_minor_locator(NullLocator())
    elif axis.scale == "linear":
        ticks.set_major_locator(MaxNLocator(4 if name == "x" else 6))
    ticks.set_major_formatter(FuncFormatter(lambda value, _: text_of(value)))


def draw_lines(axes, panel: Lines) -> None:
    """Draws the lines, each with its name as a label that `place_labels` puts in its place."""
    axes.set_title(panel.title)
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.line_labels, axes.line_means = [], []
    references = 0
    for line in panel.lines:
        x, y = drawable(line.x, panel.x), drawable(line.y, panel.y)
        if line.reference:
            style = {
                "color": REFERENCE_COLOURS[references % 2],
                "linestyle": "--" if references % 2 == 0 else ":",
            }
            references += 1
        else:
            style = {
                "color": COLOURS[line.place],
                "marker": MARKERS[line.place],
                "markersize": 3.5,
                "markevery": max(1, len(x) // 12),
            }
        if line.low:
            axes.fill_between(
                x,
                drawable(line.low, panel.y),
                drawable(line.high, panel.y),
                color=style["color"],
                alpha=0.2,
                linewidth=0,
            )
        axes.plot(x, y, linewidth=1.3, label=line.name, **style)
        if line.errors:
            axes.errorbar(
                x,
                y,
                yerr=np.array(line.errors, dtype=float),
                fmt="none",
                ecolor=style["color"],
                elinewidth=0.8,
                capsize=1.5,
            )
        drawn = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
        if drawn.size:
            axes.line_labels.append(
                (line.name, style["color"], float(x[drawn[-1]]), float(y[drawn[-1]]))
            )
            axes.line_means.append(float(y[drawn].mean()))
    if not axes.line_labels:
        axes.text(0.5, 0.5, "no data", ha="center", va="center", transform=axes.transAxes)
    set_axis(axes, "x", panel.x)
    set_axis(axes, "y", panel.y)
    if panel.x.scale == "log2":
        points = sorted(
            {v for line in panel.lines for v in drawable(line.x, panel.x) if math.isfinite(v)}
        )
        axes.set_xticks(points[:: max(1, -(-len(points) // 6))])
        axes.xaxis.set_minor_locator(NullLocator())
    make_labels(axes, panel)


def make_labels(axes, panel: Lines) -> None:
    """Adds the lines' names at the right; says of a line that its end lies outside the axis."""
    low, high = axes.get_ylim()
    texts = []
    for name, colour, x, y in axes.line_labels:
        beyond = " (above)" if y > high else " (below)" if y < low else ""
        texts.append(
            axes.annotate(
                "\n".join(textwrap.wrap(name + beyond, LABEL_LETTERS)),
                xy=(x, min(max(y, low), high)),
                xytext=(1.04, 0.5),
                textcoords="axes fraction",
                color=colour,
                va="center",
                annotation_clip=False,
                arrowprops={
                    "arrowstyle": "-",
                    "color": colour,
                    "linewidth": 0.6,
                    "alpha": 0.6,
                    "shrinkA": 0,
                    "shrinkB": 0,
                    "relpos": (0, 0.5),
                },
            )
        )
    axes.line_labels = texts


def place_labels(canvas) -> None:
    """Moves the labels beside their lines' ends, none over another. The layout is done before.

    Where lines end at one point, the upper label is that of the line which is higher elsewhere.
    """
    for axes in canvas.axes:
        texts = getattr(axes, "line_labels", [])
        if not texts:
            continue
        row = 1.25 * texts[0].get_size() * canvas.dpi / 72 / axes.get_window_extent().height
        half = [row * (text.get_text().count("\n") + 1) / 2 for text in texts]
        ends = [
            axes.transAxes.inverted().transform(axes.transData.transform(text.xy))[1]
            for text in texts
        ]
        order = sorted(range(len(texts)), key=lambda i: (round(ends[i], 3), axes.line_means[i]))
        at = [ends[i] for i in order]
        for i in range(1, len(at)):
            at[i] = max(at[i], at[i - 1] + half[order[i - 1]] + half[order[i]])
        at[-1] = min(at[-1], 1.0)
        for i in range(len(at) - 2, -1, -1):
            at[i] = min(at[i], at[i + 1] - half[order[i + 1]] - half[order[i]])
        for i, place in zip(order, at):
            texts[i].set_position((1.04, place))


def draw_points(axes, panel: Points) -> None:
    """Draws the points, their front and the levels; `place_names` puts the names beside them.

    A level far from all points is only told in the title: it would squeeze them.
    """
    low = min((point.low for point in panel.points), default=0.0)
    high = max((point.high for point in panel.points), default=1.0)
    room = max(high - low, 1.0)
    near = [(name, y) for name, y in panel.levels if low - room <= y <= high + room]
    far = [f"{name}: {y:g}" for name, y in panel.levels if (name, y) not in near]
    axes.set_title("; ".join([panel.title, *far]))
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    for point in panel.points:
        on_front = point in panel.front
        colour = COLOURS[0] if on_front else "#888888"
        axes.plot([point.x], [point.y], "o", color=colour, markersize=5 if on_front else 4)
        if point.high > point.low:
            axes.plot([point.x] * 2, [point.low, point.high], color=colour, linewidth=0.8)
    axes.plot(
        [point.x for point in panel.front],
        [point.y for point in panel.front],
        color=COLOURS[0],
        linewidth=1.2,
        drawstyle="steps-post",
    )
    set_axis(axes, "x", panel.x)
    axes.margins(0.12, 0.08)
    for name, level in near:
        axes.axhline(level, color="#000000", linestyle="--", linewidth=0.8)
        axes.annotate(
            name, (0.0, level), xycoords=("axes fraction", "data"), xytext=(3, 3),
            textcoords="offset points", fontsize=8.5,
        )  # fmt: skip
    set_axis(axes, "y", panel.y)
    axes.front = panel.front
    axes.named_points = [
        (
            axes.annotate(
                point.name,
                (point.x, point.y),
                xytext=(6, 0),
                textcoords="offset points",
                va="center",
                fontsize=8.5,
                color="#000000" if point in panel.front else "#555555",
                arrowprops={"arrowstyle": "-", "color": "#aaaaaa", "linewidth": 0.5},
            ),
            point,
        )
        for point in sorted(panel.points, key=lambda point: point not in panel.front)
    ]


def place_names(canvas) -> None:
    """Moves each name to the nearest place where it covers no point and no other name.

    Nor may the line from the name to its point. The layout is done before. A name that finds no
    such place stays where it covers the least.
    """
    renderer = canvas.canvas.get_renderer()
    pixel = canvas.dpi / 72
    for axes in canvas.axes:
        named = getattr(axes, "named_points", [])
        if not named:
            continue
        frame = axes.get_window_extent(renderer)
        marks = [axes.transData.transform((point.x, point.y)) for _, point in named]
        taken = [(x - 3 * pixel, y - 3 * pixel, x + 3 * pixel, y + 3 * pixel) for x, y in marks]
        front = [axes.transData.transform((point.x, point.y)) for point in axes.front]
        for (x, y), (next_x, next_y) in zip(front, front[1:]):
            taken += [(x, y - 1, next_x, y + 1), (next_x - 1, y, next_x + 1, next_y)]
        for (text, _), mark in zip(named, marks):
            box = Text.get_window_extent(text, renderer)  # without the line to its point
            best = None
            for distance in range(6, 66, 6):
                for turn in range(0, 360, 30):
                    dx = distance * math.cos(math.radians(turn))
                    dy = distance * math.sin(math.radians(turn))
                    before = box.width if dx < -1 else 0 if dx > 1 else box.width / 2
                    left = mark[0] + dx * pixel - before
                    low = mark[1] + dy * pixel - box.height / 2
                    place = (left, low, left + box.width, low + box.height)
                    line = line_to(place, mark, pixel)
                    cost = outside(place, frame) + sum(
                        overlap(part, other) for part in [place, *line] for other in taken
                    )
                    if best is None or cost < best[0]:
                        best = (cost, place, line)
                if best[0] == 0:
                    break
            place = best[1]
            taken += [place, *best[2]]
            text.set_position(
                ((place[0] - mark[0]) / pixel, ((place[1] + place[3]) / 2 - mark[1]) / pixel)
            )


def line_to(place: tuple, mark: tuple, pixel: float) -> list[tuple]:
    """Returns small boxes along the line from a point to the nearest side of a box."""
    end = (min(max(mark[0], place[0]), place[2]), (place[1] + place[3]) / 2)
    length = math.dist(end, mark)
    spots = [
        [mark[i] + share * (end[i] - mark[i]) for i in range(2)]
        for share in np.arange(4 * pixel, length - pixel, 2 * pixel) / max(length, 1)
    ]
    return [(x - pixel, y - pixel, x + pixel, y + pixel) for x, y in spots]


def overlap(one: tuple, other: tuple) -> float:
    """Returns the area that two boxes (left, low, right, high) have in common."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return width * height if width > 0 and height > 0 else 0.0


def outside(place: tuple, frame) -> float:
    """Returns the area of a box outside a frame."""
    area = (place[2] - place[0]) * (place[3] - place[1])
    return area - overlap(place, (frame.x0, frame.y0, frame.x1, frame.y1))


def draw_cells(axes, panel: Cells) -> None:
    """Draws the cells, and a colour bar that says the range. Values beyond it are crossed."""
    values = np.array(
        [[math.nan if v is None else v for v in row] for row in panel.values], dtype=float
    )
    low, high = panel.ends
    both = low < 0
    if both:
        high = max(-low, high)
        low = -high
    beyond = np.isfinite(values) & ((values < low) | (values > high))
    title = panel.title
    if both and np.isfinite(values).any():
        title += f"\n{np.nanmin(values):.2f} to {np.nanmax(values):.2f}"
    if beyond.any():
        title += f"; ×: {int(beyond.sum())} beyond the colours"
    axes.set_title(title)
    axes.set_facecolor("#eeeeee")
    mesh = axes.pcolormesh(
        values,
        cmap=BOTH_SIGNS if both else ONE_SIGN,
        norm=Normalize(low, high),
        edgecolors="#ffffff",
        linewidth=0.4,
    )
    axes.invert_yaxis()
    for row, column in zip(*np.nonzero(beyond)):
        axes.text(
            column + 0.5, row + 0.5, "×", ha="center", va="center", color="#ffffff", fontsize=7
        )
    if panel.numbers:
        for row, column in zip(*np.nonzero(np.isfinite(values))):
            r, g, b, _ = mesh.cmap(mesh.norm(values[row, column]))
            dark = 0.3 * r + 0.6 * g + 0.1 * b < 0.5
            axes.text(
                column + 0.5,
                row + 0.5,
                panel.numbers.format(values[row, column]),
                ha="center",
                va="center",
                color="#ffffff" if dark else "#000000",
            )
    upright = max(map(len, panel.columns)) * len(panel.columns) > 40
    axes.set_xticks(
        np.arange(len(panel.columns)) + 0.5, panel.columns, rotation=90 if upright else 0
    )
    axes.set_yticks(np.arange(len(panel.rows)) + 0.5, panel.rows)
    axes.tick_params(length=0, labelsize=8 if max(len(panel.columns), len(panel.rows)) < 20 else 6)
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    for spine in axes.spines.values():
        spine.set_visible(False)
    ends = {
        (False, False): "neither",
        (True, False): "min",
        (False, True): "max",
        (True, True): "both",
    }
    bar = axes.figure.colorbar(
        mesh, ax=axes, extend=ends[bool((values < low).any()), bool((values > high).any())]
    )
    bar.set_label(f"{panel.value_label}, {low:.3g} to {high:.3g}")
    bar.outline.set_visible(False)


def inches_of(panel: Panel) -> tuple[float, float]:
    """Returns the size of a panel: cells and the names beside them need room."""
    width, height = POINTS_INCHES if isinstance(panel, Points) else PANEL_INCHES
    if isinstance(panel, Points) and len(panel.points) > 15:  # their names need room
        width, height = 1.5 * width, 1.3 * height
    if isinstance(panel, Cells):
        high = 1.2 + 0.17 * len(panel.rows)
        if max(map(len, panel.columns)) * len(panel.columns) > 40:
            high += 0.07 * max(map(len, panel.columns))
        height = max(height, high)
    return width, height


def drawn(panels: list[Panel], columns: int, title: str = "") -> Canvas:
    """Returns the panels drawn, from left to right, then from top to bottom.

    Their lines have the colours that `choose_colours` gave them.
    """
    columns = max(1, min(columns, len(panels)))
    rows = -(-len(panels) // columns)
    width, height = (max(sizes) for sizes in zip(*map(inches_of, panels)))
    title = "\n".join(textwrap.wrap(title, TITLE_LETTERS * columns))
    with rc_context(FONT):
        canvas = Canvas(
            figsize=(columns * width, rows * height + 0.35 * len(title.splitlines())),
            layout="constrained",
            dpi=110,
        )
        FigureCanvasAgg(canvas)
        for i, panel in enumerate(panels):
            axes = canvas.add_subplot(rows, columns, i + 1)
            draw = {Lines: draw_lines, Points: draw_points, Cells: draw_cells}[type(panel)]
            draw(axes, panel)
        if title:
            canvas.suptitle(title)
        canvas.draw_without_rendering()
        canvas.set_layout_engine("none")
        place_labels(canvas)
        place_names(canvas)
    return canvas


def save(figure: Figure, folder: Path) -> list[Path]:
    """Writes NAME.png and NAME.svg into the folder, and returns their paths."""
    choose_colours(figure.panels)
    canvas = drawn(figure.panels, figure.columns, figure.title)
    files = [folder / f"{figure.name}.{ending}" for ending in ("png", "svg")]
    with rc_context(FONT):
        canvas.savefig(files[0])
        canvas.savefig(files[1], metadata={"Date": None})
    return files


def panel_svg(panel: Panel) -> str:
    """Returns a panel as the text of an SVG picture."""
    text = io.StringIO()
    canvas = drawn([panel], 1)
    with rc_context(FONT):
        canvas.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()
