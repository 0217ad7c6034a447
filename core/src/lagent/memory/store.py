"""The interface of memory stores: where messages are kept beyond the process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from attrs import define, field

from lagent.schema import SessionId

__all__ = ["MemoryStore", "StoredMessages"]


@define
class StoredMessages:
    """What :meth:`MemoryStore.read` found.

    Attributes:
        epoch: changes whenever stored messages were removed or replaced, so that a reader knows its copy is stale.
        start: the place of the first of ``messages`` in the session; what stands before it is unchanged.
        messages: saved messages (:meth:`AgentMessage.model_dump`), oldest first.
    """

    epoch: int
    start: int = 0
    messages: list[dict[str, Any]] = field(factory=list)


class MemoryStore(ABC):
    """Keeps the messages of many agents and sessions, safely for threads and, where it persists, for processes.

    Methods may be coroutine functions. ``agent`` is the agent's key within the store, ``session_id`` the session; ``1`` and ``"1"``
    are different sessions. A method that raises :class:`StoreError` has changed nothing.
    """

    blocking: ClassVar[bool] = True
    """Whether calls wait for something, so that an asynchronous agent has to make them in a thread."""

    @abstractmethod
    def read(self, agent: str, session_id: SessionId, after: int = 0, epoch: int | None = None) -> StoredMessages:
        """The messages of a session.

        Args:
            after: how many messages the caller has.
            epoch: the epoch of the caller's copy. If it is still the store's, only messages from place ``after`` on are
                returned; otherwise all of them.
        """

    @abstractmethod
    def append(self, agent: str, session_id: SessionId, messages: Sequence[dict[str, Any]]) -> None:
        """Add ``messages`` at the end, all or none; durable on return where the store persists."""

    @abstractmethod
    def replace(self, agent: str, session_id: SessionId, messages: Sequence[dict[str, Any]]) -> None:
        """Put ``messages`` in the place of all that are there, all or nothing; begins a new epoch."""

    @abstractmethod
    def delete(self, agent: str, session_id: SessionId) -> None:
        """Forget a session of an agent; nothing happens if there is none."""

    @abstractmethod
    def sessions(self, agent: str) -> list[SessionId]:
        """The sessions that hold messages of ``agent``."""

    def close(self) -> None:  # noqa: B027 - not every store holds something open
        """Release files and connections; a closed store may be used again."""
