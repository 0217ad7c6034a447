"""Finding markers in a text that arrives in pieces."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["Markers"]


class Markers:
    """A set of literal strings to look for; at one place the longest counts.

    Args:
        literals: the strings.
        patterns: regular expressions to look for as well, which may match any part of what they match.
        escapes: whether a backslash hides the character behind it.
    """

    def __init__(self, literals: Iterable[str], patterns: Iterable[str] = (), escapes: bool = False) -> None:
        self.literals = sorted({literal for literal in literals if literal}, key=len, reverse=True)
        # re is quickest where every alternative begins with a plain character: the backslash stands before its group.
        escaped = [r"\\(?P<escaped>.(?:\\.)*)"] if escapes else []
        alternatives = [*map(re.escape, self.literals), *patterns, *escaped]
        self._pattern = re.compile("|".join(alternatives) or r"(?!)", re.DOTALL)
        self._beginnings = {literal[:n] for literal in self.literals for n in range(1, len(literal))}
        if escapes:
            self._beginnings.add("\\")
        self._first = re.compile("|".join(re.escape(first) for first in self._beginnings if len(first) == 1) or r"(?!)")
        self._longest = max(map(len, self._beginnings), default=0)

    def undecided(self, text: str, start: int) -> int:
        """Where the longest end of ``text`` begins that more text could make a marker."""
        end = len(text)
        for found in self._first.finditer(text, max(start, end - self._longest)):
            if text[found.start() :] in self._beginnings:
                return found.start()
        return end

    def find(self, text: str, start: int, final: bool) -> tuple[re.Match[str] | None, int]:
        """The first marker from ``start`` on that is not hidden, and up to where ``text`` is certain to hold no other before it.

        Where more text may come (not ``final``), the answer is the same as for the text with anything behind it.
        """
        certain = len(text) if final else self.undecided(text, start)
        while (match := self._pattern.search(text, start)) and match.start() < certain:
            if match.lastgroup != "escaped":
                return match, match.start()
            start = match.end()
            if start > certain:  # what looked like the beginning of a marker is hidden
                certain = self.undecided(text, start)
        return None, certain
