"""Write the files that are made from others: the catalogue of first-party components, and the reference for plugin authors.

    python scripts/generate.py [--check]

With ``--check`` nothing is written; the exit code is 1 if a file is not what it should be.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lagent.discovery import CORE, GROUPS, LIMITS, PLUGIN_API
from lagent.hooks import specs

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]

ROOT = Path(__file__).resolve().parent.parent
CATALOGUE = ROOT / "core/src/lagent/first_party.json"
REFERENCE = ROOT / "docs/plugins/reference.md"

KINDS: dict[str, tuple[str, str]] = {
    "llms": ("lagent.llms:BaseLLM", "A model. Implement `_complete` or `_stream`; declare `capabilities`."),
    "async_llms": ("lagent.llms:AsyncBaseLLM", "The asynchronous form of a model, under the same name."),
    "parsers": (
        "lagent.prompts.parsers:StrParser",
        "An output parser. Implement `parse_response`; where reading whole is not cheap, `stream`.",
    ),
    "aggregators": (
        "lagent.aggregators:DefaultAggregator",
        "Turns memory into model messages. Override `begin`, `convert` or `end`.",
    ),
    "memory": (
        "lagent.memory:MemoryStore",
        "Keeps messages beyond the process. (A subclass of `lagent.memory.Memory` is taken, too.)",
    ),
    "actions": ("lagent.actions:BaseAction", "A tool. Methods decorated with `tool_api` are what a model can call."),
    "agents": ("lagent.agents:Agent", "An agent. Override `forward`."),
    "hooks": ("lagent.hooks:Hook", "Implements some of the events below."),
    "commands": ("lagent.cli:Command", "A subcommand of `lagent`, made without arguments."),
}
"""What a component of each kind derives from or has, and what to implement."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file is out of date")
    check = parser.parse_args().check
    stale = [path for path, text in generated().items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        print(
            f"{path.relative_to(ROOT)} is out of date: run python scripts/generate.py"
            if check
            else f"wrote {path.relative_to(ROOT)}"
        )
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(generated()[path], encoding="utf-8")
    return int(check and bool(stale))


def generated() -> dict[Path, str]:
    """The files and what they should contain."""
    return {CATALOGUE: json.dumps(catalogue(), indent=2, sort_keys=True) + "\n", REFERENCE: "\n".join(reference()) + "\n"}


def catalogue() -> dict[str, dict[str, list[str]]]:
    """The names and classes of each first-party distribution that has components."""
    found: dict[str, dict[str, list[str]]] = {}
    for name, groups in projects().items():
        names: dict[str, set[str]] = {"classes": set()}
        for kind in set(GROUPS) - {"commands"}:
            for component, value in groups.get(GROUPS[kind], {}).items():
                names.setdefault(kind.removeprefix("async_"), set()).add(component)
                names["classes"].update(re.findall(r":([A-Z]\w*)$", value))
        if names["classes"]:
            found[name] = {key: sorted(values) for key, values in names.items()}
    return found


def projects() -> dict[str, Any]:
    """The entry points of each distribution of the workspace other than core."""
    files = [*ROOT.glob("*/pyproject.toml"), *ROOT.glob("plugins/*/pyproject.toml")]
    tables = [tomllib.loads(file.read_text(encoding="utf-8"))["project"] for file in files]
    return {table["name"]: table.get("entry-points", {}) for table in tables if table["name"] != CORE}


def reference() -> Iterator[str]:
    """The lines of the reference."""
    yield "# Reference for plugin authors\n"
    yield "Made from the code by `python scripts/generate.py`.\n"
    yield "## Entry-point groups\n"
    yield "An entry point maps the name that users write to `module:attribute`. What it refers to is usually a class, which is"
    yield "instantiated with the arguments that the user gives; a callable or a finished object may stand there, too.\n"
    for kind, (base, purpose) in KINDS.items():
        yield f"### `{GROUPS[kind]}`\n"
        yield f"{purpose} Base: `{base.replace(':', '.')}`.\n"
        yield from members(base)
    yield "### `lagent.<kind>.deprecated`\n"
    yield "Former names of components. They go on working, with a warning that names the new one: the entry of the same"
    yield "distribution in `lagent.<kind>` with the same value.\n"
    yield "### `lagent.plugin_api`\n"
    yield f"The versions of the plugin API that the distribution was built for, as names; this is version {PLUGIN_API[0]}.{PLUGIN_API[1]}."
    yield "See [versions.md](versions.md).\n"
    yield "## Environment variables\n"
    yield f"`{LIMITS[0]}` lists the distributions (`name`) and components (`distribution:name`) that may be found; `{LIMITS[1]}` those"
    yield f"that may not. Components of {CORE} are found unless they are listed in the second.\n"
    yield "## Events\n"
    yield markdown(inspect.cleandoc(specs.__doc__ or "")) + "\n"
    for event in specs.EVENTS:
        function = getattr(specs, event)
        yield f"### `{event}({', '.join(inspect.signature(function).parameters)})`\n"
        yield markdown(inspect.getdoc(function) or "") + "\n"


def members(base: str) -> Iterator[str]:
    """The public methods and properties of a base class, with the first paragraphs of their documentation."""
    module, _, name = base.partition(":")
    for attribute, value in vars(getattr(importlib.import_module(module), name)).items():
        function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        if inspect.isfunction(function) and (not attribute.startswith("_") or attribute in ("_complete", "_stream")):
            arguments = ", ".join(
                str(p).partition(":")[0].partition("=")[0] for p in inspect.signature(function).parameters.values()
            )
            call = (
                attribute if isinstance(value, property) else f"{attribute}({arguments.removeprefix('self').removeprefix(', ')})"
            )
            text = markdown(inspect.getdoc(function) or "").split("\n\n")[0].replace("\n", " ")
            yield f"- `{call}`" + (f": {text}" if text else "")
    yield ""


def markdown(text: str) -> str:
    """A docstring as Markdown: roles and double backquotes become single ones, the sections lists."""
    text = re.sub(r":\w+:`~?([^`]*)`", r"`\1`", text).replace("``", "`")
    text = re.sub(r"(?m)^    (\w+): ", r"- `\1`: ", text)
    return re.sub(r"(?m)^Returns:\n    ", "Returns: ", text)


if __name__ == "__main__":
    sys.exit(main())
