"""What the programs that read texts with a peer's parsers have in common.

Standard input: ``{"tools": […], "vocabulary": [special tokens], "texts": [{"tool", "reasoning", "text", "splits": [[…]]}]}``, the names
being the peer's. Standard output: for each text what was read as a whole and from each split, ``{"content", "reasoning", "calls"}`` or
``{"error"}``.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterable
from typing import Any

Read = Callable[[dict[str, Any], dict[str, Any], "list[str] | None"], dict[str, Any]]


def collected(deltas: Iterable[Any], reasoning: str) -> dict[str, Any]:
    """The answer that a stream of OpenAI's deltas makes up; ``reasoning`` is the attribute with their reasoning."""
    found: dict[str, Any] = {"content": "", "reasoning": ""}
    calls: dict[int, list[str]] = {}
    for delta in deltas:
        found["content"] += (delta and delta.content) or ""
        found["reasoning"] += (delta and getattr(delta, reasoning)) or ""
        for call in (delta and delta.tool_calls) or []:
            known = calls.setdefault(call.index, ["", ""])
            known[0] += (call.function and call.function.name) or ""
            known[1] += (call.function and call.function.arguments) or ""
    return {**found, "calls": list(calls.values())}


def main(read: Read) -> None:
    """Read each text of the input with ``read(case, input, pieces or None for the whole)``."""
    logging.disable(logging.CRITICAL)
    given = json.load(sys.stdin)
    results = [
        {
            "whole": _attempt(read, case, given, None),
            "streamed": [_attempt(read, case, given, pieces) for pieces in case["splits"]],
        }
        for case in given["texts"]
    ]
    json.dump(results, sys.stdout)


def _attempt(read: Read, *args: Any) -> dict[str, Any]:
    try:
        return read(*args)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
