"""Agents from configuration files: TOML, YAML or JSON, every component by its registered name."""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attrs import define

from lagent import registry
from lagent.agents import Agent, AsyncAgent, AsyncStreamingAgentMixin, StreamingAgentMixin
from lagent.errors import ConfigurationError, LagentError
from lagent.memory import Memory

__all__ = ["DEFAULT_AGENT", "load_agent"]

DEFAULT_AGENT: dict[str, Any] = {
    "type": "tools",
    "actions": ["calculator"],
    "llm": {"type": "llamacpp", "temperature": 0.0},
}
"""The ``[agent]`` table of the agent that answers when there is no configuration file."""

_KINDS = {
    "llm": "llms",
    "memory": "memory",
    "output_format": "parsers",
    "aggregator": "aggregators",
    "actions": "actions",
    "hooks": "hooks",
    "action_hooks": "hooks",
}
"""The arguments of agents that are components, with their kinds."""

KeyPath = tuple[str | int, ...]


def load_agent(file: str | Path | None = None) -> Any:
    """Make the agent that a configuration file describes; without one, the default agent.

    The file has one table, ``agent``, whose ``type`` is a registered agent and whose other keys are the arguments of that agent. Where
    an argument is a component, it is given as a name or as a table of ``type`` and arguments. An agent that can stream does.

    Raises:
        ConfigurationError: the file cannot be read or describes no agent; the message names file, line and key.
        LagentError: the default agent cannot be made.
    """
    if file is None:
        return _agent(DEFAULT_AGENT, _Source("", ""))
    source = _read(Path(file))
    data = _parsed(source)
    if not isinstance(data, dict) or not isinstance(data.get("agent"), dict):
        raise ConfigurationError(f'{source.name} has no table "agent": write [agent] and below it type = "tools"')
    for key in data:
        if key != "agent":
            raise source.error((key,), "there is no such table, only 'agent' is known")
    return _agent(data["agent"], source)


@define
class _Source:
    """A configuration file, for error messages; the default agent has none."""

    name: str
    text: str

    def error(self, path: KeyPath, problem: str) -> ConfigurationError:
        """The error that tells file, line (if it can be found), key and ``problem``."""
        line = self._line(path)
        key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")
        return ConfigurationError(f"{self.name}, {f'line {line}, ' if line else ''}{key}: {problem}")

    def _line(self, path: KeyPath) -> int | None:
        """The line that begins with the last key of ``path`` or, failing that, one that stands above it."""
        found, lines = None, self.text.splitlines()
        for key in (re.escape(part) for part in path if isinstance(part, str)):
            start = rf"""\s*(-\s+)?(\[\[?([\w-]+\.)*{key}\]|["']?{key}["']?\s*[=:])"""
            line = next((n for n in range(found or 0, len(lines)) if re.match(start, lines[n])), None)
            if line is None:
                break
            found = line
        return None if found is None else found + 1


def _read(path: Path) -> _Source:
    try:
        return _Source(str(path), path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigurationError(f"there is no configuration file {str(path)!r}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the configuration file {str(path)!r} cannot be read: {error}") from error


def _parsed(source: _Source) -> Any:
    parse = _FORMATS.get(Path(source.name).suffix.lower())
    if parse is None:
        raise ConfigurationError(f"{source.name} is no configuration file: its name has to end in .toml, .yaml or .json")
    try:
        return parse(source.text)
    except ValueError as error:
        raise ConfigurationError(f"{source.name} cannot be read: {error}") from error


def _toml(text: str) -> Any:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        try:
            import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]
        except ImportError as error:
            raise ConfigurationError("TOML on Python 3.10 needs tomli: pip install 'lagent-core[cli]'") from error
    return tomllib.loads(text)


def _yaml(text: str) -> Any:
    try:
        import yaml  # type: ignore[import-untyped, unused-ignore]
    except ImportError as error:
        raise ConfigurationError("YAML needs PyYAML: pip install 'lagent-core[yaml]'") from error
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise ValueError(f"{getattr(error, 'problem', error)} (at line {mark.line + 1})" if mark else str(error)) from error


_FORMATS: dict[str, Callable[[str], Any]] = {".toml": _toml, ".json": json.loads, ".yaml": _yaml, ".yml": _yaml}


def _agent(table: dict[str, Any], source: _Source) -> Any:
    type_ = table.get("type")
    if not isinstance(type_, str):
        known = ", ".join(registry.names("agents"))
        raise source.error(("agent",), f"it needs a 'type', the name of an agent, one of: {known}")
    cls: Any = _made(lambda: registry.get("agents", type_), ("agent", "type"), source)
    arguments = dict(table)
    for key, kind in _KINDS.items():
        if key in table:
            asynchronous = kind == "llms" and getattr(cls, "asynchronous", False)
            arguments[key] = _component("async_llms" if asynchronous else kind, table[key], ("agent", key), source)
    with registry.register("agents", type_, _streaming(cls)):
        return _made(lambda: registry.create("agents", arguments, trusted=False), ("agent",), source, table)


def _component(kind: str, spec: Any, path: KeyPath, source: _Source) -> Any:
    if isinstance(spec, list):
        return [_component(kind, item, (*path, place), source) for place, item in enumerate(spec)]
    made = _made(lambda: registry.create(kind, spec, trusted=False), path, source, spec)
    # Every session gets a memory of its own, so an agent takes the description of one; of a store it takes the store itself.
    return spec if isinstance(made, Memory) else made


def _made(make: Callable[[], Any], path: KeyPath, source: _Source, spec: Any = None) -> Any:
    """What ``make`` gives; errors tell the place in the file, and the key of ``spec`` if they quote it or its value."""
    try:
        return make()
    except Exception as error:
        if not source.name:
            raise
        problem = str(error) if isinstance(error, LagentError) else _plain(error)
        items = spec if isinstance(spec, dict) else {}
        quoted = [key for key in items if repr(key) in problem]
        quoted += [key for key, value in items.items() if isinstance(value, str) and repr(value) in problem]
        raise source.error((*path, *quoted[:1]), problem) from error


def _plain(error: Exception) -> str:
    """The words for what a constructor raises that was not written with configurations in mind."""
    if isinstance(error, TypeError) and (unknown := re.search(r"unexpected keyword argument ('\w+')", str(error))):
        return f"it has no argument {unknown[1]}"
    return f"{type(error).__name__}: {error}"


def _streaming(cls: Any) -> Any:
    """The variant of an agent that streams, if its own ``forward`` does not stand in the way."""
    if not inspect.isclass(cls) or not issubclass(cls, Agent) or cls.streaming:
        return cls
    if cls.forward not in (Agent.forward, AsyncAgent.forward):
        return cls
    return type(cls.__name__, (AsyncStreamingAgentMixin if cls.asynchronous else StreamingAgentMixin, cls), {})
