"""What installed distributions register, read from their metadata alone: nothing of theirs is imported."""

from __future__ import annotations

import functools
import importlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import Distribution, EntryPoint, distributions
from types import MappingProxyType

from attrs import define, field, frozen

__all__ = [
    "CORE",
    "GROUPS",
    "LIMITS",
    "PLUGIN_API",
    "Entry",
    "Installed",
    "api_problem",
    "canonical",
    "installed",
    "listed",
    "refresh",
    "scan",
]

CORE = "lagent-core"

GROUPS: Mapping[str, str] = MappingProxyType(
    {
        kind: f"lagent.{kind}"
        for kind in ("llms", "async_llms", "parsers", "aggregators", "memory", "actions", "agents", "hooks", "commands")
    }
)
"""The entry-point group of each kind of component. A group with ``.deprecated`` behind it holds the former names."""

PLUGIN_API = (1, 0)
"""The version, (major, minor), of everything that plugins build on; ``docs/plugins/versions.md`` says when it changes."""

LIMITS = ("LAGENT_PLUGINS", "LAGENT_DISABLE_PLUGINS")
"""The environment variables that limit what is found: an allow list, and a list of what is left out."""

_API_GROUP = "lagent.plugin_api"
_KIND_OF_GROUP = {group: kind for kind, group in GROUPS.items()}
_SUFFIX = ".deprecated"


@frozen
class Entry:
    """A component that is there to be had under a name.

    Attributes:
        name, kind: the name, and the kind as in :data:`GROUPS`.
        distribution: the distribution that registers it, in canonical form; empty for one that code registered.
        value: where it is, ``"module:attribute"``.
        deprecated: whether this is a former name.
    """

    name: str
    kind: str
    distribution: str
    value: str
    deprecated: bool = False
    point: EntryPoint | None = field(default=None, repr=False, eq=False)

    @property
    def version(self) -> str:
        """The version of the distribution; empty where there is none to be found."""
        return self.metadata("Version")

    @property
    def summary(self) -> str:
        """What the distribution says about itself in one line."""
        return self.metadata("Summary")

    def metadata(self, key: str) -> str:
        """A field of the distribution's metadata; empty where it has none or cannot be read."""
        return (_metadata(self.point.dist).get(key) or "") if self.point and self.point.dist else ""

    @property
    def keys(self) -> frozenset[str]:
        """How the environment variables of :data:`LIMITS` may name it."""
        return frozenset({self.distribution, f"{self.distribution}:{self.name}"})

    @property
    def place(self) -> str:
        """The folder, or other entry of the path, that the distribution is in."""
        return str(self.point.dist.locate_file("")) if self.point and self.point.dist else ""

    @property
    def origin(self) -> str:
        """The distribution and its version, for messages."""
        return f"{self.distribution} {self.version}".rstrip() or "this program"


@define
class Installed:
    """What a scan found.

    Attributes:
        entries: the components that can be had, by kind.
        deprecated: former names of components, by kind.
        api: the plugin API versions that a distribution declares to be built for.
        excluded: entries that ``LAGENT_PLUGINS`` or ``LAGENT_DISABLE_PLUGINS`` keeps out.
        shadowed: entries of distributions that are there a second time, later on the path, and of remains of uninstalled ones.
        damaged: distributions whose entry points cannot be read, with the reason.
    """

    entries: dict[str, list[Entry]] = field(factory=lambda: {kind: [] for kind in GROUPS})
    deprecated: dict[str, list[Entry]] = field(factory=lambda: {kind: [] for kind in GROUPS})
    api: dict[str, list[str]] = field(factory=dict)
    excluded: list[Entry] = field(factory=list)
    shadowed: list[Entry] = field(factory=list)
    damaged: dict[str, str] = field(factory=dict)


