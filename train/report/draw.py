#!/usr/bin/env python3
"""draw.py PLACE… [--out FOLDER]: draws the pictures of a study's folder, JSON or CSV file.

NAME.png and NAME.svg go beside the data, or into FOLDER. Exit codes: 0; 1 for data that are broken;
3 without matplotlib.
"""

import argparse
import json
import sys
from pathlib import Path

import approx
import arena
import curves
import language_models
import lengths
import matrices
import rates
import spectrum
import stability
from style import Figure, save

STUDIES = {
    "approx": approx.figures,
    "spectrum": spectrum.figures,
    "stability": stability.figures,
    "cost": lengths.figures,
    "matrix": matrices.figures,
}


def figures_of(file: Path) -> list[Figure]:
    """Returns the figures of a file, if it has any. ValueError if it is broken."""
    if file.suffix == ".csv":
        return language_models.figures(file) if file.stem == "mlm-curves" else []
    data = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(data, dict):
        return []
    try:
        if "curves" in data:
            return arena.figures(data) + curves.figures(data) + rates.figures(data)
        if data.get("experiment") == "mlm-curves":
            return language_models.figures(file.with_suffix(".csv"))
        kind = STUDIES.get(data.get("experiment", ""))
        return kind(data) if kind else []
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(
            f"not what its kind of picture is drawn from: {type(error).__name__} {error}"
        ) from error


def files_of(place: Path) -> list[Path]:
    """Returns the file, or those of the folder; a CSV file beside its JSON is read with that."""
    if not place.is_dir():
        return [place]
    alone = [file for file in place.glob("*.csv") if not file.with_suffix(".json").exists()]
    return sorted([*place.glob("*.json"), *alone])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("places", nargs="+", type=Path, metavar="PLACE")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    drawn = 0
    for place in options.places:
        for file in files_of(place):
            try:
                figures = figures_of(file)
            except (OSError, ValueError) as error:
                print(f"draw.py: {file}: {error}", file=sys.stderr)
                return 1
            folder = options.out or file.parent
            folder.mkdir(parents=True, exist_ok=True)
            for figure in figures:
                print(save(figure, folder)[0])
                drawn += 1
    if drawn == 0:
        print(f"draw.py: nothing to draw in {', '.join(map(str, options.places))}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
