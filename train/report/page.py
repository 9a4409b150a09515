#!/usr/bin/env python3
"""page.py: makes the report page of a folder of runs and studies, which needs no other file.

page.py report.json            from what `skytape-lab report` wrote
page.py --runs RUNS            runs that first; --watch SECONDS makes the page again and again
"""

import argparse
import json
import subprocess
import sys
import time
from html import escape
from pathlib import Path
from urllib.parse import quote

import arena
import curves
import rates
from draw import figures_of
from style import Figure, Lines, Panel, Points, choose_colours, panel_svg
from tables import text_of

BROAD = 10  # columns; a table of more has smaller letters on paper
STYLE = """
:root { color-scheme: light dark;
        --paper: #ffffff; --ink: #1b1b1b; --faint: #6b6b6b; --line: #d9d9d9; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #16181c; --ink: #e6e6e6; --faint: #a0a4ab; --line: #3a3e45; }
}
body { background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif;
       max-width: 76rem; margin: 0 auto; padding: 1rem .5rem; }
h1, h2 { line-height: 1.2; overflow-wrap: anywhere; }
h2 { border-bottom: 1px solid var(--line); margin-top: 2.5rem; }
figcaption { font-weight: 600; margin-bottom: .5rem; }
figure { margin: 1.5rem 0; }
.panels { display: flex; flex-wrap: wrap; gap: .75rem; }
.panels img { flex: 0 1 24rem; }
.panels img.broad { flex-basis: 30rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid var(--line); padding: .25rem .75rem .25rem 0; text-align: left;
         vertical-align: top; }
td.number { text-align: right; }
.note, .facts { color: var(--faint); font-size: .9rem; overflow-wrap: anywhere; }
img { max-width: 100%; height: auto; background: #ffffff; border-radius: 4px; min-width: 0; }
@media print {
  :root { --paper: #ffffff; --ink: #000000; --faint: #444444; --line: #bbbbbb; }
  body { max-width: none; font-size: 10pt; }
  .panels img { flex-basis: 48%; }
  table { font-size: 6.5pt; width: 100%; }
  table.broad { font-size: 5.5pt; }
  th, td { overflow-wrap: break-word; padding-right: .3rem; }
  img, tr { break-inside: avoid; }
  .wide { overflow: visible; }
}
"""


def heading(text: str) -> str:
    return f"<h2>{escape(text)}</h2>\n"


def cell_html(cell: str | float | None, form: str) -> str:
    number = "" if isinstance(cell, str) else " class=number"
    return f"<td{number}>{escape(text_of(cell, form))}</td>"


def table_html(table: dict) -> str:
    """Returns the table with its title and notes; numbers stand at the right."""
    broad = ' class="broad"' if len(table["columns"]) > BROAD else ""
    head = "".join(f"<th>{escape(title)}</th>" for title in table["columns"])
    rows = "".join(
        f"<tr>{''.join(map(cell_html, row, table['formats']))}</tr>\n" for row in table["rows"]
    )
    notes = "".join(f'<p class="note">{escape(note)}</p>\n' for note in table["notes"])
    return (
        f"<figure>\n<figcaption>{escape(table['title'])}</figcaption>\n"
        f'<div class="wide">\n<table{broad}>\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{rows}</tbody>\n</table></div>\n{notes}</figure>\n"
    )


DRAWN: dict[str, str] = {}  # by panel, so that a watched page draws what has changed


def svg_of(panel: Panel) -> str:
    key = repr(panel)
    if key not in DRAWN:
        DRAWN[key] = panel_svg(panel)
    return DRAWN[key]


def alternative_of(figure: Figure, panel: Panel) -> str:
    """Returns what a picture shows, for those who do not see it."""
    if isinstance(panel, Lines):
        return (
            f"{figure.title}: {panel.title}; lines: {', '.join(line.name for line in panel.lines)}"
        )
    if isinstance(panel, Points):
        front = ", ".join(point.name for point in panel.front)
        return f"{figure.title}: {panel.title}; not surpassed: {front}"
    return f"{figure.title}: {panel.title}; colours: {panel.value_label}"


def figure_html(figure: Figure) -> str:
    """Returns a picture for each panel, as many beside one another as the screen is wide."""
    choose_colours(figure.panels)
    pictures = [
        f'<img{" class=broad" * isinstance(panel, Points)} '
        f'alt="{escape(alternative_of(figure, panel))}" '
        f'src="data:image/svg+xml;charset=utf-8,{quote(svg_of(panel))}">\n'
        for panel in figure.panels
    ]
    return f"<div class=\"panels\">\n{''.join(pictures)}</div>\n"


