"""The data that flows between agents, models, parsers and actions."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, IntEnum
from typing import Any

import attrs
from attrs import define, field

from lagent.errors import StateError

__all__ = [
    "ActionReturn",
    "ActionStatusCode",
    "ActionValidCode",
    "AgentMessage",
    "AgentStatusCode",
    "FunctionCall",
    "ModelChunk",
    "ModelResponse",
    "ModelStatusCode",
    "ParseStatus",
    "ParsedResponse",
    "ResponseBuilder",
    "SessionId",
    "ToolCall",
    "ToolCallDelta",
    "Usage",
    "to_data",
    "tool_calls_of",
]

SessionId = str | int
"""Names a session; isolates memory, model requests and actions."""


class ModelStatusCode(IntEnum):
    """Where a model call stands."""

    END = 0
    STREAM_ING = 1
    SERVER_ERR = -1
    SESSION_CLOSED = -2
    SESSION_OUT_OF_LIMIT = -3
    SESSION_INVALID_ARG = -4
    SESSION_READY = 2


class AgentStatusCode(IntEnum):
    """Where an agent's answer stands: a model's states, then those of tools and of code."""

    END = 0
    STREAM_ING = 1
    SERVER_ERR = -1
    SESSION_CLOSED = -2
    SESSION_OUT_OF_LIMIT = -3
    SESSION_INVALID_ARG = -4
    SESSION_READY = 2
    PLUGIN_START = 3
    PLUGIN_END = 4
    PLUGIN_RETURN = 5
    CODING = 6
    CODE_END = 7
    CODE_RETURN = 8


class ActionStatusCode(IntEnum):
    """How an action ended."""

    ING = 1
    SUCCESS = 0
    HTTP_ERROR = -1000
    ARGS_ERROR = -1001
    API_ERROR = -1002


class ActionValidCode(IntEnum):
    """What kind of action a call turned out to name."""

    FINISH = 1
    OPEN = 0
    CLOSED = -1
    INVALID = -2
    ABSENT = -3


class ParseStatus(str, Enum):
    """How far a parser got with the text of a model."""

    OK = "ok"
    REPAIRED = "repaired"  # malformed, read all the same
    PARTIAL = "partial"  # ends in the middle of a structure
    ERROR = "error"  # cannot be read


# Data ------------------------------------------------------------------------------------------------------------


def to_data(value: Any) -> Any:
    """Turn ``value`` into JSON-safe data: attrs, dataclass, pydantic and msgspec objects become dicts, sets and tuples lists.

    Integer enums stay as they are, since :mod:`json` writes them as numbers; any other unknown object becomes ``str(value)``.
    """
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        return value.value if isinstance(value, Enum) else str(value)
    if isinstance(value, Mapping):
        return {str(to_data(key)): to_data(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_data(item) for item in value]
    if isinstance(value, Enum):
        return to_data(value.value)
    if attrs.has(type(value)):
        return {a.name: to_data(getattr(value, a.name)) for a in attrs.fields(type(value))}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_data(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if not isinstance(value, type) and (names := getattr(value, "__struct_fields__", None)) is not None:  # msgspec
        return {name: to_data(getattr(value, name)) for name in names}
    if callable(dump := getattr(value, "model_dump", None)):
        return to_data(dump())
    return str(value)


def _own(value: Any) -> Any:
    """A copy of ``value`` that shares nothing mutable with it; as cheap as its containers are few."""
    if value is None or isinstance(value, (str, int, float, Enum)):
        return value
    if type(value) is dict:
        return {key: _own(item) for key, item in value.items()}
    if type(value) is list:
        return [_own(item) for item in value]
    return copy.deepcopy(value)


# Tool calls and model output -------------------------------------------------------------------------------------


@define
class FunctionCall:
    """A call of an action as lagent's executors take it."""

    name: str
    parameters: dict[str, Any] | str


@define
class ToolCall:
    """One tool call of a model.

    Attributes:
        name: the tool's name.
        arguments: keyword arguments, parsed; the raw text where it is not a JSON object.
        id: the id that the result refers to; unique within a conversation.
    """

    name: str
    arguments: dict[str, Any] | str = field(factory=dict)
    id: str | None = None


@define
class ToolCallDelta:
    """A piece of a streamed tool call; pieces with the same ``index`` belong together, ``arguments`` are concatenated."""

    index: int
    name: str | None = None
    arguments: str = ""
    id: str | None = None


