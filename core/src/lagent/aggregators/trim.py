"""Keeping the prompt within a limit."""

from __future__ import annotations

from collections.abc import Callable

from lagent.aggregators.base import DefaultAggregator, Message, Prompt
from lagent.errors import ConfigurationError
from lagent.memory import Memory
from lagent.schema import AgentMessage

__all__ = ["TrimAggregator", "estimate_tokens"]


def estimate_tokens(message: Message) -> int:
    """About how many tokens a model message has: a quarter of its UTF-8 bytes, and four for its frame."""
    return len(str(message["content"]).encode()) // 4 + 4


class TrimAggregator(DefaultAggregator):
    """Leaves the oldest messages out of the prompt once it grows beyond a limit. Memory keeps them.

    It cuts at the beginning of a turn (never between a tool call and its result, never the system prompt), down to ``keep`` of the
    limit, so that history is rewritten once in a while rather than at every turn. The newest turn always stays.

    Args:
        max_messages: the most messages of the memory that the prompt covers.
        max_tokens: the most tokens of the prompt, the system prompt included.
        keep: the part of the limit that is kept when it is passed, between 0 and 1.
        count_tokens: the tokens of a model message; pass the tokenizer's count where the limit is tight.

    Raises:
        ConfigurationError: there is no limit, or one that nothing fits.
    """

    def __init__(
        self,
        max_messages: int | None = None,
        max_tokens: int | None = None,
        keep: float = 0.5,
        count_tokens: Callable[[Message], int] = estimate_tokens,
    ) -> None:
        if max_messages is None and max_tokens is None:
            raise ConfigurationError("the trim aggregator needs max_messages, max_tokens or both")
        for name, value in (("max_messages", max_messages), ("max_tokens", max_tokens)):
            if value is not None and value < 1:
                raise ConfigurationError(f"{name} must be at least 1, not {value}")
        if not 0 < keep <= 1:
            raise ConfigurationError(f"keep must be above 0 and at most 1, not {keep}")
        self.max_messages, self.max_tokens, self.keep, self.count_tokens = max_messages, max_tokens, keep, count_tokens

    def update(self, prompt: Prompt, memory: Memory) -> None:
        name, parser, system_instruction = prompt.inputs
        new = memory.memory[prompt.count :]
        prompt.sizes += [sum(map(self.count_tokens, self.convert(message, name, parser))) for message in new]
        super().update(prompt, memory)
        before = self.begin(parser, system_instruction)
        fixed = sum(map(self.count_tokens, before))
        if self._fits(len(prompt.sizes), fixed + sum(prompt.sizes), 1.0):
            return
        start = self._start(prompt, memory, fixed)
        prompt.sizes = prompt.sizes[start - prompt.first :]
        prompt.messages, prompt.first, prompt.count, prompt.pending = before, start, start, {}
        super().update(prompt, memory)

    def _start(self, prompt: Prompt, memory: Memory, fixed: int) -> int:
        """The place of the oldest beginning of a turn from which on everything fits; of the newest turn if nothing does."""
        messages, name = memory.memory, prompt.inputs[0]
        start, tokens = prompt.first, fixed
        for place in range(len(messages) - 1, prompt.first, -1):
            tokens += prompt.sizes[place - prompt.first]
            fits = self._fits(len(messages) - place, tokens, self.keep)
            if not fits and start != prompt.first:
                break
            if _begins_turn(messages[place - 1], messages[place], name):
                start = place
        return start

    def _fits(self, messages: int, tokens: int, part: float) -> bool:
        if self.max_messages is not None and messages > self.max_messages * part:
            return False
        return self.max_tokens is None or tokens <= self.max_tokens * part


def _begins_turn(before: AgentMessage, message: AgentMessage, name: str) -> bool:
    return before.sender == name and message.sender != name and message.type != "tool"