def study_html(study: dict) -> str:
    """Returns a study's facts, pictures and tables. ValueError, KeyError… if it is broken."""
    file = Path(study["file"])
    data = json.loads(file.read_text(encoding="utf-8"))
    facts = "; ".join(
        [
            data["date"],
            data["revision"],
            data["machine"]["cpu"],
            ", ".join(f"{key} {value}" for key, value in data["facts"].items()),
        ]
    )
    return (
        heading(study["name"])
        + f'<p class="facts">{escape(facts)}</p>\n'
        + "".join(
            f"<p>{escape(figure.title)}</p>\n" + figure_html(figure) for figure in figures_of(file)
        )
        + "".join(table_html(table) for table in data["tables"].values())
    )


def page_of(report: dict, refresh: int = 0) -> str:
    """Returns the page: light or dark as the reader's system, readable on a phone and on paper.

    Above zero, the browser loads it anew every `refresh` seconds.
    """
    skipped = list(report["skipped"])
    title = escape(f"skytape: {report['title']}")
    body = f"<h1>{title}</h1>\n<p class=\"facts\">{escape(report['facts'])}</p>\n"
    body += "".join(heading(table["heading"]) + table_html(table) for table in report["accuracies"])
    for figure in arena.figures(report) + curves.figures(report) + rates.figures(report):
        body += heading(figure.title) + figure_html(figure)
    body += "".join(heading(table["heading"]) + table_html(table) for table in report["runs"])
    for study in report["studies"]:
        try:
            body += study_html(study)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            skipped.append(f"{study['file']}: broken: {error}")
            print(f"warning: skipped {skipped[-1]}", file=sys.stderr)
    if skipped:
        body += (
            heading("Skipped")
            + "<ul>\n"
            + "".join(f"<li>{escape(line)}</li>\n" for line in skipped)
            + "</ul>\n"
        )
    again = f'<meta http-equiv="refresh" content="{refresh}">\n' if refresh else ""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n{again}'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}"
        "</body>\n</html>\n"
    )


def write_page(report: Path, page: Path, refresh: int) -> None:
    """Makes the page of a report.json; a reader never sees half of it."""
    text = page_of(json.loads(report.read_text(encoding="utf-8")), refresh)
    page.parent.mkdir(parents=True, exist_ok=True)
    now = page.with_suffix(".now")
    now.write_text(text, encoding="utf-8")
    now.replace(page)
    print(page, flush=True)


def main() -> int:
    built = Path(__file__).resolve().parents[2] / "build/skytape-lab"
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("report", nargs="?", type=Path, help="report.json")
    parser.add_argument(
        "--runs", type=Path, help="folder of run folders and of studies' folders, or of one run"
    )
    parser.add_argument(
        "--out",
        type=Path,
        help="folder of the page, or the page: FILE.html; else beside report.json",
    )
    parser.add_argument(
        "--watch", type=int, default=0, help="make it again every so many seconds, until Ctrl-C"
    )
    parser.add_argument(
        "--lab", default=built if built.exists() else "skytape-lab", help="the program"
    )
    options = parser.parse_args()
    if (options.report is None) == (options.runs is None):
        parser.error("expected one of report.json and --runs RUNS")
    if options.watch < 0 or (options.watch and options.report):
        parser.error("--watch: expected --runs and a number of seconds")
    page = options.out or (options.report.parent if options.report else options.runs / "report")
    if page.suffix != ".html":
        page = page / "report.html"
    report = options.report or page.parent / "report.json"
    try:
        while True:
            if options.runs:
                subprocess.run(
                    [options.lab, "report", "--runs", options.runs, "--out", report.parent],
                    check=True,
                    stdout=subprocess.DEVNULL,
                )
            write_page(report, page, options.watch)
            if not options.watch:
                return 0
            time.sleep(options.watch)
    except KeyboardInterrupt:
        return 0
    except subprocess.CalledProcessError as failed:
        return failed.returncode  # the program has said why
    except (OSError, ValueError) as error:
        print(f"page.py: {error}", file=sys.stderr)
        return 3


if __name__ == "__main__":
    sys.exit(main())
