"""Saving what agents remember, and loading it again, whatever version wrote it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from attrs import define, field

from lagent.errors import StateError
from lagent.memory import Memory
from lagent.schema import SessionId

if TYPE_CHECKING:
    from lagent.agents.agent import Agent

__all__ = ["STATE_VERSION", "IncompatibleKeys", "load_state_dict", "migration", "state_dict"]

STATE_VERSION = 1
"""The version of the format that :func:`state_dict` writes. Lagent 0.5 wrote none, which counts as 0."""

State = dict[str, Any]

_migrations: dict[int, Callable[[State], State]] = {}


@define
class IncompatibleKeys:
    """What did not fit when a state was loaded with ``strict=False``."""

    missing_keys: list[str] = field(factory=list)
    unexpected_keys: list[str] = field(factory=list)


def migration(version: int) -> Callable[[Callable[[State], State]], Callable[[State], State]]:
    """Register the function that turns a state of ``version`` into one of the next version."""

    def register(function: Callable[[State], State]) -> Callable[[State], State]:
        _migrations[version] = function
        return function

    return register


@migration(0)
def _from_lagent_0_5(state: State) -> State:
    """The messages are the same; a memory without messages may be missing or ``None``."""
    return {key: [] if value is None else value for key, value in state.items()}


def state_dict(agent: Agent, session_id: SessionId) -> State:
    """What the agents of a tree remember of a session, as JSON-safe data.

    Returns:
        The messages of each agent under ``"memory"``, ``"child.memory"``, ``"child.0.memory"``, …, and the format's ``"version"``.
    """
    state: State = {"version": STATE_VERSION}
    for key, one in _memories(agent).items():
        memory = one.memory.get(session_id) if one.memory.store is None else one.memory.open(session_id)
        state[key] = memory.save() if memory is not None else []
    return state


def load_state_dict(agent: Agent, state: Any, session_id: SessionId, strict: bool) -> IncompatibleKeys:
    """Put saved messages into the memories of a tree; all of them or, if anything is wrong, none.

    Raises:
        StateError: ``state`` is damaged or of a newer version, or ``strict`` is true and its keys are not those of the agent.
    """
    state = _current(state)
    targets = _memories(agent)
    found = IncompatibleKeys([key for key in targets if key not in state], [key for key in state if key not in targets])
    if strict and (found.missing_keys or found.unexpected_keys):
        lines = [f"the state does not fit {type(agent).__name__}:"]
        lines += [f"  missing keys: {', '.join(found.missing_keys)}"] if found.missing_keys else []
        lines += [f"  unexpected keys: {', '.join(found.unexpected_keys)}"] if found.unexpected_keys else []
        raise StateError("\n".join([*lines, "load it with strict=False to take what fits"]))
    used = {key: one for key, one in targets.items() if key in state}
    for key in used:
        _check(key, state[key])
    with ExitStack() as stack:
        for one in used.values():
            stack.enter_context(one._sessions.hold(session_id, one.name or ""))
        loaded: list[tuple[Memory, list[dict[str, Any]]]] = []
        try:
            for key, one in used.items():
                memory = one.memory.open(session_id)
                loaded.append((memory, memory.save()))
                memory.load(state[key])
        except BaseException:
            for memory, before in loaded:
                memory.load(before)
            raise
    return found


def _memories(agent: Agent) -> dict[str, Any]:
    return {f"{path}.memory" if path else "memory": one for path, one in agent.named_agents() if one.memory is not None}


def _current(given: Any) -> State:
    if not isinstance(given, Mapping):
        raise StateError(f"a state is the mapping that state_dict() gave, not {type(given).__name__}: {given!r:.80}")
    state: State = dict(given)
    version = state.pop("version", 0)
    if not isinstance(version, int) or isinstance(version, bool) or version < 0:
        raise StateError(f"the state has the version {version!r}, which is none: it is damaged")
    if version > STATE_VERSION:
        raise StateError(
            f"the state was written in format {version}, this lagent-core reads up to {STATE_VERSION}: upgrade lagent-core"
        )
    for step in range(version, STATE_VERSION):
        state = _migrations[step](state)
    if wrong := [key for key in state if not isinstance(key, str) or not re.fullmatch(r"(.+\.)?memory", key)]:
        raise StateError(f"the state has keys that no agent has: {', '.join(map(repr, wrong))}; it is damaged")
    return state


def _check(key: str, messages: Any) -> None:
    if not isinstance(messages, list):
        raise StateError(f"{key!r} must be a list of messages, not {type(messages).__name__}: the state is damaged")
    try:
        Memory().load(messages)
    except StateError as error:
        raise StateError(f"{key!r}, {error}: the state is damaged") from error
