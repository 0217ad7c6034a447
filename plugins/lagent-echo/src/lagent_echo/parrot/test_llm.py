"""The model passes the conformance kit of lagent."""

import pytest

from lagent import registry
from lagent.testing import AsyncModelTests, ModelTests
from lagent_echo.parrot.llm import AsyncParrotModel, ParrotModel


class TestParrotModel(ModelTests):
    deterministic = True

    @pytest.fixture
    def model(self) -> ParrotModel:
        return ParrotModel()


class TestAsyncParrotModel(AsyncModelTests):
    deterministic = True

    @pytest.fixture
    def model(self) -> AsyncParrotModel:
        return AsyncParrotModel()


def test_is_found_by_name() -> None:
    assert registry.get("llms", "parrot") is ParrotModel
    assert registry.get("async_llms", "parrot") is AsyncParrotModel
