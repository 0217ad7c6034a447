"""``lagent doctor``: whether everything that is installed works."""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from typing import Any

from attrs import asdict

from lagent.cli.checks import Finding, check, target
from lagent.cli.plugins import print_table
from lagent.cli.probe import Import, import_all
from lagent.discovery import GROUPS, PLUGIN_API, Entry, api_problem, canonical, installed
from lagent.errors import ConfigurationError
from lagent.schema import to_data

__all__ = ["DoctorCommand"]


class DoctorCommand:
    """Imports every component, each module in a process of its own, and looks through the metadata of all distributions."""

    help = "check that every installed component can be used"
    examples = {  # noqa: RUF012
        "lagent doctor": "what does not work, and what to do",
        "lagent doctor acme-llm --json": "one distribution, for programs; the exit code is 1 if something is broken",
        "lagent doctor --model ./Qwen3-8B": "which parser reads the tool calls of a model, and whether it does",
    }

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("distribution", nargs="*", help="only these distributions")
        parser.add_argument(
            "--timeout", type=float, default=20.0, metavar="SECONDS", help="how long an import may take (default: 20)"
        )
        parser.add_argument(
            "--model", metavar="PATH", help="check instead whether the parser for a model reads what its chat template writes"
        )
        parser.add_argument("--json", action="store_true", help="write JSON")

    def run(self, args: argparse.Namespace) -> int:
        from rich.console import Console

        if args.model is not None:
            return _check_model(args.model, args.json)
        found, wanted = installed(), set(map(canonical, args.distribution))
        known = (e for kind in GROUPS for e in sorted(found.entries[kind] + found.deprecated[kind], key=lambda e: e.name))
        entries = [entry for entry in known if not wanted or entry.distribution in wanted]
        modules: dict[str, list[str]] = defaultdict(list)
        for module, attribute in (target(e) for e in entries if api_problem(found.api.get(e.distribution, [])) is None):
            modules[module].extend([attribute] if attribute else [])
        with Console(stderr=True).status("importing each plugin in a process of its own"):
            imports = import_all(modules, args.timeout)
        findings = [f for f in check(found, entries, imports) if not wanted or f.distribution in wanted]
        (_write_json if args.json else _show)([_row(entry, imports) for entry in entries], findings)
        return int(any(finding.level == "error" for finding in findings))


def _check_model(path: str, as_json: bool) -> int:
    try:
        from lagent_parsers.detect import check_model_template

        check = check_model_template(path)
    except ImportError as error:
        raise ConfigurationError("checking a model's chat template takes: pip install 'lagent-parsers[templates]'") from error
    if as_json:
        print(json.dumps(to_data(check), indent=2))
    else:
        choice = ", ".join(f"{key} = {json.dumps(value)}" for key, value in check.parser.items())
        print(f"output_format = {{ {choice} }}", *(f"error: {problem}" for problem in check.problems), sep="\n")
    return int(bool(check.problems))


def _row(entry: Entry, imports: dict[str, Import]) -> dict[str, Any]:
    """What is known of a component; ``import`` is ``"refused"``, ``"broken"`` or the seconds it took."""
    module, attribute = target(entry)
    state: str | float = "refused"
    if done := imports.get(module):
        state = "broken" if done.seconds is None or attribute in done.missing else round(done.seconds, 3)
    return {
        **{key: getattr(entry, key) for key in ("kind", "name", "distribution", "version")},
        "plugin_api": installed().api.get(entry.distribution, []),
        "import": state,
    }


def _write_json(rows: list[dict[str, Any]], findings: list[Finding]) -> None:
    api = ".".join(map(str, PLUGIN_API))
    print(json.dumps({"plugin_api": api, "components": rows, "findings": list(map(asdict, findings))}, indent=2))


def _show(rows: list[dict[str, Any]], findings: list[Finding]) -> None:
    from rich.console import Console
    from rich.text import Text

    for row in rows:
        row["plugin_api"] = ", ".join(row["plugin_api"])
        row["import"] = row["import"] if isinstance(row["import"], str) else f"{row['import']:.2f} s"
    print_table(["kind", "name", "distribution", "version", "plugin API", "import"], [list(row.values()) for row in rows])
    console = Console(soft_wrap=True)
    for finding in findings:
        style = {"error": "bold red", "warning": "yellow"}.get(finding.level, "dim")
        console.print(Text.assemble("\n", (finding.level, style), f": {finding.distribution}: {finding.problem}"))
        if finding.cure:
            console.print(Text(f"  {finding.cure}"))
    counts = {level: sum(finding.level == level for finding in findings) for level in ("error", "warning", "note")}
    summary = ", ".join(f"{count} {level}{'s' * (count > 1)}" for level, count in counts.items() if count)
    console.print(Text(f"\n{summary or 'everything works'}"))
