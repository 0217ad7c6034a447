"""The model that most tests share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lagent_vllm import VllmModel


@pytest.fixture(scope="session")
def sync_model(make: Callable[..., Any]) -> Any:
    return make(VllmModel)


@pytest.fixture
def alone(sync_model: Any) -> None:
    """Leaves the process to the engine of the test; that of ``sync_model`` starts again when it is asked."""
    sync_model.close()
