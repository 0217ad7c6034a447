"""``lagent plugins``: what is installed."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence

from lagent import registry

__all__ = ["PluginsCommand", "print_table"]


class PluginsCommand:
    """Lists components from the metadata of what is installed; imports none."""

    help = "list the installed components by kind"
    examples = {"lagent plugins": "what can be chosen by name", "lagent plugins llms --json": "the models, for programs"}  # noqa: RUF012

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("kind", nargs="*", help=f"only these kinds: {', '.join(registry.GROUPS)}")
        parser.add_argument("--json", action="store_true", help="write JSON")

    def run(self, args: argparse.Namespace) -> int:
        columns = ["name", "distribution", "version", "summary"]
        rows = {
            kind: [{column: getattr(entry, column) for column in columns} for entry in registry.entries(kind)]
            for kind in args.kind or registry.GROUPS
        }
        if args.json:
            print(json.dumps(rows, indent=2))
        else:
            print_table(["kind", *columns], ([kind, *row.values()] for kind in rows for row in rows[kind]))
        return 0


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows under their headings, each on one line; the last column is cut where a terminal is too narrow.

    A first column that repeats is left empty.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells = [list(map(str, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column, width in zip(columns, [*widths[:-1], None], strict=True):
        table.add_column(column, no_wrap=True, min_width=width)
    last = None
    for first, *rest in cells:
        table.add_row(Text("" if first == last else first, "cyan"), *map(Text, rest))
        last = first
    Console(width=None if sys.stdout.isatty() else 10_000).print(table)
