"""The aggregator ``parrot``: repeats the system prompt at the end."""

from __future__ import annotations

from typing import Any

from lagent.aggregators import DefaultAggregator

__all__ = ["ParrotAggregator"]


class ParrotAggregator(DefaultAggregator):
    """The conversation, and behind it a reminder.

    What changes from turn to turn stands behind the conversation, so that an engine's prefix cache keeps hitting.

    Args:
        reminder: the text of the last message.
    """

    def __init__(self, reminder: str = "Keep to the instructions at the beginning.") -> None:
        self.reminder = reminder

    def end(self) -> list[dict[str, Any]]:
        return [{"role": "system", "content": self.reminder}]
