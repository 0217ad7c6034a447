"""Examples before the conversation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lagent.aggregators.base import DefaultAggregator, Message
from lagent.prompts.parsers import StrParser

__all__ = ["FewshotAggregator"]


class FewshotAggregator(DefaultAggregator):
    """Puts examples between the system prompt and the conversation.

    Args:
        few_shot: messages in OpenAI's form, or lists of such messages, one an example.
    """

    def __init__(self, few_shot: Sequence[Any] = ()) -> None:
        self.few_shot: list[Message] = [
            message for shot in few_shot for message in (shot if isinstance(shot, (list, tuple)) else [shot])
        ]

    def begin(self, parser: StrParser | None, system_instruction: Any) -> list[Message]:
        return [*super().begin(parser, system_instruction), *self.few_shot]
