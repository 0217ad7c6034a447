"""The hook ``parrot``: keeps what was said."""

from __future__ import annotations

from typing import Any

from lagent.hooks import Hook
from lagent.schema import AgentMessage, SessionId

__all__ = ["ParrotHook"]


class ParrotHook(Hook):
    """Keeps the answers of the agents that it is registered with.

    Attributes:
        heard: session, sender and content of each answer, in order.
    """

    blocking = False  # nothing here waits for anything outside the process

    def __init__(self) -> None:
        self.heard: list[tuple[SessionId, str, Any]] = []

    def after_agent(self, agent: Any, message: AgentMessage, session_id: SessionId) -> None:
        self.heard.append((session_id, message.sender, message.content))
