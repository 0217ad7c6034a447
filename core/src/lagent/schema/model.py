"""What models give, whole and in pieces, and what parsers make of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from attrs import define, field

from lagent.schema.codes import ModelStatusCode, ParseStatus
from lagent.schema.data import to_data

__all__ = ["ModelChunk", "ModelResponse", "ParsedResponse", "ResponseBuilder", "ToolCall", "ToolCallDelta", "Usage"]


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

    @property
    def arguments_text(self) -> str:
        """The arguments as JSON text, which is how chat formats carry them; raw text as it is."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(to_data(self.arguments), ensure_ascii=False)

    def delta(self, index: int) -> ToolCallDelta:
        """The call as one piece of a stream, in the place ``index`` among the calls of the answer."""
        return ToolCallDelta(index, self.name, self.arguments_text, self.id)


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

    def chunk(self) -> ModelChunk:
        """The whole answer as one chunk."""
        calls = [call.delta(index) for index, call in enumerate(self.tool_calls)]
        return ModelChunk(self.content, self.reasoning or "", calls, self.finish_reason, self.usage, self.extra)


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
    """Puts the chunks of a stream together; each chunk that went through :meth:`add` knows the text so far.

    Attributes:
        started: whether there was a chunk at all.
    """

    def __init__(self) -> None:
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, ToolCallDelta] = {}
        self._response = ModelResponse()
        self.started = False

    def add(self, chunk: ModelChunk) -> ModelChunk:
        self.started = True
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
