"""``lagent plugins``: what is installed."""

from __future__ import annotations

import argparse
import json
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
    """Print rows under their headings, each on one line, which a terminal cuts where it is too narrow.

    A first column that repeats is left empty.
    """
    from rich.console import Console
    from rich.text import Text

    lines = [list(columns), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text, last = Text(), ""
    for first, *rest in lines:
        style = "bold" if not text else None
        text.append(("" if first == last else first).ljust(widths[0]), style or "cyan")
        cells = (cell.ljust(width) for cell, width in zip(rest, widths[1:], strict=True))
        text.append(f"  {'  '.join(cells)}".rstrip() + "\n", style)
        last = first
    console = Console()
    cut = console.is_terminal
    console.print(text, end="", no_wrap=True, overflow="ellipsis" if cut else "ignore", crop=cut)
