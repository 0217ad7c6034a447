"""The memories of one agent, one a session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lagent.errors import ConfigurationError
from lagent.memory.base import Memory, StoredMemory, wait_for
from lagent.memory.store import MemoryStore
from lagent.schema import AgentMessage, SessionId

__all__ = ["MemoryManager"]


class MemoryManager:
    """Gives every session of an agent a memory of its own.

    Args:
        cfg: what a memory is made of: a registry name, a ``{"type": …}`` mapping, a :class:`Memory` class, or a
            :class:`MemoryStore` to keep the messages in.
        agent: gives the agent's key within a store.

    Attributes:
        memory_map: the memories in the process, by session.
    """

    def __init__(self, cfg: Any = Memory, agent: Callable[[], str] = lambda: "Agent") -> None:
        self.cfg = cfg
        self.agent = agent
        self.memory_map: dict[SessionId, Memory] = {}
        self._make = self._factory()

    def create_instance(self, session_id: SessionId = 0) -> Memory:
        """Make the memory of a session; what a store holds of it is read."""
        return self.memory_map.setdefault(session_id, self._make(session_id))

    def get(self, session_id: SessionId = 0) -> Memory | None:
        """The memory of a session; ``None`` if the session has none in the process."""
        return self.memory_map.get(session_id)

    def open(self, session_id: SessionId = 0) -> Memory:
        """The memory of a session, made if need be."""
        memory = self.memory_map.get(session_id)
        return memory if memory is not None else self.create_instance(session_id)

    def get_memory(self, session_id: SessionId = 0, **kwargs: Any) -> list[AgentMessage]:
        """The messages of a session; see :meth:`Memory.get_memory`."""
        known = self.store is not None or session_id in self.memory_map
        return self.open(session_id).get_memory(**kwargs) if known else []

    def add(self, memory: Any, session_id: SessionId = 0, **kwargs: Any) -> None:
        """Add messages to a session; see :meth:`Memory.add`."""
        self.open(session_id).add(memory, **kwargs)

    def reset(self, session_id: SessionId = 0) -> None:
        """Forget a session, in the process and in the store."""
        self.memory_map.pop(session_id, None)
        if self.store is not None:
            wait_for(self.store.delete, self.agent(), session_id)

    def release(self, session_id: SessionId) -> None:
        """Drop a session from the process; what a store holds stays there."""
        self.memory_map.pop(session_id, None)

    def sessions(self) -> list[SessionId]:
        """The sessions that have a memory, in the process or in the store."""
        stored = [] if self.store is None else wait_for(self.store.sessions, self.agent())
        return list(dict.fromkeys([*stored, *self.memory_map]))

    def _factory(self) -> Callable[[SessionId], Memory]:
        from lagent.registry import create  # the registry knows every kind of component, so it comes after them

        if isinstance(self.cfg, Memory):
            raise ConfigurationError("memory= is what every session gets one of: pass the class or its name, not an object")
        made = create("memory", self.cfg)
        self.store = made if isinstance(made, MemoryStore) else None
        if isinstance(made, MemoryStore):
            return lambda session_id: StoredMemory(made, self.agent(), session_id)
        if not isinstance(made, Memory):
            raise ConfigurationError(
                f"memory={self.cfg!r:.80} makes a {type(made).__name__}, which is neither a Memory nor a MemoryStore"
            )
        return lambda session_id: create("memory", self.cfg)