def canonical(distribution: str) -> str:
    """The one spelling of a distribution's name: ``"Lagent_vLLM"`` is ``"lagent-vllm"``."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def scan() -> Installed:
    """Read the metadata of everything on :data:`sys.path`.

    This is :func:`importlib.metadata.entry_points` with three differences: a damaged distribution does not hide the others, what
    the path hides is told, and distributions without components of ours cost no parsing.
    """
    found, seen = Installed(), set[str]()
    allowed, denied = map(listed, LIMITS)
    for dist in distributions():
        name = ""
        try:
            name = _name(dist)
            points: Iterable[EntryPoint] = dist.entry_points if "lagent." in (dist.read_text("entry_points.txt") or "") else ()
        except Exception as error:  # whatever the damage is, it must not hide the other distributions
            found.damaged[name or str(dist.locate_file(""))] = f"{type(error).__name__}: {error}"
            points = ()
        hidden = name in seen or name.startswith("~")  # pip leaves "~name" behind when it cannot remove a folder
        seen.add(name)
        for point in points:
            if point.group == _API_GROUP and not hidden:
                found.api.setdefault(name, []).append(point.name)
            deprecated = point.group.endswith(_SUFFIX)
            if (kind := _KIND_OF_GROUP.get(point.group.removesuffix(_SUFFIX))) is None:
                continue
            entry = Entry(point.name, kind, name, point.value, deprecated, point)
            if hidden:
                found.shadowed.append(entry)
            elif not _admits(entry, allowed, denied):
                found.excluded.append(entry)
            else:
                (found.deprecated if deprecated else found.entries)[kind].append(entry)
    return found


_installed: Installed | None = None


def installed() -> Installed:
    """What the last scan found; the first use scans."""
    global _installed
    if _installed is None:
        _installed = scan()
    return _installed


def refresh() -> None:
    """Scan anew at the next use: something was installed, removed or edited, or the limits changed."""
    global _installed
    importlib.invalidate_caches()
    _installed = None


def api_problem(declared: Sequence[str]) -> str | None:
    """What is wrong with a plugin that declares these versions of the plugin API, and what to do; ``None`` if it fits.

    One of them has to have our major version and no newer minor one. A plugin that declares nothing was built for version 1.
    """
    versions = [(int(v[1]), int(v[2] or 0)) for text in declared or ["1"] if (v := re.fullmatch(r"(\d+)(?:\.(\d+))?", text))]
    if any(major == PLUGIN_API[0] and minor <= PLUGIN_API[1] for major, minor in versions):
        return None
    behind = CORE if versions and min(versions) > PLUGIN_API else "it"
    return f"was built for plugin API {' or '.join(declared)}, but {CORE} has {PLUGIN_API[0]}.{PLUGIN_API[1]}: upgrade {behind}"


@functools.lru_cache(1024)  # parsing takes longer than all else, and the entries of a distribution share it
def _metadata(dist: Distribution) -> Mapping[str, str]:
    try:
        return dict(dist.metadata.items())  # type: ignore[attr-defined]
    except Exception:  # damaged metadata; what kind of exception it gives depends on the damage and on Python's version
        return {}


def _name(dist: Distribution) -> str:
    # The name from the folder's name: reading the metadata for it would cost more than all the rest of the scan.
    name = getattr(dist, "_normalized_name", None) or dist.metadata["Name"]
    return canonical(name)


def _admits(entry: Entry, allowed: frozenset[str] | None, denied: frozenset[str] | None) -> bool:
    if allowed is not None and entry.distribution != CORE and not entry.keys & allowed:  # core is no plugin
        return False
    return denied is None or not entry.keys & denied


def listed(variable: str) -> frozenset[str] | None:
    """The ``distribution`` and ``distribution:name`` of an environment variable of :data:`LIMITS`; ``None`` if it is not set."""
    if (text := os.environ.get(variable)) is None:
        return None
    parts = (item.partition(":") for item in re.split(r"[,\s]+", text.strip()) if item)
    return frozenset(canonical(distribution) + colon + name for distribution, colon, name in parts)
