"""Text with structures in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["Prose", "Reading"]

T = TypeVar("T")


class Prose:
    """Text that has structures, such as tool calls, taken out of it.

    White space that touches a structure belongs to the structure; text before and after one is joined by a line break.

    Attributes:
        fresh: whether nothing but white space has come since the beginning or the last structure.
        line_start: whether nothing but white space has come since the last line break or structure.
    """

    def __init__(self) -> None:
        self._text = ""
        self._parts: list[str] = []  # what comes behind _text
        self._new: list[str] = []
        self._gap: list[str] = []  # white space and the like, which the next text or structure decides about
        self._behind_structure = False
        self.fresh = self.line_start = True

    def add(self, text: str) -> None:
        """Take text that belongs to no structure."""
        core = text.rstrip()
        if core:
            if self._behind_structure:
                before, text = "\n" if self._parts or self._text else "", text.lstrip()
                core = core.lstrip()
            else:
                before = "".join(self._gap)
            self._append(before + core)
            self._gap = [text[len(core) :]]
            self._behind_structure = self.fresh = False
        else:
            self._gap.append(text)
        line = text.rfind("\n") + 1
        self.line_start = (self.line_start or line > 0) and (not core or text[line:].isspace() or line == len(text))

    def hold(self, marker: str) -> None:
        """Take a marker that counts as white space does."""
        self._gap.append(marker)

    def structure(self) -> None:
        """Know that a structure stands here."""
        self._gap.clear()
        self._behind_structure = self.fresh = self.line_start = True

    def end(self) -> None:
        """Know that nothing comes after this."""
        if not self._behind_structure:
            self._append("".join(self._gap))
        self._gap.clear()

    def text(self) -> str:
        """The text so far, without white space at its end that may yet belong to a structure."""
        if self._parts:
            self._text = "".join([self._text, *self._parts])
            self._parts.clear()
        return self._text

    def new(self) -> str:
        """What has come since the last time this was asked."""
        new = "".join(self._new)
        self._new.clear()
        return new

    def _append(self, text: str) -> None:
        self._parts.append(text)
        self._new.append(text)


class Reading(Generic[T]):
    """What a growing text says: read anew when it has grown by a sixteenth, so that all readings together cost linear time.

    Args:
        read: reads the text so far.
    """

    def __init__(self, read: Callable[[], T]) -> None:
        self._read = read
        self._length = 0
        self._value: T | None = None

    def at(self, length: int) -> T | None:
        """What was read last, or is read now that the text is so long."""
        if length > self._length and (length - self._length) * 16 >= length:
            self._length, self._value = length, self._read()
        return self._value
