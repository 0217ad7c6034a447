"""The conformance kit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lagent.testing import ModelTests
from lagent_vllm import VllmModel

from ..kit import FAILING, VllmTests


class TestVllmModel(VllmTests, ModelTests):
    kind = VllmModel

    @pytest.fixture
    def model(self, sync_model: Any) -> Any:
        return sync_model

    @pytest.fixture
    def failing_model(self, make: Callable[..., Any], alone: None) -> Any:
        return make(self.kind, vllm_cfg=FAILING)
