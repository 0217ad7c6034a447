"""The conformance kit, for both colours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from lagent.errors import EngineError
from lagent.testing import AsyncModelTests, ModelTests
from lagent.testing.kit import value_of
from lagent_lmdeploy import AsyncLMDeployPipeline, LMDeployPipeline


class PipelineTests:
    """Goes before the kit."""

    kind: ClassVar[Any]
    sampling: ClassVar[dict[str, Any]] = {"max_new_tokens": 8, "temperature": 0.0}
    deterministic = True
    overflow_prompt = "word " * 2500

    @pytest.fixture(scope="class")
    def failing_model(self, make: Callable[..., Any]) -> Any:
        """A model whose engine has died of a request, as LMDeploy's does where a user's code in it fails."""
        model = make(self.kind)
        with pytest.raises(EngineError):
            value_of(model.chat, [{"role": "user", "content": "Hello"}], temperature=1.0, logits_processors=[fail])
        return model

    def running_requests(self, model: Any) -> int:
        return model._engine.running

    def chat(self, model: Any, messages: Any, **options: Any) -> Any:
        return super().chat(model, messages, **with_room(options))  # type: ignore[misc]

    def stream(self, model: Any, messages: Any, **options: Any) -> Any:
        return super().stream(model, messages, **with_room(options))  # type: ignore[misc]


class TestPipeline(PipelineTests, ModelTests):
    kind = LMDeployPipeline

    @pytest.fixture
    def model(self, pipeline: Any) -> Any:
        return pipeline


class TestAsyncPipeline(PipelineTests, AsyncModelTests):
    kind = AsyncLMDeployPipeline

    @pytest.fixture
    def model(self, async_pipeline: Any) -> Any:
        return async_pipeline


def with_room(options: dict[str, Any]) -> dict[str, Any]:
    """More tokens where a whole JSON object is asked for."""
    return {"max_new_tokens": 64, **options} if options.keys() & {"tool_choice", "output_schema"} else options


def fail(ids: Any, logits: Any) -> Any:
    raise RuntimeError("this code of a user fails inside the engine")
