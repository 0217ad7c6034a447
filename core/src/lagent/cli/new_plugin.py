"""``lagent new-plugin``: a distribution to begin with, made from the example in lagent-echo."""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import keyword
import re
import sys
from importlib.metadata import version
from pathlib import Path

from lagent import registry
from lagent.catalogue import component_hint
from lagent.discovery import CORE, GROUPS, PLUGIN_API, canonical
from lagent.errors import ConfigurationError

__all__ = ["KINDS", "NewPluginCommand", "write_plugin"]

KINDS: dict[str, dict[str, str]] = {
    "llm": {"llms": "ParrotModel", "async_llms": "AsyncParrotModel"},
    "parser": {"parsers": "ParrotParser"},
    "memory": {"memory": "ParrotStore"},
    "aggregator": {"aggregators": "ParrotAggregator"},
    "action": {"actions": "ParrotAction"},
    "hook": {"hooks": "ParrotHook"},
    "agent": {"agents": "ParrotAgent"},
}
"""What can be made: the modules of the example, and the classes in them by the kind of component."""

LICENSES = ("Apache-2.0", "MIT", "BSD-3-Clause")

_TOML = {
    "llm": '[agent.llm]\ntype = "{}"',
    "parser": '[agent]\noutput_format = "{}"',
    "memory": '[agent]\nmemory = "{}"',
    "aggregator": '[agent]\naggregator = "{}"',
    "action": '[agent]\ntype = "tools"\nactions = ["{}"]',
    "hook": '[agent]\nhooks = ["{}"]',
    "agent": '[agent]\ntype = "{}"',
}
"""How a configuration chooses it."""


class NewPluginCommand:
    """Writes a complete distribution: metadata, typed source, tests with the conformance kit, README, licence, CI."""

    help = "begin a distribution of your own"
    examples = {  # noqa: RUF012
        "lagent new-plugin lagent-acme --kind llm": "a model called 'acme', in the folder lagent-acme",
        "lagent new-plugin acme-tools --kind action --license MIT": "an action",
    }

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("name", help="the name of the distribution; the component is called so too, less 'lagent-'")
        parser.add_argument("--kind", choices=KINDS, required=True, help="what it adds to lagent")
        parser.add_argument("--license", choices=LICENSES, default=LICENSES[0], help=f"default: {LICENSES[0]}")
        parser.add_argument("--author", help="who holds the copyright (default: 'the authors of' and the name)")
        parser.add_argument(
            "--into", type=Path, default=Path(), metavar="FOLDER", help="where the new folder goes (default: here)"
        )

    def run(self, args: argparse.Namespace) -> int:
        folder = write_plugin(args.name, args.kind, args.into, args.license, args.author)
        print(
            f"{folder} is ready:\n\n    cd {folder}\n    pip install -e . --group dev\n    pytest\n    lagent doctor {args.name}"
        )
        return 0


def write_plugin(name: str, kind: str, into: Path, license: str = LICENSES[0], author: str | None = None) -> Path:
    """Write the distribution ``name`` into a new folder below ``into``, and give that folder.

    Args:
        kind: one of :data:`KINDS`.
        license: the SPDX identifier of one of :data:`LICENSES`.
        author: who holds the copyright.

    Raises:
        ConfigurationError: the name cannot be used, the folder is there already, or lagent-echo is missing.
    """
    example = importlib.util.find_spec("lagent_echo")
    if example is None or example.origin is None:
        raise ConfigurationError("new plugins are made from the example in lagent-echo: pip install lagent-echo")
    source = Path(example.origin).parent / "parrot"
    distribution, package = canonical(name), canonical(name).replace("-", "_")
    component = distribution.removeprefix("lagent-")
    _check_name(name, package, component, kind)
    folder = into / distribution
    if folder.exists():
        raise ConfigurationError(f"{folder} is there already: choose another name, or another place with --into")
    camel = "".join(map(str.capitalize, component.split("-")))
    classes = {group: class_.replace("Parrot", camel) for group, class_ in KINDS[kind].items()}
    major, minor, *_ = version(CORE).split(".")
    values = {
        f"lagent_echo.parrot.{kind}": package,
        "Parrot": camel,
        "parrot": component,
        "@distribution@": distribution,
        "@package@": package,
        "@kind@": "model" if kind == "llm" else kind,
        "@group@": next(iter(classes)),
        "@license@": license,
        "@author@": author or f"the authors of {distribution}",
        "@year@": str(datetime.date.today().year),
        "@core@": f"{major}.{minor}",
        "@core_next@": f"{major}.{int(minor) + 1}",
        "@plugin_api@": ".".join(map(str, PLUGIN_API)),
        "@entry_points@": "\n\n".join(
            f'[project.entry-points."{GROUPS[group]}"]\n{component} = "{package}:{class_}"' for group, class_ in classes.items()
        ),
        "@toml@": _TOML[kind].format(component),
    }
    pattern = re.compile("|".join(map(re.escape, values)))
    for path, template in {
        f"src/{package}/{kind}.py": f"{kind}.py",
        f"tests/test_{kind}.py": f"test_{kind}.py",
        "LICENSE": f"files/LICENSE.{license}.in",
        "pyproject.toml": "files/pyproject.toml.in",
        "README.md": "files/README.md.in",
        ".gitignore": "files/gitignore.in",
        ".github/workflows/test.yml": "files/test.yml.in",
    }.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        text = (source / template).read_text(encoding="utf-8")
        (folder / path).write_text(pattern.sub(lambda match: values[match[0]], text), encoding="utf-8")
    names = sorted(classes.values())
    (folder / "src" / package / "py.typed").touch()
    (folder / "src" / package / "__init__.py").write_text(
        f'"""The {values["@kind@"]} ``{component}`` for lagent."""\n\nfrom {package}.{kind} import {", ".join(names)}\n\n'
        f"__all__ = [{', '.join(f'{name!r}' for name in names)}]\n".replace("'", '"')
    )
    return folder


def _check_name(name: str, package: str, component: str, kind: str) -> None:
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9]*([-_.]+[A-Za-z0-9]+)*", name) or keyword.iskeyword(package):
        raise ConfigurationError(
            f"{name!r} cannot be the name of a distribution and, as {package!r}, of a package: use letters, digits and '-'"
        )
    if package in sys.stdlib_module_names or importlib.util.find_spec(package) is not None:
        raise ConfigurationError(
            f"there is a package {package!r} already: choose another name, such as 'lagent-{component}-{kind}'"
        )
    for group in KINDS[kind]:
        taken = [entry.origin for entry in registry.entries(group) if entry.name == component]
        if hint := ", ".join(taken) or component_hint(group, component):
            raise ConfigurationError(f"the {kind} {component!r} exists already ({hint}): choose another name")
