"""The memory store ``parrot``: keeps messages in the process, for all agents that share it."""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from typing import Any

from lagent.memory import MemoryStore, StoredMessages
from lagent.schema import SessionId

__all__ = ["ParrotStore"]


class ParrotStore(MemoryStore):
    """A store in a dictionary."""

    blocking = False  # nothing here waits for anything outside the process

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sessions: dict[tuple[str, type, SessionId], list[dict[str, Any]]] = {}
        self._epochs: dict[tuple[str, type, SessionId], int] = {}

    def read(self, agent: str, session_id: SessionId, after: int = 0, epoch: int | None = None) -> StoredMessages:
        key = _key(agent, session_id)
        with self._lock:
            current = self._epochs.get(key, 0)
            start = after if epoch == current else 0
            return StoredMessages(current, start, copy.deepcopy(self._sessions.get(key, [])[start:]))

    def append(self, agent: str, session_id: SessionId, messages: Sequence[dict[str, Any]]) -> None:
        with self._lock:
            self._sessions.setdefault(_key(agent, session_id), []).extend(copy.deepcopy(list(messages)))

    def replace(self, agent: str, session_id: SessionId, messages: Sequence[dict[str, Any]]) -> None:
        key = _key(agent, session_id)
        with self._lock:
            self._sessions[key] = copy.deepcopy(list(messages))
            self._epochs[key] = self._epochs.get(key, 0) + 1

    def delete(self, agent: str, session_id: SessionId) -> None:
        key = _key(agent, session_id)
        with self._lock:
            if self._sessions.pop(key, None) is not None:
                self._epochs[key] = self._epochs.get(key, 0) + 1

    def sessions(self, agent: str) -> list[SessionId]:
        with self._lock:
            return [session_id for (owner, _, session_id), messages in self._sessions.items() if owner == agent and messages]


def _key(agent: str, session_id: SessionId) -> tuple[str, type, SessionId]:
    return agent, type(session_id), session_id  # 1 and "1" are different sessions
