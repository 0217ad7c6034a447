"""The parser that reads and writes a dialect."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import Any, ClassVar

from lagent.errors import ConfigurationError
from lagent.prompts.parsers import StrParser
from lagent.schema import ParsedResponse, ToolCall
from lagent_parsers.codecs import Tools
from lagent_parsers.grammar import Dialect, Grammar
from lagent_parsers.reader import DialectStream
from lagent_parsers.reasoning import Reasoning, styles_of

__all__ = ["DialectParser"]

_EXAMPLE = ToolCall("example_function", {"first_parameter": "value", "second_parameter": 2})
_TOOLS = """\
# Tools

You may call functions to help with the user's request. These are their signatures, one a line:
{tools}

To call a function, write this and nothing else after it, with the function's name and arguments in place of those of the example:
{example}

You may write several calls one after the other. If no function helps, answer without a call."""


class DialectParser(StrParser):
    """Reads a model's answer as a :class:`~lagent.schema.ParsedResponse` and writes one; see :attr:`dialect` for what it looks like.

    Texts between, before and after calls make up ``content``. Calls that are malformed but clear are read, with the status ``REPAIRED``;
    those that are not stay in ``content``, with the status ``ERROR``. A call that the text ends in is the ``value``, with the status
    ``PARTIAL``, and never among ``tool_calls``.

    Args:
        template, format_field: see :class:`StrParser`.
        reasoning: the style of reasoning, a name of :data:`lagent_parsers.reasoning.STYLES`, several, ``"none"``, or a
            :class:`Reasoning`; the dialect's own if not given.
        reasoning_started: whether the chat template itself writes the begin marker of the reasoning; what the dialect's models do if not
            given.
        tools: function schemas in OpenAI's form, which tell the types of values where the dialect does not write them.
            :meth:`format_tools` sets them as well.

    Raises:
        ConfigurationError: there is no such style of reasoning.
    """

    dialect: ClassVar[Dialect] = Dialect()

    def __init__(
        self,
        template: str = "",
        *,
        reasoning: str | Reasoning | Sequence[str | Reasoning] | None = None,
        reasoning_started: bool | None = None,
        tools: Tools = (),
        **format_field: Any,
    ) -> None:
        super().__init__(template, **format_field)
        self.styles = self.dialect.reasoning if reasoning is None else styles_of(reasoning)
        if reasoning_started is None:
            reasoning_started = self.dialect.reasoning_started and reasoning is None
        if reasoning_started and not self.styles:
            raise ConfigurationError("reasoning_started needs a style of reasoning, such as reasoning='think'")
        self._reasoning_started = reasoning_started
        self.lead = self.styles[0].open if reasoning_started else self.dialect.lead
        self.tools = tools
        self._grammar = _grammar(self.dialect, self.styles)

    @functools.cached_property
    def example(self) -> str:
        """A tool call in this dialect, to show to the model."""
        return self._calls([_EXAMPLE])

    def stream(self) -> DialectStream:
        return DialectStream(self, self._grammar)

    def parse_response(self, data: str) -> ParsedResponse:
        stream = self.stream()
        stream.feed(data)
        return stream.finish()

    def format_tools(self, tools: list[dict[str, Any]]) -> str:
        self.tools = tools
        lines = "\n".join(json.dumps(tool.get("function", tool), ensure_ascii=False) for tool in tools)
        return _TOOLS.format(tools=lines, example=self.example)

    def format_response(self, parsed: ParsedResponse) -> str:
        """The text that is read as ``parsed``: reasoning, content, tool calls."""
        dialect = self.dialect
        reasoning = ""
        if self.styles and (parsed.reasoning or self._reasoning_started):
            reasoning = self.styles[0].write(parsed.reasoning or "")
        content = f"{dialect.before_content}{parsed.content}{dialect.after_content}" if parsed.content else ""
        calls = self._calls(parsed.tool_calls) if parsed.tool_calls else ""
        glue = dialect.glue if content and calls else ""
        return f"{reasoning}{content}{glue}{calls}".removeprefix(dialect.lead)

    def _calls(self, calls: Sequence[ToolCall]) -> str:
        dialect, codec, avoid = self.dialect, self.dialect.blocks[0].codec, self._grammar.every
        written = [codec.write(call, place, avoid, self.tools) for place, call in enumerate(calls)]
        return f"{dialect.before}{dialect.between.join(written)}{dialect.after}"


@functools.cache
def _grammar(dialect: Dialect, styles: tuple[Reasoning, ...]) -> Grammar:
    return Grammar(dialect, styles)
