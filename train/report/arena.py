"""Accuracy against seconds of training, a panel for each task, from report.json.

The front has the methods that nothing else beats: all others took longer than one that is as good.
"""

from style import Axis, Figure, Point, Points


def front_of(points: list[Point]) -> list[Point]:
    """Returns the points that no other one passes in both, from the quickest to the best."""
    front: list[Point] = []
    for point in sorted(points, key=lambda point: (point.x, -point.y)):
        if not front or point.y > front[-1].y:
            front.append(point)
    return front


def panel(picture: dict) -> Points:
    points = [
        Point(p["name"], p["seconds"], p["accuracy"], p["low"], p["high"])
        for p in picture["points"]
    ]
    levels = [] if picture["papers_best"] is None else [("papers' best", picture["papers_best"])]
    return Points(
        picture["task"],
        Axis("seconds of training", "log10"),
        Axis("test accuracy, %"),
        points,
        front_of(points),
        levels,
    )


def figures(report: dict) -> list[Figure]:
    panels = [panel(picture) for picture in report["arena"]]
    if not panels:
        return []
    return [Figure("arena", "Accuracy against seconds of training", panels)]
