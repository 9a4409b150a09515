#!/usr/bin/env python3
"""tables.py FILE.json [NAME…]: prints tables of a JSON file as Markdown, all or those named."""

import json
import sys
from pathlib import Path


def text_of(cell, format: str) -> str:
    """Returns a cell as the program's own tables print it."""
    if cell is None:
        return "-"
    return cell if isinstance(cell, str) else format.format(cell)


def markdown(table: dict) -> str:
    """Returns the columns' titles and the rows."""

    def line(cells):
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    rows = [
        [text_of(cell, form) for cell, form in zip(row, table["formats"])] for row in table["rows"]
    ]
    return (
        "\n".join([line(table["columns"]), "|" + "---|" * len(table["columns"]), *map(line, rows)])
        + "\n"
    )


def tables_of(data: dict) -> list[tuple[str, dict]]:
    """Returns the named tables of a report, of a study, or of `skytape info attention --json`."""
    if "curves" in data:
        return [(table["name"], table) for table in data["accuracies"] + data["runs"]]
    if isinstance(data["tables"], dict):
        return list(data["tables"].items())
    return [(table["title"], table) for table in data["tables"]]


def main() -> int:
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    tables = tables_of(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    wanted = sys.argv[2:]
    for name in wanted:
        if name not in dict(tables):
            print(
                f"tables.py: {sys.argv[1]} has no table {name}; it has {', '.join(dict(tables))}",
                file=sys.stderr,
            )
            return 3
    texts = [
        (table["title"], markdown(table)) for name, table in tables if not wanted or name in wanted
    ]
    print(
        "\n".join(text if len(wanted) == 1 else f"### {title}\n\n{text}" for title, text in texts),
        end="",
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
