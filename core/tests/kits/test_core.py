"""Every component of core passes the kit of its kind."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from lagent.actions import Calculator, FinishAction, InvalidAction, NoAction
from lagent.aggregators import DefaultAggregator, FewshotAggregator, TrimAggregator
from lagent.hooks import MessageLogger
from lagent.testing import ActionTests, AggregatorTests, HookTests


class TestDefaultAggregator(AggregatorTests):
    @pytest.fixture
    def aggregator(self) -> DefaultAggregator:
        return DefaultAggregator()


class TestFewshotAggregator(AggregatorTests):
    @pytest.fixture
    def aggregator(self) -> DefaultAggregator:
        return FewshotAggregator([{"role": "user", "content": "One?"}, {"role": "assistant", "content": "Two."}])


class TestTrimAggregator(AggregatorTests):
    rewrites_history = True

    @pytest.fixture(params=[{"max_messages": 6}, {"max_tokens": 100}], ids=str)
    def aggregator(self, request: pytest.FixtureRequest) -> DefaultAggregator:
        return TrimAggregator(**request.param)


class TestTrimAggregatorBelowItsLimit(AggregatorTests):
    @pytest.fixture
    def aggregator(self) -> DefaultAggregator:
        return TrimAggregator(max_messages=100_000)


class TestCalculator(ActionTests):
    calls = ({"expression": "2 * (3 + 4)"}, {"expression": "15% of 240"})
    failing_calls = ({"expression": "import os"}, {"expression": "1 / 0"}, {"expression": "9 ** 9 ** 9"})

    @pytest.fixture
    def action(self) -> Calculator:
        return Calculator()


class TestFinishAction(ActionTests):
    calls = ({"response": "That is all."},)
    takes_any_text = True

    @pytest.fixture
    def action(self) -> FinishAction:
        return FinishAction()


class TestNoAction(ActionTests):
    failing_calls = ({"err_msg": "no"}, {})
    takes_any_text = True

    @pytest.fixture(params=[NoAction, InvalidAction])
    def action(self, request: pytest.FixtureRequest) -> Any:
        return request.param()


class TestMessageLogger(HookTests):
    @pytest.fixture
    def hook(self, caplog: Any) -> MessageLogger:
        caplog.set_level(logging.INFO)
        return MessageLogger()
