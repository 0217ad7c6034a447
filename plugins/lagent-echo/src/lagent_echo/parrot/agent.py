"""The agent ``parrot``."""

from __future__ import annotations

from typing import Any

from lagent.agents import Agent
from lagent.schema import AgentMessage, SessionId

__all__ = ["ParrotAgent"]


class ParrotAgent(Agent):
    """Asks its model, and repeats the answer.

    Args:
        times: how often the answer is said.
        options: see :class:`lagent.agents.Agent`.
    """

    def __init__(self, *args: Any, times: int = 2, **options: Any) -> None:
        super().__init__(*args, **options)
        self.times = times

    def forward(self, *message: AgentMessage, session_id: SessionId = 0, **kwargs: Any) -> AgentMessage:
        answer: AgentMessage = super().forward(*message, session_id=session_id, **kwargs)
        return answer.model_copy(update={"content": " ".join([str(answer.content)] * self.times)})
