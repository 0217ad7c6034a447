"""Components by name: what installed distributions, and code, registered.

Listing reads metadata and imports nothing; getting a component imports that component's module and no other plugin's. The
environment variables ``LAGENT_PLUGINS`` (an allow list) and ``LAGENT_DISABLE_PLUGINS``, both lists of ``distribution`` or
``distribution:name``, limit what is found; they are read with the metadata, at the first use and at :func:`refresh`.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import inspect
import re
import warnings
from collections.abc import Iterable, Iterator
from importlib.metadata import EntryPoint
from types import TracebackType
from typing import Any

from attrs import field, frozen

from lagent import catalogue
from lagent.discovery import GROUPS, Entry, api_problem, canonical, installed, refresh
from lagent.errors import (
    ComponentConflictError,
    ComponentLoadError,
    ComponentNotFoundError,
    ConfigurationError,
    PluginVersionError,
)

__all__ = ["GROUPS", "Entry", "Registration", "create", "entries", "find_class", "get", "names", "refresh", "register"]

_CLASSES_OF = {
    "lagent.llms": ("llms", "async_llms"),
    "lagent.prompts.parsers": ("parsers",),
    "lagent.agents.aggregator": ("aggregators",),
    "lagent.memory": ("memory",),
    "lagent.actions": ("actions",),
    "lagent.agents": ("agents",),
    "lagent.hooks": ("hooks",),
}
"""The kinds of components whose classes can be had from a package of core."""

_OTHER_COLOUR = {"llms": ("async_llms",), "async_llms": ("llms",)}


@frozen(eq=False)
class Registration:
    """An object that code registered; it stays until :meth:`remove`, or the end of a ``with`` block, which gives the object."""

    entry: Entry
    component: Any = field(repr=False)

    def remove(self) -> None:
        """Take the object out of the registry; nothing happens if it is out already."""
        if self in _registered:
            _registered.remove(self)

    def __enter__(self) -> Any:
        return self.component

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.remove()


_registered: list[Registration] = []


def register(kind: str, name: str, component: Any) -> Registration:
    """Let ``component`` be found as ``name``; it comes before an installed one and an earlier registered one of that name.

    Args:
        component: a class, a callable or a finished object.
    """
    _check_kind(kind)
    entry = Entry(name, kind, "", f"{getattr(component, '__module__', '')}:{getattr(component, '__qualname__', name)}")
    registration = Registration(entry, component)
    _registered.append(registration)
    return registration


def entries(kind: str) -> list[Entry]:
    """The components of a kind, by name; those that code registered hide installed ones of their name.

    Raises:
        ComponentNotFoundError: there is no such kind.
    """
    _check_kind(kind)
    own = {r.entry.name: r.entry for r in _registered if r.entry.kind == kind}
    found = [*own.values(), *(entry for entry in installed().entries[kind] if entry.name not in own)]
    return sorted(found, key=lambda entry: (entry.name, entry.distribution))


def names(kind: str) -> list[str]:
    """The names of the components of a kind."""
    return sorted({entry.name for entry in entries(kind)})


def get(kind: str, name: str) -> Any:
    """The component, usually a class, that is registered under a name.

    A model that is registered in one colour only is found for the other one too, since agents take either.

    Args:
        name: the name, or ``"distribution:name"`` where several distributions register it.

    Raises:
        ComponentNotFoundError: nobody registers it.
        ComponentConflictError: several distributions do.
        ComponentLoadError: importing it failed; :class:`PluginVersionError` if it was built for another plugin API.
    """
    _check_kind(kind)
    return _component(_find(kind, name))


def create(kind: str, spec: Any, *, trusted: bool = True, **defaults: Any) -> Any:
    """Make a component of what a user wrote for it.

    Args:
        spec: one of

            - a name or ``"distribution:name"``: a class is instantiated, anything else given as it is;
            - a mapping ``{"type": …, **arguments}``, where the type is a name, a dotted path, a class or a callable: a class is
              instantiated, a callable becomes a :func:`functools.partial` of it;
            - a class: it is instantiated;
            - ``None`` or a finished object, which are returned.
        trusted: whether ``spec`` comes from code. What comes from a configuration file or a request may use names only.
        defaults: arguments for the constructor where ``spec`` does not give them.

    Raises:
        ConfigurationError: the arguments do not fit the constructor, or ``spec`` asks for what is not trusted.
        ComponentNotFoundError, ComponentConflictError, ComponentLoadError: see :func:`get`.
    """
    if not trusted:
        _check_untrusted(kind, spec)
    if isinstance(spec, str):
        component = get(kind, spec)
        return _instance(component, defaults, spec) if inspect.isclass(component) or defaults else component
    if inspect.isclass(spec):
        return _instance(spec, defaults, spec.__name__)
    if not isinstance(spec, dict):
        return spec
    arguments = {**defaults, **spec}
    if (type_ := arguments.pop("type", None)) is None:
        raise ConfigurationError(f"a table for {_a(kind)} needs a 'type', one of: {', '.join(names(kind))}; got {spec!r:.200}")
    component = _by_name_or_path(kind, type_) if isinstance(type_, str) else type_
    return _instance(component, arguments, type_ if isinstance(type_, str) else getattr(type_, "__name__", repr(type_)))


def find_class(module: str, name: str) -> Any:
    """The class ``name`` for ``module``'s own ``__getattr__``: the entry point whose value ends in that name has it.

    Raises:
        ComponentLoadError: a first-party distribution has it but is not installed. (An :class:`AttributeError` would lose its
            message in ``from lagent.llms import VllmModel``.)
        AttributeError: nobody has it.
    """
    if not name.startswith("_"):
        found = [
            e for kind in _CLASSES_OF[module] for e in installed().entries[kind] if e.value.rpartition(":")[2].strip() == name
        ]
        owner = catalogue.owner_of_class(name)
        found = [e for e in found if e.distribution == owner] or found
        if len({e.distribution for e in found}) > 1:
            raise ComponentConflictError(
                f"{module}.{name} is in {_and(e.origin for e in found)}: import it from the one you mean"
            )
        if found:
            return _component(found[0])
        if hint := catalogue.class_hint(name):
            raise ComponentLoadError(f"cannot import {name!r} from {module!r}: {hint}")
    raise AttributeError(f"module {module!r} has no attribute {name!r}")


# Looking up ------------------------------------------------------------------------------------------------------


def _check_kind(kind: str) -> None:
    if kind not in GROUPS:
        raise ComponentNotFoundError(f"there is no kind of component {kind!r}; there are {', '.join(GROUPS)}")


def _find(kind: str, name: str) -> Entry:
    distribution, _, plain = name.rpartition(":")
    distribution = canonical(distribution)

    def matching(all_entries: Iterable[Entry]) -> list[Entry]:
        return [e for e in all_entries if e.name == name or (e.name == plain and distribution in ("", e.distribution))]

    kinds = [kind, *_OTHER_COLOUR.get(kind, ())]
    pools = [entries(each) for each in kinds] + [installed().deprecated[each] for each in kinds]
    found = next((matched for pool in pools if (matched := matching(pool))), [])
    if found and found[0].deprecated:
        _warn_of_former_name(found[0])
    claimants = sorted({e.distribution for e in found})
    if len(claimants) > 1:
        raise ComponentConflictError(
            f"the {_noun(kind)} {name!r} is registered by {_and(e.origin for e in found)}: write "
            f"{' or '.join(repr(f'{d}:{plain}') for d in claimants)}, or set LAGENT_DISABLE_PLUGINS to the one you do not want"
        )
    if not found:
        raise ComponentNotFoundError(f"no {_noun(kind)} {name!r}: {'; '.join(_reasons(kind, distribution, plain))}")
    return found[0]


def _warn_of_former_name(old: Entry) -> None:
    new = next(
        (e.name for e in installed().entries[old.kind] if (e.distribution, e.value) == (old.distribution, old.value)), None
    )
    advice = f"is now called {new!r}" if new else "will go"
    # FutureWarning, as it is meant for whoever chose the name, not for the code that called us
    warnings.warn(f"the {_noun(old.kind)} {old.name!r} of {old.origin} {advice}", FutureWarning, stacklevel=4)


def _reasons(kind: str, distribution: str, name: str) -> Iterator[str]:
    """Why a component is not there and what to do, the most telling first."""
    for entry in installed().excluded:
        if (entry.kind, entry.name) == (kind, name) and distribution in ("", entry.distribution):
            yield f"{entry.origin} has it, but LAGENT_PLUGINS or LAGENT_DISABLE_PLUGINS keeps it out"
            return
    for damaged, error in installed().damaged.items():
        yield f"the metadata of {damaged} cannot be read ({error}), install it again: pip install --force-reinstall {damaged}"
    if hint := catalogue.component_hint(kind, name):
        yield hint
        return
    if others := sorted({e.distribution for e in entries(kind) if e.name == name}):
        yield f"{distribution} does not register it, but {_and(others)} does"
        return
    if elsewhere := [other for other in GROUPS if other != kind and any(e.name == name for e in entries(other))]:
        yield f"it is registered under {', '.join(elsewhere)}, not under {kind}"
    if near := difflib.get_close_matches(name, names(kind), n=3, cutoff=0.5):
        yield f"did you mean {' or '.join(map(repr, near))}?"
    else:
        yield f"installed are {', '.join(names(kind)) or 'none'}"


def _and(items: Iterable[str]) -> str:
    return " and ".join(sorted(set(items)))


def _noun(kind: str) -> str:
    return {"memory": "memory", "llms": "model", "async_llms": "asynchronous model"}.get(kind, kind.removesuffix("s"))


def _a(kind: str) -> str:
    return f"{'an' if _noun(kind)[0] in 'aeiou' else 'a'} {_noun(kind)}"


# Loading ---------------------------------------------------------------------------------------------------------


def _component(entry: Entry) -> Any:
    """The component of an entry, imported if need be.

    Raises:
        ComponentLoadError: see :func:`get`.
    """
    if entry.point is None:
        return next(r.component for r in _registered if r.entry is entry)
    subject = f"the {_noun(entry.kind)} {entry.name!r} of {entry.origin}"
    if problem := api_problem(installed().api.get(entry.distribution, [])):
        raise PluginVersionError(f"{subject} {problem}")
    try:
        return _imported(entry.point)
    except (Exception, SystemExit) as error:
        problem = f"({entry.value}) cannot be imported: {type(error).__name__}: {error}"
        raise ComponentLoadError(f"{subject} {problem}; 'lagent doctor' tells more") from error


def _imported(point: EntryPoint) -> Any:
    from stevedore.driver import DriverManager  # here, so that programs that use no plugin do not pay for it

    class Driver(DriverManager):  # type: ignore[type-arg]  # not generic in the versions for Python 3.10
        """Loads the one entry point that it is given: none of another claimant, and none from stevedore's cache of the metadata."""

        def list_entry_points(self) -> list[EntryPoint]:
            return [point]

    return Driver(point.group, point.name).driver


