"""Which parsers read a model's answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lagent.errors import ConfigurationError
from lagent.registry import create
from lagent_parsers import detect

__all__ = ["detected", "parsers_of"]


def detected(source: str | None, tokenizer: Any = None) -> dict[str, Any]:
    """What :func:`lagent_parsers.detect` tells of a chat template; nothing where there is none, or it shows nothing known."""
    if source is None:
        return {}
    try:
        return detect(source, tokenizer)
    except ConfigurationError:  # a plain template, whose models write neither tool calls nor reasoning
        return {}


def parsers_of(
    source: str | None, tokenizer: Any, tool_parser: str | Mapping[str, Any] | None, reasoning_parser: str | None
) -> tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]:
    """What reads answers where tools are offered, and where they are not, as tables for the registry.

    Raises:
        ConfigurationError: there is no such parser.
    """
    found = detected(source, tokenizer)
    style = found.get("reasoning") if reasoning_parser == "auto" else reasoning_parser
    if tool_parser == "auto":
        tool_parser = found.get("type") if found.get("type") != "reasoning" else None
    spec = {"type": tool_parser} if isinstance(tool_parser, str) else tool_parser
    without = {"type": "reasoning", "reasoning": style} if style is not None else None
    if spec is None:
        return None, without
    parser = create("parsers", spec)
    if style is None and reasoning_parser == "auto" and parser.styles:
        return spec, spec  # a dialect that has reasoning of its own form
    return {"reasoning": style or "none", **spec}, without
