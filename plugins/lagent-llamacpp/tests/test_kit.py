"""The conformance kits for models."""

import pytest

from lagent.testing import AsyncModelTests, ModelTests
from lagent_llamacpp import AsyncLlamaCppModel, LlamaCppModel


class Settings:
    sampling = {"max_new_tokens": 16, "temperature": 0.0}
    deterministic = True
    overflow_prompt = "word " * 2000

    def running_requests(self, model: LlamaCppModel) -> int:
        return sum(slot["is_processing"] for slot in model._engine.ask("/slots"))


class TestLlamaCppModel(Settings, ModelTests):
    @pytest.fixture
    def model(self, llm: LlamaCppModel) -> LlamaCppModel:
        return llm


@pytest.mark.engine
class TestAsyncLlamaCppModel(Settings, AsyncModelTests):
    @pytest.fixture
    def model(self, async_llm: AsyncLlamaCppModel) -> AsyncLlamaCppModel:
        return async_llm
