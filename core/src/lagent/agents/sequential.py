"""Agents one after the other, and containers of agents."""

from __future__ import annotations

from collections import UserDict, UserList
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from itertools import cycle, islice
from typing import Any

from lagent.agents.agent import Agent
from lagent.agents.variants import AsyncAgentMixin, AsyncStreamingAgentMixin, StreamingAgentMixin, call_agent
from lagent.errors import ConfigurationError
from lagent.flow import Flow
from lagent.registry import create
from lagent.schema import AgentMessage, SessionId

__all__ = ["AgentDict", "AgentList", "AsyncSequential", "AsyncStreamingSequential", "Sequential", "StreamingSequential"]


class Sequential(Agent):
    """Passes messages through agents in the order in which they were added.

    Args:
        children: the agents, ``(name, agent)`` pairs, or one iterable or mapping of these; their names are ``"0"``, ``"1"``, … by
            default.
        agents: the agents in the form of a configuration: a list of names, or of mappings with ``type`` and arguments.
        kwargs: see :class:`Agent`.

    Raises:
        ConfigurationError: there is no agent, or something that is none.
    """

    def __init__(self, *children: Any, agents: Sequence[Any] = (), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if len(children) == 1 and not isinstance(children[0], Agent) and not _is_pair(children[0]):
            children = tuple(children[0].items() if isinstance(children[0], Mapping) else children[0])
        children = (*children, *(create("agents", spec) for spec in agents))
        if not children:
            raise ConfigurationError(f"{type(self).__name__} needs at least one agent")
        for place, child in enumerate(children):
            self.add_agent(*child) if _is_pair(child) else self.add_agent(str(place), child)

    def add_agent(self, name: str, agent: Agent) -> None:
        """Add an agent at the end; unlike that of other agents, its name becomes no attribute."""
        self._check_child(str(name), agent)
        self._adopt(str(name), agent)

    def __getitem__(self, key: int | str) -> Agent:
        if isinstance(key, int):
            return list(self._agents.values())[key]
        return self._agents[key]

    def __len__(self) -> int:
        return len(self._agents)

    def _steps(self, message: Any, session_id: SessionId, kwargs: dict[str, Any], emit: Any = None) -> Flow[AgentMessage]:
        """Call the agents in turn; with ``exit_at``, stop after that one, counted from 0 and going round if there are fewer."""
        kwargs = dict(kwargs)
        exit_at = kwargs.pop("exit_at", None)
        if exit_at is not None and (not isinstance(exit_at, int) or exit_at < 0):
            raise ConfigurationError(f"exit_at must be an integer from 0 on, not {exit_at!r}")
        for agent in islice(cycle(self._agents.values()), len(self) if exit_at is None else exit_at + 1):
            message = yield from call_agent(agent, message, session_id, kwargs)
        answer: AgentMessage = message
        return answer


def _is_pair(item: Any) -> bool:
    return isinstance(item, tuple) and len(item) == 2 and not isinstance(item[0], Agent)


class AsyncSequential(AsyncAgentMixin, Sequential):
    """A :class:`Sequential` whose call is a coroutine."""


class StreamingSequential(StreamingAgentMixin, Sequential):
    """A :class:`Sequential` whose call gives an iterator of the messages of all its agents."""


class AsyncStreamingSequential(AsyncStreamingAgentMixin, Sequential):
    """A :class:`Sequential` whose call gives an asynchronous iterator of the messages of all its agents."""


class _Container(Agent):
    """An agent that only holds agents; what changes its ``data`` changes its children, or neither."""

    data: Any

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name in _CHANGES:
            if (method := getattr(cls, name, None)) is not None:
                setattr(cls, name, _keeping_children(method))


_CHANGES = (
    *("__init__", "__setitem__", "__delitem__", "__iadd__", "__imul__", "__ior__", "append", "clear", "extend", "insert"),
    *("pop", "popitem", "remove", "reverse", "setdefault", "sort", "update"),
)


def _keeping_children(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def change(self: _Container, *args: Any, **kwargs: Any) -> Any:
        before = self.data.copy() if "data" in self.__dict__ else None
        try:
            result = method(self, *args, **kwargs)
            named = isinstance(self.data, Mapping)
            children = list(self.data.items()) if named else [(str(place), agent) for place, agent in enumerate(self.data)]
            for name, agent in children:
                self._check_child(name, agent)
        except BaseException:
            if before is not None:
                object.__setattr__(self, "data", before)
            raise
        self._agents.clear()
        for name, agent in children:
            self._adopt(name, agent)
        return result

    return change


class AgentList(_Container, UserList):  # type: ignore[type-arg]
    """A list of agents, whose children are named ``"0"``, ``"1"``, …"""

    def __init__(self, agents: Iterable[Agent] | None = None) -> None:
        Agent.__init__(self, memory=None)
        self.name = None
        UserList.__init__(self, agents)


class AgentDict(_Container, UserDict):  # type: ignore[type-arg]
    """A dict of agents, whose keys are the names of its children."""

    def __init__(self, agents: Mapping[str, Agent] | None = None) -> None:
        Agent.__init__(self, memory=None)
        self.name = None
        UserDict.__init__(self, agents)
