"""The tape and its drawing."""
import shutil
import subprocess

from ._engine import Dropout, Tape, Var, gradcheck, ops  # noqa: F401

Var.shape = property(lambda self: self.value.shape)


class Drawing(str):
    """The graph of a tape as SVG; a notebook shows it."""

    def _repr_svg_(self):
        return str(self)


def draw(tape, title="", merge=False):
    """The tape as a graph, drawn by Graphviz: leaves on top, the last value at the bottom. merge leaves
    out operations that only move values."""
    if shutil.which("dot") is None:
        raise FileNotFoundError("draw: Graphviz is not installed; to install it: apt-get install graphviz")
    svg = subprocess.run(["dot", "-Tsvg"], input=tape.dot(title, merge), capture_output=True, text=True, check=True).stdout
    return Drawing(svg[svg.index("<svg"):])


Tape.draw = draw
