"""Agents inside agents, after the manner of PyTorch's modules."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from lagent.errors import ConfigurationError

if TYPE_CHECKING:
    from typing_extensions import Self

    from lagent.agents.agent import Agent

__all__ = ["AgentTree"]


class AgentTree:
    """Registers agents that are assigned to attributes as children, and finds its way among them."""

    name: str | None
    _agents: OrderedDict[str, Agent]

    def __setattr__(self, key: str, value: Any) -> None:
        agents: OrderedDict[str, Agent] = self.__dict__.setdefault("_agents", OrderedDict())
        if isinstance(value, AgentTree):
            self._check_child(key, value)
            if hasattr(type(self), key):
                raise ConfigurationError(
                    f"a child agent cannot be called {key!r}: {type(self).__name__} has a member of that name"
                )
            self._adopt(key, value)
        else:
            agents.pop(key, None)
        super().__setattr__(key, value)

    def __delattr__(self, key: str) -> None:
        super().__delattr__(key)
        self._agents.pop(key, None)

    def add_agent(self, name: str, agent: Agent) -> None:
        """Make ``agent`` a child, and an attribute, of this one.

        Raises:
            ConfigurationError: the name cannot be a child's, or ``agent`` is none.
        """
        self._check_child(name, agent)
        if name in self.__dict__ and name not in self._agents:
            raise ConfigurationError(f"an agent cannot be called {name!r}: {type(self).__name__} has an attribute of that name")
        setattr(self, name, agent)

    @property
    def full_name(self) -> str:
        """The name of the root of the tree and the key path from there: what a memory store knows the agent by."""
        parent, name = self.__dict__.get("_place", (None, ""))
        above = parent and parent()
        return f"{above.full_name}.{name}" if above is not None else self.name or type(self).__name__

    def children(self) -> Iterator[Agent]:
        """The agents right below this one."""
        yield from self._agents.values()

    def named_agents(self, prefix: str = "") -> Iterator[tuple[str, Agent]]:
        """This agent and all below it, each once, with their key paths (``""``, ``"child"``, ``"child.0"``, …)."""
        seen: set[int] = set()
        stack: list[tuple[str, AgentTree]] = [(prefix, self)]
        while stack:
            path, agent = stack.pop()
            if id(agent) in seen:
                continue
            seen.add(id(agent))
            yield path, agent  # type: ignore[misc]  # every node of the tree is an Agent
            stack += [(f"{path}.{name}" if path else name, child) for name, child in reversed(agent._agents.items())]

    def apply(self, fn: Callable[[Agent], Any]) -> Self:
        """Call ``fn`` with every agent of the tree, children first, and give this agent."""
        for child in self.children():
            child.apply(fn)
        fn(self)  # type: ignore[arg-type]
        return self

    def find_agent(self, keypath: str) -> Agent:
        """The agent at a key path such as ``"coder.0"``.

        Raises:
            KeyError: there is none.
        """
        agent: AgentTree = self
        for key in keypath.split("."):
            if key not in agent._agents:
                known = ", ".join(path for path, _ in self.named_agents() if path) or "none"
                raise KeyError(f"{type(self).__name__} has no agent at {keypath!r}; it has {known}")
            agent = agent._agents[key]
        return agent  # type: ignore[return-value]

    def __repr__(self) -> str:
        return self._describe(1)

    def _describe(self, depth: int) -> str:
        text = type(self).__name__ + (f"(name={self.name!r})" if self.name else "")
        below = [f"{'  ' * depth}({name}): {child._describe(depth + 1)}" for name, child in self._agents.items()]
        if below:
            return f"{text}(\n" + "\n".join(below) + f"\n{'  ' * (depth - 1)})"
        return text if self.name else f"{text}()"

    def _adopt(self, name: str, agent: Any) -> None:
        self._agents[name] = agent
        agent.__dict__.setdefault("_place", (weakref.ref(self), name))  # an agent in several trees belongs to the first

    @staticmethod
    def _check_child(name: Any, agent: Any) -> None:
        if not isinstance(agent, AgentTree):
            raise ConfigurationError(f"{agent!r:.80} is a {type(agent).__name__}, not an Agent")
        if not isinstance(name, str) or not name or "." in name:
            raise ConfigurationError(f"the name of a child agent must be a string that is not empty and has no '.', not {name!r}")
