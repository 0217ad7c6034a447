"""From memory to model messages, at a cost that follows what is new."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from attrs import define, field

from lagent.errors import ConfigurationError
from lagent.memory import Memory, MemoryManager
from lagent.prompts.parsers import StrParser
from lagent.schema import ActionReturn, ActionStatusCode, AgentMessage, ToolCall, to_data, tool_calls_of

__all__ = ["DefaultAggregator", "Message", "Prompt"]

Message = dict[str, Any]


@define
class Prompt:
    """The model messages made of one memory so far.

    Attributes:
        owner, inputs, epoch: what they were made by and from; when one of these changes, they are made anew.
        messages: the messages, those of :meth:`DefaultAggregator.begin` first.
        first: the place in memory of the first message that is among them.
        count: how many messages of the memory they cover.
        pending: tool calls that have no result yet, by id.
        size: how many messages there are.
        sizes: the tokens of each of the messages of the memory from ``first`` on, where the aggregator counts them.
    """

    owner: Any
    inputs: tuple[Any, ...]
    epoch: int
    messages: list[Message]
    first: int = 0
    count: int = 0
    pending: dict[str | None, str] = field(factory=dict)
    sizes: list[int] = field(factory=list)
    size: int | None = None

    def holds(self, owner: Any, inputs: tuple[Any, ...], epoch: int) -> bool:
        """Whether these messages may be continued: same origin, and nobody added to or took from the list they were given."""
        same = self.owner is owner and self.epoch == epoch and self.inputs == inputs
        return same and self.size in (None, len(self.messages))


class DefaultAggregator:
    """Turns memory into messages in OpenAI's form.

    A turn costs time for the messages that are new in memory, and gives the messages of the turn before, unchanged, with more behind
    them, so that an engine's prefix cache keeps hitting. To make an aggregator of your own, override :meth:`begin`, :meth:`convert` or
    :meth:`end`; or :meth:`aggregate` as a whole, which gives up that speed. The messages given are not to be changed.
    """

    def aggregate(
        self, messages: Memory | MemoryManager, name: str, parser: StrParser | None = None, system_instruction: Any = None
    ) -> list[Message]:
        """The model messages for what is in memory.

        Args:
            messages: the memory of the agent in one session (or its memories, for that of the default session).
            name: the name of the agent, whose own messages become the assistant's.
            parser: the agent's output parser.
            system_instruction: the system prompt: text, a message, or a list of messages.
        """
        memory = messages.open() if isinstance(messages, MemoryManager) else messages
        return list(self.view(memory, name, parser, system_instruction))

    def view(self, messages: Memory, name: str, parser: StrParser | None = None, system_instruction: Any = None) -> list[Message]:
        """:meth:`aggregate` without the copy: the list grows with the next turn, so it is for reading, and for now."""
        inputs = (name, parser, system_instruction)
        if messages.recent_n is not None or type(messages).get_memory is not Memory.get_memory:
            # The memory itself chooses what is seen, so there is no beginning that stays the same.
            prompt = Prompt(self, inputs, 0, self.begin(parser, system_instruction))
            visible = messages.get_memory()
            first = next((i for i, message in enumerate(visible) if message.type != "tool"), len(visible))
            self._extend(prompt, visible[first:])
        else:
            kept = messages.derived.get(id(self))
            if kept is None or not kept.holds(self, inputs, messages.epoch):
                kept = Prompt(self, inputs, messages.epoch, self.begin(parser, system_instruction))
                messages.derived[id(self)] = kept
            prompt = kept
            self.update(prompt, messages)
            prompt.size = len(prompt.messages)
        end = list(self.end())
        return [*prompt.messages, *end] if end else prompt.messages

    # To override

    def begin(self, parser: StrParser | None, system_instruction: Any) -> list[Message]:
        """The messages that stand before the conversation: the system prompt, examples."""
        return self.aggregate_system_intruction(system_instruction) if system_instruction else []

    def convert(self, message: AgentMessage, name: str, parser: StrParser | None) -> list[Message]:
        """The model messages for one message of the memory."""
        if message.sender == name:
            return [_assistant(message)]
        if message.type == "tool":
            info = message.extra_info if isinstance(message.extra_info, Mapping) else {}
            return [{"role": "tool", "tool_call_id": info.get("tool_call_id"), "content": _content(message)}]
        return [{"role": "user", "content": _content(message)}]

    def end(self) -> Iterable[Message]:
        """Messages behind the conversation that are not remembered: what changes from turn to turn, such as the time."""
        return ()

    def update(self, prompt: Prompt, memory: Memory) -> None:
        """Take what is new in ``memory`` into ``prompt``."""
        self._extend(prompt, memory.memory[prompt.count :])

    # The rules of the format

    def _extend(self, prompt: Prompt, new: list[AgentMessage]) -> None:
        name, parser, _ = prompt.inputs
        for message in new:
            for converted in self.convert(message, name, parser):
                self._append(prompt, converted)
        prompt.count += len(new)

    @staticmethod
    def _append(prompt: Prompt, message: Message) -> None:
        messages, pending = prompt.messages, prompt.pending
        if message["role"] == "tool":
            pending.pop(message.get("tool_call_id"), None)
        elif pending:
            # A call was interrupted between tool call and result; the format demands a result for each.
            text = "The call was interrupted before it gave a result."
            messages.extend({"role": "tool", "tool_call_id": id_, "content": text} for id_ in pending)
            pending.clear()
        for call in message.get("tool_calls", ()):
            pending[call["id"]] = call["function"]["name"]
        if message["role"] == "user" and messages and messages[-1]["role"] == "user":
            messages[-1] = {**messages[-1], "content": _joined(messages[-1]["content"], message["content"])}
        else:
            messages.append(message)

    @staticmethod
    def aggregate_system_intruction(system_intruction: Any) -> list[Message]:
        """The system prompt as a list of messages (the name is lagent's).

        Raises:
            ConfigurationError: it is neither text nor messages with ``role`` and ``content``.
        """
        items = system_intruction if isinstance(system_intruction, (list, tuple)) else [system_intruction]
        if not all(isinstance(item, str) or (isinstance(item, Mapping) and {"role", "content"} <= item.keys()) for item in items):
            raise ConfigurationError(
                f"a system prompt is text, a message with 'role' and 'content', or a list of these, not {system_intruction!r:.80}"
            )
        messages = [{"role": "system", "content": item} if isinstance(item, str) else dict(item) for item in items]
        return _one_system_message(messages)


def _one_system_message(messages: list[Message]) -> list[Message]:
    """Plain system messages in a row become one, since strict chat templates take only one."""
    merged: list[Message] = []
    for message in messages:
        if (
            merged
            and message.keys() == merged[-1].keys() == {"role", "content"}
            and message["role"] == merged[-1]["role"] == "system"
        ):
            merged[-1]["content"] = _joined(merged[-1]["content"], message["content"])
        else:
            merged.append(message)
    return merged


def _assistant(message: AgentMessage) -> Message:
    calls = tool_calls_of(message)
    if not calls or _wrote_markup(message):
        return {"role": "assistant", "content": _content(message)}
    return {"role": "assistant", "content": _content(message), "tool_calls": [_tool_call(call) for call in calls]}


def _wrote_markup(message: AgentMessage) -> bool:
    """Whether the tool calls stand in the text itself, where a parser found them, rather than beside it."""
    formatted = message.formatted
    visible = formatted.get("content") if isinstance(formatted, Mapping) else formatted.content
    return bool(message.content != visible)


def _tool_call(call: ToolCall) -> Message:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments_text}}


def _content(message: AgentMessage) -> Any:
    content = message.content
    if isinstance(content, (str, list)):
        return content
    if isinstance(content, ActionReturn):
        return content.format_result() if content.state == ActionStatusCode.SUCCESS else str(content.errmsg)
    return "" if content is None else json.dumps(to_data(content), ensure_ascii=False)


def _joined(first: Any, second: Any) -> Any:
    """Two contents, each text or content parts, as one."""
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n{second}"
    return [
        *([{"type": "text", "text": first}] if isinstance(first, str) else first),
        *([{"type": "text", "text": second}] if isinstance(second, str) else second),
    ]
