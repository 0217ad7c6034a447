"""The model that most tests share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lagent_vllm import AsyncVllmModel


@pytest.fixture(scope="session")
def async_model(make: Callable[..., Any]) -> Any:
    return make(AsyncVllmModel)
