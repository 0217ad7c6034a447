"""Aggregators turn memory into model messages."""

from lagent.aggregators.base import DefaultAggregator
from lagent.aggregators.fewshot import FewshotAggregator
from lagent.aggregators.trim import TrimAggregator

__all__ = ["DefaultAggregator", "FewshotAggregator", "TrimAggregator"]
