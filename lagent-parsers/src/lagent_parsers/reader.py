"""Reads one answer in a dialect, piece by piece: every character is looked at a constant number of times."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from lagent.prompts.parsers import ParserStream
from lagent.schema import ModelChunk, ParsedResponse, ParseStatus, ToolCall, ToolCallDelta
from lagent_parsers.codecs import CutOffError, NoCallError
from lagent_parsers.grammar import Grammar
from lagent_parsers.jsontext import dumps
from lagent_parsers.prose import Prose
from lagent_parsers.region import Region

if TYPE_CHECKING:
    from lagent_parsers.dialect import DialectParser

__all__ = ["DialectStream"]

_SPACE = re.compile(r"\s*")
_HEAD = 64  # characters that tell whether a region may be a call, and whether the model repeats what the template wrote
_SEVERITY = [ParseStatus.OK, ParseStatus.REPAIRED, ParseStatus.PARTIAL, ParseStatus.ERROR]


class DialectStream(ParserStream):
    """A state machine that is in the text, in reasoning, at the beginning of a region of tool calls, or within one.

    Each state is a method that reads on from :attr:`_at` and returns whether it got anywhere.
    """

    def __init__(self, parser: DialectParser, grammar: Grammar) -> None:
        self._dialect, self._grammar = parser, grammar
        self._state: Callable[[], bool] = self._start
        self._held, self._at = "", 0  # text that is not read yet, from the place _at on
        self._final = False
        self._content, self._reasoning = Prose(), Prose()
        self._calls: list[ToolCall] = []
        self._sent = 0
        self._status, self._errors = ParseStatus.OK, list[str]()
        self._value: ToolCall | None = None
        self._raw: list[str] | None = [] if grammar.late else None  # all of it, as long as it may turn out to be reasoning

    # What users call

    def feed(self, piece: str) -> None:
        self._held, self._at = self._held[self._at :] + piece, 0
        if self._raw is not None:
            self._raw.append(piece)
        while self._state():
            pass

    def partial(self) -> ParsedResponse:
        """What there is so far. ``value`` is the unfinished tool call, as far as it goes."""
        if self._state == self._region_body:
            return self._result(ParseStatus.PARTIAL, self._region.call_of_late())
        return self._result(ParseStatus.PARTIAL if self._state == self._in_reasoning else self._status, None)

    def increment(self) -> ModelChunk:
        """What has come since the last time this was asked; a tool call comes whole, when it is complete.

        What was given cannot be taken back: content that turns out to be reasoning, because an end marker comes without a begin
        marker, was given as content. Where the chat template begins the reasoning, tell the parser so (``reasoning_started=True``).
        """
        new, self._sent = self._calls[self._sent :], len(self._calls)
        first = self._sent - len(new)
        deltas = [
            ToolCallDelta(first + i, c.name, c.arguments if isinstance(c.arguments, str) else dumps(c.arguments), c.id)
            for i, c in enumerate(new)
        ]
        return ModelChunk(self._content.new(), self._reasoning.new(), deltas)

    def finish(self) -> ParsedResponse:
        self._final = True
        while self._state():
            pass
        self._content.end()
        return self._result(self._status, self._value)

    def _result(self, status: ParseStatus, value: ToolCall | None) -> ParsedResponse:
        error = "; ".join(dict.fromkeys(self._errors)) or None
        return ParsedResponse(self._content.text(), self._reasoning.text() or None, list(self._calls), value, status, error)

    def _note(self, status: ParseStatus, error: str | None = None) -> None:
        self._status = max(self._status, status, key=_SEVERITY.index)
        if error:
            self._errors.append(error)

    # Text

    def _start(self) -> bool:
        """Add what the chat template has written already, unless the model wrote it again."""
        lead, text = self._dialect.lead, self._held[:_HEAD].lstrip()
        if lead.startswith(text) and len(text) < len(lead) and len(self._held) < _HEAD and not self._final:
            return False
        if not text.startswith(lead):
            self._held = lead + self._held
        self._state = self._in_text
        return True

    def _in_text(self) -> bool:
        grammar, content = self._grammar, self._content
        found, certain = grammar.text.find(self._held, self._at, self._final)
        content.add(self._held[self._at : certain])
        self._at = certain
        if found is None:
            return False
        self._at, marker = found.end(), found.group()
        if block := grammar.blocks.get(marker) or grammar.blocks.get(marker[0]):
            if content.line_start or not (block.bracket or block.line_start):
                self._at = found.start() + len(block.open)
                self._region = Region(block, grammar, content.line_start, self._dialect.tools)
                self._state = self._region_start
            else:
                content.add(marker)
        elif (style := grammar.styles.get(marker)) and (content.fresh or style.anywhere):
            content.structure()
            self._reasoning.structure()
            self._raw, self._style, self._thought_calls = None, style, list[str]()
            self._state = self._in_reasoning
        elif marker in grammar.hidden:
            content.structure()
        elif marker in grammar.section:
            content.hold(marker)
        elif marker in grammar.stop and content.fresh:
            self._state = self._behind_stop
        elif marker in grammar.late and self._raw is not None:
            self._everything_was_reasoning(marker)
        else:
            content.add(marker)
        return True

    def _behind_stop(self) -> bool:
        self._at = len(self._held)
        return False

    # Reasoning

    def _in_reasoning(self) -> bool:
        style = self._style
        found, certain = self._grammar.reasoning[style.open].find(self._held, self._at, self._final)
        self._think(self._held[self._at : certain])
        self._at = certain
        if found is None:
            if self._final:
                self._reasoning_without_end()
            return False
        if found.group() == style.close or found.group().startswith(style.ends_before):
            self._at = found.end() if found.group() == style.close else found.start()
            self._reasoning.add("".join(self._thought_calls))
            self._reasoning.structure()
            self._state = self._in_text
        else:  # a call inside reasoning is a mere thought, unless the reasoning never ends
            self._at = found.end()
            self._thought_calls.append(found.group())
        return True

    def _think(self, text: str) -> None:
        if self._thought_calls:
            self._thought_calls.append(text)
        else:
            self._reasoning.add(text)

    def _reasoning_without_end(self) -> None:
        """Take calls for real ones if reasoning did not go on to its end behind them."""
        self._state = self._in_text
        behind = "".join(self._thought_calls)
        rest = DialectStream(self._dialect, self._grammar.without_reasoning())
        rest._state = rest._in_text
        rest.feed(behind)
        read = rest.finish()
        if read.tool_calls:
            self._content.structure()
            self._content.add(read.content)
            self._calls += read.tool_calls
            self._value = read.value
            self._note(read.status, read.error)
        else:
            self._reasoning.add(behind)
            self._note(ParseStatus.PARTIAL, "the answer ends within the reasoning")

    def _everything_was_reasoning(self, marker: str) -> None:
        raw = "".join(self._raw or ())
        self._reasoning.structure()
        self._reasoning.add(raw[: len(raw) - (len(self._held) - self._at) - len(marker)])
        self._reasoning.structure()
        self._content = Prose()
        self._content.structure()
        self._raw, self._calls, self._sent = None, [], 0
        self._status, self._errors = ParseStatus.OK, []

    # Regions of tool calls

    def _region_start(self) -> bool:
        """Leave a region at once if what it begins with is no call: prose may mention the markers."""
        space = _SPACE.match(self._held, self._at)
        if space and space.end() > self._at:
            self._region.add(space.group())
            self._at = space.end()
        head = self._held[self._at : self._at + _HEAD]
        may_be = self._region.may_begin_with(head, self._final)
        if may_be is None:
            return False
        self._state = self._region_body if may_be else self._in_text
        if not may_be:
            self._content.add(self._region.text())
        return True

    def _region_body(self) -> bool:
        region = self._region
        self._at = region.read(self._held, self._at, self._final)
        if region.end is None:
            return False
        if (behind := region.behind) and len(behind) > self._at:
            self._held, self._at = behind + self._held[self._at :], 0
        elif behind:
            self._at -= len(behind)
        self._state = self._behind_stop if region.end.strip() in self._grammar.stop else self._in_text
        self._take(region)
        return True

    def _take(self, region: Region) -> None:
        more = self._at < len(self._held)
        try:
            read = region.calls(more)
        except CutOffError as error:
            problem: ValueError = error
            if self._calls and self._content.fresh and not region.body().strip():
                return  # a begin marker in place of the end marker of the last call
            value = region.call_so_far()
            if value is not None or region.line_start:
                if value is None and region.body().strip():
                    self._content.add(region.text())
                else:
                    self._content.structure()
                self._value = value
                self._note(ParseStatus.PARTIAL, f"the answer ends within a tool call: {error}")
                return
        except ValueError as error:
            problem = error
        else:
            self._calls += read.calls
            self._content.structure()
            self._note(ParseStatus.OK if read.well_formed else ParseStatus.REPAIRED)
            return
        self._content.add(region.text())
        if region.is_attempt or not isinstance(problem, (NoCallError, CutOffError)):
            self._note(ParseStatus.ERROR, f"a tool call cannot be read: {problem}; write one like this:\n{self._dialect.example}")
