"""What agents and actions exchange."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import attrs
from attrs import define, field

from lagent.errors import StateError
from lagent.schema.codes import ActionStatusCode, ActionValidCode, AgentStatusCode, ModelStatusCode
from lagent.schema.data import own_copy, to_data
from lagent.schema.model import ModelResponse, ParsedResponse, ToolCall

__all__ = ["ActionReturn", "AgentMessage", "FunctionCall", "SessionId", "tool_calls_of"]

SessionId = str | int
"""Names a session; isolates memory, model requests and actions."""


@define
class FunctionCall:
    """A call of an action as lagent's executors take it."""

    name: str
    parameters: dict[str, Any] | str


@define
class ActionReturn:
    """The result of an action: ``result`` is a list of parts such as ``{"type": "text", "content": "…"}``."""

    args: dict[str, Any] | None = None
    url: str | None = None
    type: str | None = None
    result: list[dict[str, Any]] | None = None
    errmsg: str | None = None
    state: ActionStatusCode | int = ActionStatusCode.SUCCESS
    thought: str | None = None
    valid: ActionValidCode | None = ActionValidCode.OPEN

    def format_result(self) -> str:
        """The parts as text, one a line; a part that is not text becomes ``[type](content)``."""
        return "\n".join(
            str(part["content"]) if part["type"] == "text" else f"[{part['type']}]({part['content']})"
            for part in self.result or []
        )


@define(repr=False)
class AgentMessage:
    """What agents exchange.

    Attributes:
        content: the raw text (or a list of OpenAI content parts, or an action's call or result); always kept.
        sender: who wrote it: ``"user"`` or the name of an agent or executor.
        formatted: what a parser made of ``content``.
        extra_info: usage, finish reason, reasoning, timings and the like.
        type: the kind of message where that is not plain text, such as ``"tool"`` for the result of a tool.
        receiver: whom it is meant for.
        stream_state: where the answer stands; ``END`` when it is complete.
        increment: in a streamed message, the text that is new in it; part of neither ``repr`` nor saved data.
    """

    content: Any
    sender: str = "user"
    formatted: Any = None
    extra_info: Any = None
    type: str | None = None
    receiver: str | None = None
    stream_state: ModelStatusCode | AgentStatusCode = AgentStatusCode.END
    increment: str = field(default="", eq=False)

    def __attrs_post_init__(self) -> None:
        # Not as converters of the fields, which would run at every assignment and cost more than all the rest.
        if isinstance(self.content, ModelResponse):
            self.content = self.content.content
        state: Any = self.stream_state
        if not isinstance(state, (AgentStatusCode, ModelStatusCode)):
            self.stream_state = AgentStatusCode(state)

    def __repr__(self) -> str:
        return f"AgentMessage({', '.join(f'{name}={getattr(self, name)!r}' for name in _FIELDS)})"

    def __str__(self) -> str:
        return " ".join(f"{name}={getattr(self, name)!r}" for name in _FIELDS)

    def model_dump(self) -> dict[str, Any]:
        """The message as JSON-safe data."""
        return {name: to_data(getattr(self, name)) for name in _FIELDS}

    def model_dump_json(self, indent: int | None = None) -> str:
        """The message as JSON text."""
        separators = (",", ":") if indent is None else None
        return json.dumps(self.model_dump(), ensure_ascii=False, indent=indent, separators=separators)

    @classmethod
    def model_validate(cls, data: AgentMessage | Mapping[str, Any]) -> AgentMessage:
        """The message that ``data`` describes.

        Raises:
            StateError: ``data`` is not a mapping with the fields of a message.
        """
        if isinstance(data, AgentMessage):
            return data
        if not isinstance(data, Mapping):
            raise StateError(f"a message must be a mapping, not {type(data).__name__}: {data!r:.80}")
        if unknown := sorted(set(map(str, data)) - set(_FIELDS)):
            raise StateError(f"a message has no field {', '.join(unknown)}; it has {', '.join(_FIELDS)}")
        if "content" not in data:
            raise StateError(f"a message needs a 'content': {dict(data)!r:.80}")
        for name in ("sender", "type", "receiver"):
            if not isinstance(data.get(name), str) and ((name == "sender" and name in data) or data.get(name) is not None):
                raise StateError(f"'{name}' of a message must be a string, not {data[name]!r:.80}")
        try:
            return cls(**data)
        except ValueError as error:
            raise StateError(f"'stream_state' of a message cannot be read: {error}") from error

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> AgentMessage:
        """A copy; with ``deep``, one that shares nothing mutable with this message."""
        content, formatted, extra_info = self.content, self.formatted, self.extra_info
        if deep:
            content, formatted, extra_info = own_copy(content), own_copy(formatted), own_copy(extra_info)
        copied = AgentMessage(
            content, self.sender, formatted, extra_info, self.type, self.receiver, self.stream_state, self.increment
        )
        if update:
            for name, value in update.items():
                setattr(copied, name, value)
        return copied

    def copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> AgentMessage:
        """Same as :meth:`model_copy`."""
        return self.model_copy(update=update, deep=deep)


_FIELDS = tuple(a.name for a in attrs.fields(AgentMessage) if a.name != "increment")


def tool_calls_of(message: AgentMessage) -> list[ToolCall]:
    """The tool calls in ``message.formatted``, whether it is a :class:`ParsedResponse` or was loaded as plain data."""
    formatted = message.formatted
    calls: Iterable[Any] | None
    if isinstance(formatted, ParsedResponse):
        return formatted.tool_calls
    calls = formatted.get("tool_calls") if isinstance(formatted, Mapping) else None
    return [ToolCall(call["name"], call["arguments"], call.get("id")) for call in calls or ()]
