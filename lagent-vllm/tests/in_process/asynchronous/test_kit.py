"""The conformance kit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lagent.testing import AsyncModelTests
from lagent_vllm import AsyncVllmModel

from ..kit import FAILING, VllmTests


class TestAsyncVllmModel(VllmTests, AsyncModelTests):
    kind = AsyncVllmModel

    @pytest.fixture
    def model(self, async_model: Any) -> Any:
        return async_model

    @pytest.fixture
    def failing_model(self, make: Callable[..., Any]) -> Any:
        return make(self.kind, vllm_cfg=FAILING)
