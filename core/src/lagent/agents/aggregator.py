"""Aggregators, under the path that users of lagent know."""

from __future__ import annotations

from typing import Any

from lagent.aggregators import DefaultAggregator, FewshotAggregator, TrimAggregator
from lagent.registry import find_class

__all__ = ["DefaultAggregator", "FewshotAggregator", "TrimAggregator"]


def __getattr__(name: str) -> Any:
    return find_class(__name__, name)
