"""From the text of an engine to the chunks of an answer."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from lagent.errors import ModelConfigurationError
from lagent.schema import ModelChunk, ModelResponse, ResponseBuilder, ToolCall
from lagent_engines.pieces import Piece
from lagent_engines.prompts import Reply
from lagent_parsers import DialectParser

__all__ = ["Answer", "required_call"]


class Answer:
    """One answer as it comes: reasoning and tool calls apart from the text, which ends before a stop word.

    Args:
        parser: reads reasoning and tool calls; ``None`` takes the text as it is.
        stop_words: those that the engine does not watch for.
        call: the text is one tool call that the engine was held to; see :func:`required_call`.

    Attributes:
        stopped: the stop word that was met, so that the engine need not go on.
    """

    def __init__(self, parser: DialectParser | None = None, stop_words: Sequence[str] = (), *, call: bool = False) -> None:
        self._reader = parser.stream() if parser is not None else None
        self._stop_words = [word for word in stop_words if word]
        self._call = call
        self._held = ""  # the end of the text so far, which may be the beginning of a stop word
        self._token_ids: list[int] = []
        self._last = Piece()
        self._answer = ResponseBuilder()
        self._called = False
        self.stopped: str | None = None

    def add(self, piece: Piece) -> ModelChunk:
        """What ``piece`` adds, the text that may still turn out to be a stop word left for later."""
        self._token_ids += piece.token_ids
        self._last = piece
        text = self._before_stop_word(piece.text, final=piece.finish_reason is not None)
        finish_reason = "stop" if self.stopped is not None else piece.finish_reason
        if self._call:
            self._held += text
            chunk = self._read_call() if finish_reason else ModelChunk()
        elif self._reader is None:
            chunk = ModelChunk(text)
        else:
            self._reader.feed(text)
            if finish_reason:
                self._reader.finish()
            chunk = self._reader.increment()
        for call in chunk.tool_calls:
            call.id = call.id or f"call_{uuid.uuid4().hex[:12]}"
        self._called = self._called or bool(chunk.tool_calls)
        chunk.finish_reason = "tool_calls" if finish_reason == "stop" and self._called else finish_reason
        chunk.usage, chunk.extra = piece.usage, piece.extra
        return self._answer.add(chunk)

    def response(self) -> ModelResponse:
        """The answer so far."""
        return self._answer.response()

    def reply(self) -> Reply:
        """The answer so far, to be recognised in the conversation."""
        answer = self.response()
        cut = self.stopped is not None or self._last.stopped_by or self._last.finish_reason in (None, "abort")
        return Reply(
            self._token_ids,
            answer.content,
            tuple((call.name, call.arguments_text) for call in answer.tool_calls),
            answer.reasoning,
            verbatim=not (self._call or cut),
        )

    def _before_stop_word(self, text: str, final: bool) -> str:
        if self._call or not self._stop_words:
            return text
        text, self._held = self._held + text, ""
        found = [(place, word) for word in self._stop_words if (place := text.find(word)) >= 0]
        if found:
            place, self.stopped = min(found)
            return text[:place]
        if not final:
            keep = max(_overlap(text, word) for word in self._stop_words)
            text, self._held = text[: len(text) - keep], text[len(text) - keep :]
        return text

    def _read_call(self) -> ModelChunk:
        """The tool call that the text is; the text itself if it was cut off."""
        try:
            call = json.loads(self._held)
            return ModelChunk(tool_calls=[ToolCall(call["name"], call["arguments"]).delta(0)])
        except (ValueError, LookupError, TypeError):
            return ModelChunk(self._held)


def required_call(tools: Sequence[Mapping[str, Any]], choice: Any) -> dict[str, Any] | None:
    """The JSON schema of the tool call that ``tool_choice`` demands; ``None`` if it demands none.

    A call that is demanded is one call: a small model that may write several does not find an end.

    Raises:
        ModelConfigurationError: ``choice`` is none that OpenAI's protocol has, or names a tool that is not among ``tools``.
    """
    if choice in (None, "auto", "none"):
        return None
    names = [tool["function"]["name"] for tool in tools]
    wanted = names
    if choice != "required":
        named = choice.get("function", {}).get("name") if isinstance(choice, Mapping) else None
        if named not in names:
            raise ModelConfigurationError(
                f"tool_choice is {choice!r}; it has to be 'auto', 'none', 'required', or name one of the tools {', '.join(names)}: "
                f"{{'type': 'function', 'function': {{'name': {names[0]!r}}}}}"
            )
        wanted = [named]
    schemas = [_schema_of_call(tool["function"]) for tool in tools if tool["function"]["name"] in wanted]
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


def _schema_of_call(function: Mapping[str, Any]) -> dict[str, Any]:
    arguments = function.get("parameters") or {"type": "object", "properties": {}, "additionalProperties": False}
    return {
        "type": "object",
        "properties": {"name": {"type": "string", "enum": [function["name"]]}, "arguments": arguments},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def _overlap(text: str, word: str) -> int:
    """How many characters at the end of ``text`` are a beginning of ``word``."""
    return next((size for size in range(min(len(word) - 1, len(text)), 0, -1) if text.endswith(word[:size])), 0)
