"""The output parser ``parrot``: reads lists."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from lagent.prompts.parsers import ParserStream, StrParser
from lagent.schema import ParsedResponse, ParseStatus

__all__ = ["ParrotParser"]

INSTRUCTION = "Answer with a list. Each item is a line that begins with '- '."


class ParrotParser(StrParser):
    """Reads the lines that begin with ``- `` into :attr:`ParsedResponse.value`, and the others as the content.

    Args:
        template: the instruction for the model.
    """

    def __init__(self, template: str = INSTRUCTION) -> None:
        super().__init__(template)

    def parse_response(self, data: str) -> ParsedResponse:
        lines = data.split("\n")
        items = [line[2:] for line in lines if line.startswith("- ")]
        content = "\n".join(line for line in lines if not line.startswith("- "))
        if not items:
            return ParsedResponse(content, value=[], status=ParseStatus.ERROR, error=f"there is no list: {INSTRUCTION}")
        return ParsedResponse(content, value=items)

    def format_response(self, parsed: Any) -> str:
        return "\n".join([*([parsed.content] if parsed.content else []), *(f"- {item}" for item in parsed.value)])

    def stream(self) -> ParserStream:
        return _Stream(self)


class _Stream(ParserStream):
    def partial(self) -> ParsedResponse:
        parsed: ParsedResponse = super().partial()
        return evolve(parsed, status=ParseStatus.PARTIAL, error=None)
