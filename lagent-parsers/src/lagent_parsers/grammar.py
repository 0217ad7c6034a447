"""What a dialect is made of."""

from __future__ import annotations

import re
from collections.abc import Iterable

from attrs import frozen

from lagent_parsers.codecs import Codec
from lagent_parsers.markers import Markers
from lagent_parsers.reasoning import Reasoning

__all__ = ["Block", "Dialect", "Grammar"]


@frozen
class Block:
    """A region of the text that holds tool calls.

    Attributes:
        open: the begin marker; a bracket is itself a part of what is read, and counts at the start of a line only.
        codec: reads what stands in between.
        close: the end markers. Without one, the region ends where the next begins.
        balanced: whether the region ends where the brackets in it balance.
        line_start: whether the begin marker counts at the start of a line only.
    """

    open: str
    codec: Codec
    close: tuple[str, ...] = ()
    balanced: bool = False
    line_start: bool = False

    @property
    def bracket(self) -> bool:
        """Whether the region begins with no marker of its own, only with a bracket."""
        return len(self.open) == 1


@frozen
class Dialect:
    """How a family of models writes.

    Attributes:
        blocks: the regions of tool calls; calls are written as in the first of them.
        before, between, after: what is written before the first call, between two calls and after the last.
        glue: what is written between the content and the calls.
        hidden: markers that never belong to the content.
        section: markers that do not belong to it beside a call or reasoning, but do elsewhere.
        stop: markers after which a model only makes things up, such as the result of its own call.
        before_content, after_content: what is written round the content.
        reasoning, reasoning_started: the style of reasoning, and whether the chat template writes its begin marker, unless the user says
            something else.
        lead: what the chat template has written already; the answer is read as if it began with it.
    """

    blocks: tuple[Block, ...] = ()
    before: str = ""
    between: str = "\n"
    after: str = ""
    glue: str = "\n"
    hidden: tuple[str, ...] = ()
    section: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    before_content: str = ""
    after_content: str = ""
    reasoning: tuple[Reasoning, ...] = ()
    reasoning_started: bool = False
    lead: str = ""


class Grammar:
    """The markers of a dialect and of a style of reasoning, ready to be looked for."""

    def __init__(self, dialect: Dialect, styles: Iterable[Reasoning]) -> None:
        self.dialect = dialect
        self.blocks = {block.open: block for block in dialect.blocks}
        self.styles = {style.open: style for style in styles}
        self.late = {style.close for style in self.styles.values() if style.open_may_be_missing}
        self.hidden, self.section, self.stop = map(frozenset, (dialect.hidden, dialect.section, dialect.stop))
        brackets = [re.escape(b.open) + "+" for b in dialect.blocks if b.bracket]
        openers = [b.open for b in dialect.blocks if not b.bracket]
        self.text = Markers({*openers, *self.styles, *self.late, *self.hidden, *self.section, *self.stop}, brackets)
        again = [("\n" if b.line_start else "") + b.open for b in dialect.blocks if not b.bracket]
        # A lone punctuation mark does not announce a call.
        around = [marker for marker in (*dialect.hidden, *dialect.section) if len(marker) > 1]
        self.reasoning = {s.open: Markers((s.close, *s.ends_before, *again, *around)) for s in self.styles.values()}
        self.outside = {b.open: _outside(b, again) for b in dialect.blocks}
        self.inside = {
            (b.open, q.open): Markers((q.close, *b.close, *_not_closing(b, again)), escapes=q.escapes)
            for b in dialect.blocks
            for q in b.codec.quotes
        }
        self.every = tuple({*openers, *(m for b in dialect.blocks for m in b.close), *self.late})

    def without_reasoning(self) -> Grammar:
        return Grammar(self.dialect, ())


def _outside(block: Block, again: list[str]) -> Markers:
    """What matters outside the quotes of a block: its end, another beginning, quotes, and brackets if they tell the end."""
    brackets = (r"[\[{(]+", r"[\]})]+") if block.balanced else ()
    return Markers((*block.close, *_not_closing(block, again), *(quote.open for quote in block.codec.quotes)), brackets)


def _not_closing(block: Block, again: list[str]) -> list[str]:
    """The begin markers that do not look like the end of ``block``, as those of code blocks do."""
    return [marker for marker in again if not (block.close and marker.lstrip().startswith(block.close))]