@define
class Usage:
    """Tokens of one model call; ``cached_tokens`` of the prompt were served from a cache."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


@define(slots=False, eq=False)
class ModelResponse(str):
    """A model's answer. It *is* the text of the answer, so code that expects a plain string goes on working.

    Attributes:
        content: the text.
        reasoning: the text of the model's reasoning, where the model or server separates it.
        tool_calls: native tool calls, complete.
        finish_reason: ``"stop"``, ``"length"``, ``"tool_calls"``, ``"abort"`` or what the engine says.
        usage: token counts, where the engine gives them.
        extra: further results on request: logprobs, token ids, timings, the request id.
        raw: the engine's own answer object.
    """

    content: str = ""
    reasoning: str | None = None
    tool_calls: list[ToolCall] = field(factory=list)
    finish_reason: str | None = None
    usage: Usage | None = None
    extra: dict[str, Any] = field(factory=dict)
    raw: Any = field(default=None, repr=False)

    def __new__(cls, content: str = "", *args: Any, **kwargs: Any) -> ModelResponse:
        return super().__new__(cls, content)


@define
class ModelChunk:
    """An increment of a streamed answer: every field holds only what is new.

    Attributes:
        content, reasoning: new text.
        tool_calls: new pieces of tool calls.
        finish_reason: set in the last chunk, and only there.
        usage, extra: set once they are known, usually in the last chunk.

    Unpacked, a chunk is lagent's ``(status, text so far, None)``.
    """

    content: str = ""
    reasoning: str = ""
    tool_calls: list[ToolCallDelta] = field(factory=list)
    finish_reason: str | None = None
    usage: Usage | None = None
    extra: dict[str, Any] = field(factory=dict)
    _so_far: tuple[list[str], int] = field(default=([], 0), init=False, eq=False, repr=False)

    @property
    def text(self) -> str:
        """The content of the answer so far, this chunk included."""
        pieces, count = self._so_far
        return "".join(pieces[:count])

    @property
    def status(self) -> ModelStatusCode:
        return ModelStatusCode.STREAM_ING if self.finish_reason is None else ModelStatusCode.END

    def __iter__(self) -> Iterator[Any]:
        return iter((self.status, self.text, None))


class ResponseBuilder:
    """Puts the chunks of a stream together; each chunk that went through :meth:`add` knows the text so far."""

    def __init__(self) -> None:
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, ToolCallDelta] = {}
        self._response = ModelResponse()

    def add(self, chunk: ModelChunk) -> ModelChunk:
        if chunk.content:
            self._content.append(chunk.content)
        if chunk.reasoning:
            self._reasoning.append(chunk.reasoning)
        for piece in chunk.tool_calls:
            call = self._calls.setdefault(piece.index, ToolCallDelta(piece.index))
            call.name, call.id = call.name or piece.name, call.id or piece.id
            call.arguments += piece.arguments
        self._response.finish_reason = chunk.finish_reason or self._response.finish_reason
        self._response.usage = chunk.usage or self._response.usage
        self._response.extra.update(chunk.extra)
        chunk._so_far = (self._content, len(self._content))
        return chunk

    @property
    def finished(self) -> bool:
        """Whether a chunk told why the answer ended."""
        return self._response.finish_reason is not None

    def response(self) -> ModelResponse:
        """The answer that the chunks so far make up."""
        known = self._response
        return ModelResponse(
            content="".join(self._content),
            reasoning="".join(self._reasoning) or None,
            tool_calls=[_complete(call) for _, call in sorted(self._calls.items())],
            finish_reason=known.finish_reason,
            usage=known.usage,
            extra=known.extra,
        )


def _complete(call: ToolCallDelta) -> ToolCall:
    try:
        arguments = json.loads(call.arguments or "{}")
    except ValueError:
        arguments = None
    return ToolCall(call.name or "", arguments if isinstance(arguments, dict) else call.arguments, call.id)


@define
class ParsedResponse:
    """What a parser made of the text of a model; the raw text stays in :attr:`AgentMessage.content`.

    Attributes:
        content: the text meant for the reader, without reasoning and tool calls.
        reasoning: the model's reasoning, if any.
        tool_calls: the tool calls, in order.
        value: the structured value, for parsers of structured output; partial while ``status`` is ``PARTIAL``.
        status: how the parsing ended.
        error: what is wrong with the text and how to write it, fit to be shown to the model.
    """

    content: str = ""
    reasoning: str | None = None
    tool_calls: list[ToolCall] = field(factory=list)
    value: Any = None
    status: ParseStatus = ParseStatus.OK
    error: str | None = None


# Actions ---------------------------------------------------------------------------------------------------------


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


# Messages --------------------------------------------------------------------------------------------------------


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
        if not isinstance(self.stream_state, (AgentStatusCode, ModelStatusCode)):
            self.stream_state = AgentStatusCode(self.stream_state)

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
            content, formatted, extra_info = _own(content), _own(formatted), _own(extra_info)
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
