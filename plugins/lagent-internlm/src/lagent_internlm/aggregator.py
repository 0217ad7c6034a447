"""Prompts in the form of the InternLM models: named system messages, and results as messages of the environment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lagent.aggregators import DefaultAggregator
from lagent.aggregators.base import Message, Prompt
from lagent.errors import ConfigurationError
from lagent.prompts.parsers import StrParser, ToolStatusCode
from lagent.schema import AgentMessage

__all__ = ["InternLMToolAggregator"]


class InternLMToolAggregator(DefaultAggregator):
    """An aggregator for agents with a tool parser; see :class:`lagent.aggregators.DefaultAggregator`.

    What cannot be parsed is left out; the message that told the model so stays.

    Args:
        environment_role: the role of the results of tools, which get the name of the tool.
        environment_begin, environment_end: what stands around a result.
        user_names: the senders who are users; all others are the environment.
        few_shot: example conversations, each a list of messages of the roles of chats, of the environment, and of ``thought`` (or
            ``language``) with an optional ``tool`` (with its ``name``) behind it, which together make one message of the assistant.
    """

    def __init__(
        self,
        environment_role: str = "environment",
        environment_begin: str = "",
        environment_end: str = "",
        user_names: Sequence[str] | None = None,
        few_shot: Sequence[Sequence[Message]] | None = None,
    ) -> None:
        self.environment_role = environment_role
        self.environment_begin = environment_begin
        self.environment_end = environment_end
        self.user_names = list(user_names or ["user"])
        self.few_shot = list(few_shot or [])

    def begin(self, parser: StrParser | None, system_instruction: Any) -> list[Message]:
        messages = self.aggregate_system_intruction(system_instruction) if system_instruction else []
        instruction = parser.format_instruction() if parser is not None else None
        if isinstance(instruction, str) and instruction:
            name = getattr(parser, "tool_type", None)
            instruction = {"role": "system", "content": instruction, **({"name": name} if name else {})}
        if instruction:
            messages += [dict(instruction)] if isinstance(instruction, Mapping) else instruction
        return [*messages, *(message for shot in self.few_shot for message in self._example(shot, parser))]

    def convert(self, message: AgentMessage, name: str, parser: StrParser | None) -> list[Message]:
        if message.sender != name:
            if message.sender in self.user_names:
                return super().convert(message, name, parser)
            (converted,) = super().convert(message.model_copy(update={"type": None}), name, parser)
            return [self._environment(converted)]
        formatted = message.formatted
        if parser is None or not isinstance(formatted, Mapping) or "tool_type" not in formatted:
            return super().convert(message, name, parser)
        if formatted["status"] == ToolStatusCode.PARSING_ERROR:
            return []
        return [{"role": "assistant", "content": parser.format_response(formatted)}]

    def _extend(self, prompt: Prompt, new: list[AgentMessage]) -> None:
        """As the base class does, with the name of the tool that was called last for each result."""
        name, parser, _ = prompt.inputs
        tool = None
        for message in new:
            formatted = message.formatted if message.sender == name else None
            if isinstance(formatted, Mapping) and formatted.get("status") != ToolStatusCode.PARSING_ERROR:
                tool = formatted.get("tool_type")
            for converted in self.convert(message, name, parser):
                if self._is_result(converted) and (tool := tool or self._last_tool(prompt)):
                    converted = {**converted, "name": tool}
                self._append(prompt, converted)
        prompt.count += len(new)

    def _last_tool(self, prompt: Prompt) -> Any:
        """The name of the tool that gave the last result of the conversation."""
        before = reversed(prompt.messages if prompt.count else [])
        return next((message.get("name") for message in before if self._is_result(message)), None)

    def _is_result(self, message: Message) -> bool:
        return bool(message["role"] == self.environment_role)

    def _environment(self, message: Message) -> Message:
        content = message["content"]
        if isinstance(content, str):
            return {"role": self.environment_role, "content": f"{self.environment_begin}{content}{self.environment_end}"}
        around = [[{"type": "text", "text": text}] if text else [] for text in (self.environment_begin, self.environment_end)]
        return {"role": self.environment_role, "content": [*around[0], *content, *around[1]]}

    def _example(self, shot: Sequence[Message], parser: StrParser | None) -> Iterator[Message]:
        following = [*shot[1:], None]
        for message, after in zip(shot, following, strict=True):
            role = message["role"]
            if role in ("assistant", "user", "system"):
                yield message
            elif role == self.environment_role:
                content = message["content"].removeprefix(self.environment_begin).removesuffix(self.environment_end)
                yield {**message, **self._environment({**message, "content": content})}
            elif role in ("thought", "language"):
                if parser is None:
                    raise ConfigurationError(f"an example with the role {role!r} needs an agent with an output_format")
                tool = after if after is not None and after["role"] == "tool" else {"name": None, "content": None}
                parsed = {"tool_type": tool["name"], "thought": message["content"], "action": tool["content"], "status": None}
                yield {"role": "assistant", "content": parser.format_response(parsed)}
            elif role != "tool":
                raise ConfigurationError(f"an example has the unknown role {role!r}")
