"""The scripted model, in both colours."""

from __future__ import annotations

import copy
import json
import re
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

from attrs import evolve

from lagent import flow
from lagent.errors import ModelConfigurationError
from lagent.flow import Call, Flow, Sleep
from lagent.llms import AsyncBaseLLM, BaseLLM, Capabilities, ModelRequest
from lagent.schema import ModelChunk, ModelResponse, SessionId, ToolCall, ToolCallDelta, Usage

__all__ = ["AsyncEchoModel", "EchoModel"]

_FIELDS = ("content", "reasoning", "tool_calls", "finish_reason")
_CAPABILITIES = Capabilities(tools=True, streaming=True, images=True, raw_prompts=True)


class _Scripted(BaseLLM):
    """Answers by a script, word by word, and remembers what it was asked.

    One answer of a script is a text, a :class:`ModelResponse`, a mapping with its fields ``content``, ``reasoning``, ``tool_calls`` and
    ``finish_reason``, a :class:`ToolCall`, an exception to raise, or a list of pieces to stream as they are (texts, tool calls,
    :class:`ModelChunk`, exceptions). Stop words and ``max_new_tokens`` are kept; a token is what stands between white space.

    Args:
        answers: a list of answers, one for each request; one answer, for every request; or a function, which may be a coroutine
            function, from the messages, or the raw prompt, to an answer. Without it, the model says what the last message says.
        recording: a file of answers, in place of ``answers``: on each line a text or a mapping, as JSON.
        delay: seconds to wait before each chunk.
        capabilities: what the model claims to be able to do.
        options: see :class:`BaseLLM`.

    Attributes:
        requests: copies of the requests so far, in order.
        closed_sessions: the sessions that were closed, in order.

    Raises:
        ModelConfigurationError: the recording cannot be read, or, in a call, the list of answers is used up.
    """

    def __init__(
        self,
        answers: Any = None,
        *,
        recording: str | Path | None = None,
        delay: float = 0.0,
        capabilities: Capabilities = _CAPABILITIES,
        path: str = "echo",
        max_new_tokens: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(path, max_new_tokens=max_new_tokens, **options)
        if recording is not None and answers is not None:
            raise ModelConfigurationError("give answers or a recording, not both")
        self.answers = answers if recording is None else _read(Path(recording))
        self.delay = delay
        self.capabilities = capabilities
        self.requests: list[ModelRequest] = []
        self.closed_sessions: list[SessionId] = []
        self._lock = threading.Lock()

    def close_session(self, session_id: SessionId) -> None:
        self.closed_sessions.append(session_id)

    def _chunks(self, request: ModelRequest) -> Flow[ModelChunk]:
        """Emit the answer to ``request``."""
        with self._lock:
            self.requests.append(evolve(request, messages=copy.deepcopy(request.messages), params=dict(request.params)))
            number = len(self.requests)
        pieces = _pieces((yield from self._answer_to(request, number)), number)
        chunk = ModelChunk()
        for chunk in _limited(pieces, request):
            if self.delay:
                yield Sleep(self.delay)
            yield chunk
        return chunk

    def _answer_to(self, request: ModelRequest, number: int) -> Flow[Any]:
        asked = request.messages if request.prompt is None else request.prompt
        if self.answers is None:
            return asked if isinstance(asked, str) else _content(asked[-1] if asked else {})
        if callable(self.answers):
            return (yield Call(self.answers, (asked,)))
        if not isinstance(self.answers, (list, tuple)):
            return self.answers
        if number > len(self.answers):
            raise ModelConfigurationError(f"the script of {self.path} has {len(self.answers)} answers, this is request {number}")
        return self.answers[number - 1]


class EchoModel(_Scripted):
    __doc__ = _Scripted.__doc__

    def _stream(self, request: ModelRequest) -> Iterator[ModelChunk]:
        return flow.stream(self._chunks(request))


class AsyncEchoModel(_Scripted, AsyncBaseLLM):
    __doc__ = _Scripted.__doc__

    def _stream(self, request: ModelRequest) -> AsyncIterator[ModelChunk]:
        return flow.astream(self._chunks(request))


Piece = ModelChunk | BaseException


def _pieces(answer: Any, number: int) -> list[Piece]:
    """An answer of a script as chunks, and an exception where the stream breaks. ``number`` makes the ids of tool calls unique."""
    if isinstance(answer, Mapping):
        answer = _response(answer)
    if isinstance(answer, ModelResponse):
        end = ModelChunk(finish_reason=answer.finish_reason, usage=answer.usage, extra=answer.extra)
        answer = [ModelChunk(reasoning=answer.reasoning or ""), *_words(answer.content), *answer.tool_calls, end]
    elif not isinstance(answer, (list, tuple)):
        answer = _words(answer) if isinstance(answer, str) else [answer]
    pieces: list[Piece] = []
    calls = 0
    for piece in answer:
        if isinstance(piece, ToolCall):
            delta = ToolCallDelta(calls, piece.name, piece.arguments_text, piece.id or f"call_{number}_{calls}")
            piece, calls = ModelChunk(tool_calls=[delta]), calls + 1
        elif isinstance(piece, type) and issubclass(piece, BaseException):
            piece = piece()
        pieces.append(piece if isinstance(piece, (ModelChunk, BaseException)) else ModelChunk(str(piece)))
    return pieces


def _limited(pieces: list[Piece], request: ModelRequest) -> Iterator[ModelChunk]:
    """The chunks up to the first stop word or the last token allowed, then one that says why the answer ended and counts tokens."""
    text = "".join(piece.content for piece in pieces if isinstance(piece, ModelChunk))
    end, cut = _end_of(text, request.params)
    thoughts = sum(_count(piece.reasoning) for piece in pieces if isinstance(piece, ModelChunk))
    usage = Usage(_count(_asked(request)), _count(text[:end]) + thoughts)
    position, finish = 0, "stop"
    for piece in pieces:
        if cut and position >= end:
            break
        if not isinstance(piece, ModelChunk):
            raise piece
        chunk = evolve(piece, content=piece.content[: end - position], finish_reason=None, usage=None)
        position += len(piece.content)
        usage, finish = piece.usage or usage, piece.finish_reason or ("tool_calls" if piece.tool_calls else finish)
        if chunk != ModelChunk():
            yield chunk
    yield ModelChunk(finish_reason=cut or finish, usage=usage)


def _end_of(text: str, params: Mapping[str, Any]) -> tuple[int, str | None]:
    """Where the sampling parameters end the text and as what, ``None`` if they do not."""
    end, cut = len(text), None
    words = list(re.finditer(r"\S+", text))
    if (most := params.get("max_new_tokens")) is not None and len(words) > most:
        end, cut = (words[most - 1].end() if most else 0), "length"
    for word in params.get("stop_words") or ():
        if 0 <= (found := text.find(word)) <= end:
            end, cut = found, "stop"
    return end, cut


def _response(fields: Mapping[str, Any]) -> ModelResponse:
    if unknown := fields.keys() - _FIELDS:
        raise ModelConfigurationError(
            f"an answer has no field {', '.join(map(repr, sorted(unknown)))}; it has {', '.join(_FIELDS)}"
        )
    try:
        calls = [call if isinstance(call, ToolCall) else ToolCall(**call) for call in fields.get("tool_calls", ())]
    except TypeError as error:
        raise ModelConfigurationError(f"a tool call has name, arguments and id, not {fields['tool_calls']!r:.200}") from error
    return ModelResponse(**{**fields, "tool_calls": calls})


def _read(path: Path) -> list[Any]:
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelConfigurationError(f"the recording {path} cannot be read: {error}") from error
    answers: list[Any] = []
    for number, line in enumerate(lines, 1):
        try:
            if line.strip():
                answer = json.loads(line)
                answers.append(answer if isinstance(answer, str) else _response(answer))
        except (ValueError, AttributeError) as error:
            raise ModelConfigurationError(f"line {number} of {path} is not a text or a mapping in JSON: {error}") from error
    return answers


def _words(text: str) -> list[str]:
    return re.findall(r"\s*\S+(?:\s+$)?|\s+", text)


def _count(text: str) -> int:
    return len(text.split())


def _asked(request: ModelRequest) -> str:
    return request.prompt if request.prompt is not None else "\n".join(map(_content, request.messages))


def _content(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
