"""Prompt templates and output parsers."""

from typing import Any

from lagent.prompts import parsers
from lagent.prompts.parsers import StrParser
from lagent.prompts.template import PromptTemplate

__all__ = ["PromptTemplate", "StrParser"]


def __getattr__(name: str) -> Any:
    return getattr(parsers, name)  # those of installed distributions too
