"""The tape and its drawing."""
import shutil
import subprocess

from ._engine import Dropout, Tape, Var, gradcheck, ops

__all__ = ["Dropout", "Tape", "Var", "gradcheck", "ops", "Drawing"]


class Drawing:
    """The graph of a tape as SVG; a notebook shows it."""

    def __init__(self, svg):
        self.svg = svg

    def _repr_svg_(self):
        return self.svg

    def save(self, path):
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.svg)


def draw(tape, title="", merge=False):
    """The tape as a graph, drawn by Graphviz: leaves on top, the last value at the bottom. merge leaves
    out operations that only move values."""
    if shutil.which("dot") is None:
        raise FileNotFoundError("draw: Graphviz is not installed; to install it: apt-get install graphviz")
    dot = subprocess.run(["dot", "-Tsvg"], input=tape.dot(title, merge), capture_output=True, text=True,
                         check=True)
    return Drawing(dot.stdout[dot.stdout.index("<svg"):])


Tape.draw = draw
