"""Reads the docstrings of tools: the text, the parameters and the results, in the styles of Google, NumPy and Sphinx."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

from attrs import define, field

__all__ = ["Docstring", "Item", "parse_docstring", "parse_items"]


@define
class Item:
    """One entry of a section, such as a parameter."""

    name: str | None
    type: str | None
    description: str


@define
class Docstring:
    """What a docstring says: the text before its first section, parameters (or attributes) by name, and results."""

    text: str = ""
    parameters: dict[str, Item] = field(factory=dict)
    returns: list[Item] = field(factory=list)


_PARAMETERS = {"args", "arguments", "parameters", "params", "keyword args", "keyword arguments", "other parameters", "attributes"}
_RETURNS = {"returns", "return", "yields"}
_ROLE = re.compile(r":[\w:]+:`~?([^`]+)`")
_GOOGLE_HEADER = re.compile(r"([A-Z][\w ]*):\s*$")
_GOOGLE_ITEM = re.compile(r"\*{0,2}(?P<name>\w+)?\s*(?:\((?P<type>.*?)\))?\s*:(?:\s+|$)(?P<text>.*)", re.DOTALL)
_SPHINX_FIELD = re.compile(r":(param|parameter|arg|argument|type|returns?|rtype)\b ?([^:]*):(?:\s+|$)(.*)", re.DOTALL)


def parse_docstring(text: str | None, *, named_returns: bool = False) -> Docstring:
    """Read a docstring.

    Args:
        text: the docstring, indented as it stands in the source.
        named_returns: read ``thing: text`` among the results as a name rather than a type.
    """
    lines = _ROLE.sub(r"\1", inspect.cleandoc(text or "")).splitlines()
    docs, body, start = Docstring(), [], len(lines)
    for index, line in enumerate(lines):
        if (title := _header(lines, index)) is not None:
            start = min(start, index)
            end = next((i for i in range(index + 1, len(lines)) if _header(lines, i) is not None), len(lines))
            body = lines[index + 1 : end]
            if numpy := bool(body and _underlines(body[0])):
                body = body[1:]
            if title in _PARAMETERS:
                found = _numpy_items(body) if numpy else parse_items(body)
                docs.parameters.update((item.name, item) for item in found if item.name)
            elif title in _RETURNS:
                docs.returns += _numpy_items(body, True) if numpy else _returns(body, named_returns)
        elif line.startswith(":") and (match := _SPHINX_FIELD.match("\n".join(_block(lines, index)))):
            start = min(start, index)
            _add_sphinx_field(docs, *match.groups())
    docs.text = "\n".join(lines[:start]).strip()
    return docs


def parse_items(lines: list[str]) -> list[Item]:
    """Read ``name (type): text`` entries, whose further lines are indented deeper."""
    return [
        Item(match["name"], match["type"] or None, _joined(match["text"]))
        for entry in _entries(lines)
        if (match := _GOOGLE_ITEM.fullmatch(entry)) and match["name"]
    ]


def _underlines(line: str) -> bool:
    return bool(re.fullmatch(r"-{3,}\s*", line))


def _header(lines: list[str], index: int) -> str | None:
    """The title of the section that begins at a line, in lower case."""
    line, following = lines[index], lines[index + 1] if index + 1 < len(lines) else ""
    if line.strip() and _underlines(following):
        return line.strip().lower()
    match = _GOOGLE_HEADER.match(line)
    return match[1].lower() if match and (following.startswith(" ") or match[1].lower() in _PARAMETERS | _RETURNS) else None


def _block(lines: list[str], index: int) -> list[str]:
    """The line and those after it that are indented."""
    end = next((i for i in range(index + 1, len(lines)) if not lines[i].startswith(" ")), len(lines))
    return lines[index:end]


def _entries(lines: list[str]) -> Iterator[str]:
    """The texts that begin at the least indentation, each with the deeper lines that follow."""
    lines = inspect.cleandoc("\n".join(["", *lines])).splitlines()
    for index, line in enumerate(lines):
        if line and not line.startswith(" "):
            yield "\n".join(_block(lines, index))


def _joined(text: str) -> str:
    return inspect.cleandoc(text).strip()


def _numpy_items(lines: list[str], returns: bool = False) -> list[Item]:
    items = []
    for entry in _entries(lines):
        head, _, text = entry.partition("\n")
        names, colon, type_ = (part.strip() for part in head.partition(":"))
        if returns and not colon:
            names, type_ = "", names
        items += [Item(name.strip("* ") or None, type_ or None, _joined(text)) for name in names.split(",")]
    return items


def _returns(lines: list[str], named: bool) -> list[Item]:
    items = []
    for entry in _entries(lines):
        if match := _GOOGLE_ITEM.fullmatch(entry):
            name, type_, text = match.group("name", "type", "text")
            items.append(Item(name, type_, _joined(text)) if named or type_ else Item(None, name, _joined(text)))
        elif not named and (typed := re.fullmatch(r"([\w.]+\[.*?\]+|\w[\w.]*\w):(?:\s+|$)(.*)", entry, re.DOTALL)):
            items.append(Item(None, typed[1], _joined(typed[2])))
        else:
            items.append(Item(None, None, _joined(entry)))
    return items


def _add_sphinx_field(docs: Docstring, kind: str, subject: str, text: str) -> None:
    text = _joined(text)
    if kind in ("return", "returns", "rtype"):
        if not docs.returns:
            docs.returns.append(Item(None, None, ""))
        changed: dict[str, Any] = {"type": text} if kind == "rtype" else {"description": text}
        target = docs.returns[0]
    elif subject.strip():
        *type_, name = subject.split()
        target = docs.parameters.setdefault(name, Item(name, None, ""))
        changed = {"type": text} if kind == "type" else {"description": text, "type": " ".join(type_) or target.type}
    else:
        return
    for key, value in changed.items():
        setattr(target, key, value)
