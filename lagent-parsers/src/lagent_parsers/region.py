"""A region of tool calls: where it ends, and what was in it."""

from __future__ import annotations

from lagent.schema import ToolCall
from lagent_parsers.codecs import CutOffError, Quote, Read, Tools
from lagent_parsers.grammar import Block, Grammar
from lagent_parsers.prose import Reading

__all__ = ["Region"]

_PART = 256  # characters that are put together as they come, since many small strings cost more to join and to free than to read


class Region:
    """Collects the text of a region until its end.

    An end marker within quotes does not count, until the next begin marker or the end of the text shows that the quotes are broken:
    then the first of them was the end.

    Attributes:
        end: the end marker, once the region has ended; empty if it has none.
        behind: text that was read and stands behind the end after all.
    """

    def __init__(self, block: Block, grammar: Grammar, line_start: bool, tools: Tools) -> None:
        self.block, self._grammar, self.line_start, self._tools = block, grammar, line_start, tools
        self.end: str | None = None
        self.behind = ""
        self._proper = False
        self._parts, self._last = list[str](), block.open if block.bracket else ""
        self._depth = self._length = len(self._last)
        self._quote: Quote | None = None
        self._markers = grammar.outside[block.open]
        self._quotes = {quote.open: quote for quote in block.codec.quotes}
        self._end_in_quotes: tuple[int, str] | None = None
        self._partial = Reading(self.call_so_far)

    @property
    def is_attempt(self) -> bool:
        """Whether the markers alone, at their proper places, show that a tool call was meant."""
        return self.line_start and bool(self.end) and not self.block.codec.bare

    def may_begin_with(self, head: str, final: bool) -> bool | None:
        """Whether the region may hold a call, given its first text; ``None`` if more of it is needed."""
        may_be = self.block.bracket or self.block.codec.begins(head, final)
        return may_be if may_be is not False else self.line_start and not self.block.codec.bare

    def body(self) -> str:
        """The text between the markers."""
        if self._parts:
            self._last = "".join([*self._parts, self._last])
            self._parts.clear()
        return self._last

    def text(self) -> str:
        """The text of the whole region, with its markers."""
        return ("" if self.block.bracket else self.block.open) + self.body() + (self.end or "")

    def call_so_far(self) -> ToolCall | None:
        """The call as far as it goes."""
        return self.block.codec.read_partly(self.body(), self._tools)

    def call_of_late(self) -> ToolCall | None:
        """The call as far as it went not long ago, which may be asked for at every piece."""
        return self._partial.at(self._length)

    def calls(self, more: bool) -> Read:
        """What the region holds.

        Args:
            more: whether anything comes behind it.

        Raises:
            ValueError: see :meth:`Codec.read`.
        """
        if not (self._proper or more or self.body().strip()):
            raise CutOffError("nothing stands behind the begin marker")
        return self.block.codec.read(self.body(), self._proper or more, self._tools)

    def add(self, text: str) -> None:
        self._last += text
        self._length += len(text)
        if len(self._last) > _PART:
            self._parts.append(self._last)
            self._last = ""

    def read(self, text: str, at: int, final: bool) -> int:
        """Read on from a place in ``text``; returns up to where. Sets :attr:`end` if the region ends there."""
        while self.end is None:
            found, certain = self._markers.find(text, at, final)
            if certain > at:
                self.add(text[at:certain])
                at = certain
            if found is None:
                if final:
                    self._end("")
                break
            at = self._read_in_quotes(found.group(), at) if self._quote else self._read_marker(found.group(), at)
        return at

    def _read_marker(self, marker: str, at: int) -> int:
        if marker in self.block.close:
            self._end(marker, proper=True)
        elif quote := self._quotes.get(marker):
            self._quote, self._markers = quote, self._grammar.inside[self.block.open, quote.open]
            self.add(marker)
        elif self.block.balanced and marker[0] in "[{(":
            self._depth += len(marker)
            self.add(marker)
        elif self.block.balanced and marker[0] in "]})":
            marker = marker[: self._depth] or marker
            self.add(marker)
            if self._depth:
                self._depth -= len(marker)
                if not self._depth:
                    self._end("", proper=True)
        else:  # the next region begins
            self._end("")
            return at
        return at + len(marker)

    def _read_in_quotes(self, marker: str, at: int) -> int:
        assert self._quote is not None
        if marker == self._quote.close:
            self._quote, self._markers = None, self._grammar.outside[self.block.open]
        elif marker in self.block.close:
            self._end_in_quotes = self._end_in_quotes or (self._length, marker)
        elif self._end_in_quotes:
            self._end("")
            return at
        self.add(marker)
        return at + len(marker)

    def _end(self, marker: str, proper: bool = False) -> None:
        self.end = marker
        if not proper and self._end_in_quotes:
            length, self.end = self._end_in_quotes
            body = self.body()
            self._last, self.behind = body[:length], body[length + len(self.end) :]
            proper = True
        self._proper = proper
