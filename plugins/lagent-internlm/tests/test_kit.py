"""The components pass the kits of their kinds."""

from __future__ import annotations

from typing import Any

import pytest

from lagent.testing import AggregatorTests, HookTests
from lagent_internlm.aggregator import InternLMToolAggregator
from lagent_internlm.hooks import InternLMActionProcessor


class TestInternLMToolAggregator(AggregatorTests):
    roles = frozenset({"system", "user", "assistant", "environment"})

    @pytest.fixture(params=[{}, {"environment_begin": "<result>", "environment_end": "</result>"}], ids=["plain", "marked"])
    def aggregator(self, request: pytest.FixtureRequest) -> Any:
        return InternLMToolAggregator(**request.param)


class TestInternLMActionProcessor(HookTests):
    changes = refuses = True

    @pytest.fixture
    def hook(self) -> Any:
        return InternLMActionProcessor()