# Making ----------------------------------------------------------------------------------------------------------


def _by_name_or_path(kind: str, type_: str) -> Any:
    if not _is_path(type_) or type_ in names(kind):
        return get(kind, type_)
    module, _, attribute = type_.rpartition(".")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ComponentLoadError(f"the type {type_!r} of {_a(kind)} cannot be imported: {error}") from error


def _is_path(type_: str) -> bool:
    return re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)+", type_) is not None


def _instance(component: Any, arguments: dict[str, Any], name: str) -> Any:
    if not callable(component):
        if arguments:
            raise ConfigurationError(f"{name!r} is a finished object and takes no arguments, but got {', '.join(arguments)}")
        return component
    if not inspect.isclass(component):
        _check_arguments(component, arguments, name)
        return functools.partial(component, **arguments)
    try:
        return component(**arguments)
    except TypeError:
        _check_arguments(component, arguments, name)  # only now, as it costs more than most constructors
        raise


def _check_arguments(component: Any, arguments: dict[str, Any], name: str) -> None:
    try:
        signature = inspect.signature(component)
    except (TypeError, ValueError):  # some types written in C have none
        return
    try:
        signature.bind(**arguments) if inspect.isclass(component) else signature.bind_partial(**arguments)
    except TypeError as error:
        known = [p.name for p in signature.parameters.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        unknown = [argument for argument in arguments if argument not in known]
        near = [f", did you mean {match!r}?" for a in unknown for match in difflib.get_close_matches(a, known, n=1)]
        problem = f"has no argument {', '.join(map(repr, unknown))}{''.join(near)}" if unknown else f"cannot be made: {error}"
        raise ConfigurationError(f"{name!r} {problem}; its arguments are {', '.join(known) or 'none'}") from error


def _check_untrusted(kind: str, spec: Any) -> None:
    """Refuse what is not a registered name, in nested tables too: constructors make their own components of those."""
    if not isinstance(spec, (str, dict, type(None))):
        raise ConfigurationError(f"{_a(kind)} is given by name or as a table with a 'type', not as {type(spec).__name__}")
    tables: list[Any] = [spec]
    while tables:
        value = tables.pop()
        if isinstance(value, dict):
            type_ = value.get("type")
            if isinstance(type_, str) and _is_path(type_) and not any(type_ in names(each) for each in GROUPS):
                raise ConfigurationError(
                    f"the type {type_!r} is a dotted path, which only code may use: a configuration names registered components, "
                    f"for {_a(kind)} one of: {', '.join(names(kind))}"
                )
            if type_ is not None and not isinstance(type_, str) and value is spec:
                raise ConfigurationError(f"the 'type' of {_a(kind)} has to be a name, not {type_!r:.80}")
            tables.extend(value.values())
        elif isinstance(value, (list, tuple)):
            tables.extend(value)
