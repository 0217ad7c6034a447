"""Reads the docstrings of tools, in the styles of Google, NumPy and Sphinx."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

from attrs import define, evolve, field

__all__ = ["Docstring", "Item", "parse_docstring", "parse_items"]


@define
class Item:
    """One entry of a section: a parameter or a result."""

    name: str | None = None
    type: str | None = None
    description: str = ""


@define
class Docstring:
    """What a docstring says: the text before its first section, parameters (or attributes) by name, and results."""

    text: str = ""
    parameters: dict[str, Item] = field(factory=dict)
    returns: list[Item] = field(factory=list)


_PARAMETERS = {"args", "arguments", "parameters", "params", "keyword args", "keyword arguments", "other parameters", "attributes"}
_RETURNS = {"returns", "return", "yields"}
_ROLE = re.compile(r":[\w:]+:`~?([^`]+)`")
_GOOGLE_TITLE = re.compile(r"([A-Z][\w ]*):\s*")
_NUMPY_LINE = re.compile(r"-{3,}\s*")
_GOOGLE_ITEM = re.compile(r"\*{0,2}(\w+)?\s*(?:\((.*?)\))?\s*:(?:\s+|$)(.*)", re.DOTALL)
_GOOGLE_TYPE = re.compile(r"(\w[\w.]*(?:\[.*?\]+)?):(?:\s+|$)(.*)", re.DOTALL)
_SPHINX_FIELD = re.compile(r":(\w+)(?: ([^:]*))?:(?:\s+|$)(.*)", re.DOTALL)


def parse_docstring(text: str | None, *, named_returns: bool = False) -> Docstring:
    """Read a docstring.

    Args:
        text: the docstring, indented as it stands in the source.
        named_returns: read ``thing: text`` among the results as a name rather than a type.
    """
    lines = _ROLE.sub(r"\1", inspect.cleandoc(text or "")).splitlines()
    starts = [i for i, line in enumerate(lines) if _SPHINX_FIELD.match(line) or _title(lines[i : i + 2])]
    docs = Docstring("\n".join(lines[: starts[0]] if starts else lines).strip())
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=False):
        if match := _SPHINX_FIELD.fullmatch("\n".join(lines[start:end])):
            _add_field(docs, *match.groups())
            continue
        title, body = _title(lines[start : start + 2]), lines[start + 1 : end]
        numpy = bool(body and _NUMPY_LINE.fullmatch(body[0]))
        if title in _PARAMETERS:
            items = _numpy_items(body[1:], title) if numpy else parse_items(body)
            docs.parameters |= {item.name: item for item in items if item.name}
        elif title in _RETURNS:
            docs.returns += _numpy_items(body[1:], title) if numpy else _google_returns(body, named_returns)
    return docs


def parse_items(lines: list[str]) -> list[Item]:
    """Read entries ``name (type): text``, each with the lines after it that are indented deeper."""
    matches = filter(None, map(_GOOGLE_ITEM.fullmatch, _entries(lines)))
    return [Item(match[1], match[2], inspect.cleandoc(match[3])) for match in matches if match[1]]


def _title(lines: list[str]) -> str | None:
    """The title of the section that begins with these lines, in lower case."""
    if len(lines) > 1 and lines[0].strip() and _NUMPY_LINE.fullmatch(lines[1]):
        return lines[0].strip().lower()
    match = _GOOGLE_TITLE.fullmatch(lines[0])
    return match[1].lower() if match and len(lines) > 1 and lines[1].startswith(" ") else None


def _entries(lines: list[str]) -> Iterator[str]:
    """The texts that begin at the least indentation, each with the deeper lines that follow."""
    text = inspect.cleandoc("\n".join(["", *lines]))
    yield from filter(None, re.split(r"\n+(?=\S)", text))


def _numpy_items(lines: list[str], title: str) -> Iterator[Item]:
    for entry in _entries(lines):
        head, _, text = entry.partition("\n")
        names, colon, type_ = (part.strip() for part in head.partition(":"))
        if title in _RETURNS and not colon:
            names, type_ = "", names
        for name in names.split(","):
            yield Item(name.strip("* ") or None, type_ or None, inspect.cleandoc(text))


def _google_returns(lines: list[str], named: bool) -> Iterator[Item]:
    for entry in _entries(lines):
        if (match := _GOOGLE_ITEM.fullmatch(entry)) and (named or match[2]):
            yield Item(match[1], match[2], inspect.cleandoc(match[3]))
        elif match := _GOOGLE_TYPE.fullmatch(entry):
            yield Item(None, match[1], inspect.cleandoc(match[2]))
        else:
            yield Item(description=entry)


def _add_field(docs: Docstring, kind: str, subject: str | None, text: str) -> None:
    text = inspect.cleandoc(text)
    if kind in ("returns", "return", "rtype"):
        known = docs.returns.pop() if docs.returns else Item()
        docs.returns.append(evolve(known, type=text) if kind == "rtype" else evolve(known, description=text))
    elif subject and kind in ("param", "arg", "argument", "key", "type"):
        *type_, name = subject.split()
        known = docs.parameters.get(name, Item(name, " ".join(type_) or None))
        docs.parameters[name] = evolve(known, type=text) if kind == "type" else evolve(known, description=text)
