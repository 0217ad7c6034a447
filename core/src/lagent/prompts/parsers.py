"""The interface of output parsers; the parsers themselves come with lagent-parsers."""

from __future__ import annotations

import string
from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from lagent.schema import ParsedResponse, ParseStatus

__all__ = ["ParserStream", "StrParser", "ToolStatusCode"]


class ToolStatusCode(IntEnum):
    """How far lagent's own tool parsers, whose results are dicts, got with a text."""

    NO_TOOL = 0
    VALID_TOOL = 1
    PARSING_ERROR = -1


class ParserStream:
    """Reads one answer piece by piece. This one reads it whole whenever it is asked.

    A parser whose :meth:`StrParser.parse_response` is not cheap returns one of its own from :meth:`StrParser.stream`, for which
    feeding costs time for the piece, and feeding any split of a text gives the same :meth:`finish` as the whole.
    """

    def __init__(self, parser: StrParser) -> None:
        self._parser = parser
        self._pieces: list[str] = []

    def feed(self, piece: str) -> None:
        """Take the next piece of the text."""
        self._pieces.append(piece)

    def partial(self) -> Any:
        """What can be said of the text so far."""
        return self._parser.parse_response("".join(self._pieces))

    def finish(self) -> Any:
        """The result, given that the text is complete."""
        return self._parser.parse_response("".join(self._pieces))


class StrParser:
    """Base of output parsers: tells the model what to write and reads what it wrote. This one takes the text as it is.

    Args:
        template: the instruction for the model, with ``{name}`` for each of ``format_field``.
        format_field: what to put into the template.

    Raises:
        ValueError: the template names a field that is not given.
    """

    def __init__(self, template: str = "", **format_field: Any) -> None:
        fields = {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}
        if missing := fields - format_field.keys():
            raise ValueError(
                f"the template names fields that are not given: {', '.join(sorted(missing))}; pass them as keyword arguments"
            )
        self.template = template
        self.format_field = format_field

    @property
    def output_schema(self) -> dict[str, Any] | None:
        """JSON schema for models that can constrain their output, if the parser reads JSON."""
        return None

    def format_instruction(self) -> Any:
        """The instruction for the model: text, one message or a list of messages; empty for none."""
        return self.template.format(**{name: self.format_to_string(value) for name, value in self.format_field.items()})

    def format_to_string(self, format_model: Any) -> str:
        """How a field is written into the template."""
        return str(format_model)

    def format_tools(self, tools: list[dict[str, Any]]) -> str:
        """The instruction that tells the model about ``tools`` (function schemas in OpenAI's form) in this parser's dialect.

        Raises:
            NotImplementedError: the parser reads no tool calls.
        """
        raise NotImplementedError(f"{type(self).__name__} reads no tool calls: choose an output_format that does")

    def format_response(self, parsed: Any) -> str:
        """The text that this parser reads as ``parsed``; the reverse of :meth:`parse_response`."""
        raise NotImplementedError(f"{type(self).__name__} cannot write what it reads")

    def parse_response(self, data: str) -> Any:
        """What ``data``, the whole text of an answer, says."""
        return data

    def stream(self) -> ParserStream:
        """A reader for one answer that arrives piece by piece."""
        return ParserStream(self)


def error_of(parsed: Any) -> str | None:
    """What was wrong with the text that gave ``parsed``, in words for the model; ``None`` if nothing was."""
    if isinstance(parsed, ParsedResponse):
        if parsed.status is ParseStatus.ERROR:
            return parsed.error or "the output could not be read"
        return parsed.error if parsed.status is ParseStatus.PARTIAL else None  # which tells it if the text goes no further
    if isinstance(parsed, Mapping) and parsed.get("status") == ToolStatusCode.PARSING_ERROR:
        return str(parsed.get("error") or "the tool call could not be read")
    return None


def __getattr__(name: str) -> Any:
    from lagent.registry import find_class

    return find_class(__name__, name)
