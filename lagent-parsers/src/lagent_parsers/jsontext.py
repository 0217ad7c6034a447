"""JSON as models write it: whole, malformed, or cut off."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import jiter
import json_repair

from lagent.schema import ParseStatus

__all__ = ["dumps", "find_values", "partial_value", "read_values"]

_CONSTANTS = {"NaN": None, "Infinity": float("inf"), "-Infinity": float("-inf")}
_STRICT = json.JSONDecoder(parse_constant=_CONSTANTS.__getitem__)
_LENIENT = json.JSONDecoder(parse_constant=_CONSTANTS.__getitem__, strict=False)
_BETWEEN = re.compile(r"[\s,;]*")
_FENCE = re.compile(r"\s*```\w*")

_BRACKET = re.compile(r"[{}\[\]()]")
_DEEPEST_REPAIR, _QUOTES_REPAIR, _LONGEST_REPAIR = 64, 400, 1_000_000
"""What json-repair is given at most: its cost grows with the square of the nesting and of the number of typographic quotes."""


def read_values(text: str, repair: bool = True) -> tuple[list[Any], bool]:
    """The JSON values that ``text`` consists of, one after the other, and whether they are well-formed.

    Args:
        repair: whether to make the best of malformed text.

    Raises:
        ValueError: it is no JSON, not even malformed, or nested too deeply.
    """
    if fence := _FENCE.match(text):
        text = text[fence.end() :].rstrip().removesuffix("```")
    for decoder in (_STRICT, _LENIENT) if repair else (_STRICT,):
        try:
            return _sequence(decoder, text), decoder is _STRICT and not fence
        except (ValueError, RecursionError) as error:
            problem = str(error)
    if not repair:
        raise ValueError(problem)
    return [_repaired(text, problem)], False


def _sequence(decoder: json.JSONDecoder, text: str) -> list[Any]:
    values: list[Any] = []
    at = _skip(text, 0)
    while at < len(text):
        value, at = decoder.raw_decode(text, at)
        values.append(value)
        at = _skip(text, at)
    return values


def _skip(text: str, at: int) -> int:
    found = _BETWEEN.match(text, at)
    return found.end() if found else at


def _repaired(text: str, problem: str) -> Any:
    depths = itertools.accumulate(1 if found.group() in "{[(" else -1 for found in _BRACKET.finditer(text))
    quotes = text.count("“") + text.count("”")
    if max(depths, default=0) > _DEEPEST_REPAIR or quotes > _QUOTES_REPAIR or len(text) > _LONGEST_REPAIR:
        raise ValueError(problem)
    try:
        value = json_repair.loads(text, skip_json_loads=True)
    except Exception as error:  # whatever hostile text does to it
        raise ValueError(problem) from error
    if not isinstance(value, (dict, list)) or not value:
        raise ValueError(problem)
    return value


_OPENING = re.compile(r"[{\[]")
_FENCED = re.compile(r"```\w*\s*(?=[{\[])")
_CANDIDATES = 8


def find_values(text: str) -> Iterator[tuple[Any, ParseStatus]]:
    """The JSON values that ``text`` may be meant to be, the likeliest first: all of it, in a code block, in prose, malformed or cut off.

    The places tried are limited in number, so that the time is linear.
    """
    whole = text.strip()
    with suppress(ValueError, RecursionError):
        yield _STRICT.decode(whole), ParseStatus.OK
        return
    places = [*_FENCED.finditer(whole), *_OPENING.finditer(whole)]
    behind, malformed = 0, list[str]()
    for place in (found.end() - (found.group() in "{[") for found in places):
        if place < behind or len(malformed) == _CANDIDATES:
            continue
        try:
            value, behind = _STRICT.raw_decode(whole, place)
        except (ValueError, RecursionError):
            behind = _closing(whole, place)
            malformed.append(whole[place:behind])
        else:
            yield value, ParseStatus.OK
    for piece in malformed:
        yield from _mended(piece.removesuffix("```").rstrip())


def _closing(text: str, place: int) -> int:
    """Where the brackets that open at ``place`` are closed, or the end."""
    depth = 0
    for found in _BRACKET.finditer(text, place):
        depth += 1 if found.group() in "{[(" else -1
        if depth == 0:
            return found.end()
    return len(text)


def _mended(text: str) -> Iterator[tuple[Any, ParseStatus]]:
    try:
        jiter.from_json(text.encode("utf-8", "replace"))
    except ValueError as error:
        if "EOF while parsing" in str(error):
            yield partial_value(text), ParseStatus.REPAIRED if text[-1] in "}]" else ParseStatus.PARTIAL
            return
    with suppress(ValueError):
        yield read_values(text)[0][0], ParseStatus.REPAIRED


def partial_value(text: str) -> Any:
    """What the beginning of a JSON value says so far; ``None`` if it says nothing."""
    try:
        return jiter.from_json(text.strip().encode("utf-8", "replace"), partial_mode="trailing-strings")
    except ValueError:
        return None


def dumps(value: Any, avoid: tuple[str, ...] = ()) -> str:
    """``value`` as JSON in which none of the texts ``avoid`` occurs."""
    text = json.dumps(value, ensure_ascii=False)
    for marker in avoid:
        if marker in text:
            text = text.replace(marker, f"\\u{ord(marker[0]):04x}{marker[1:]}")
    return text
