"""What the tests of models have in common: what a plugin author can set, and how the tests ask."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from lagent.schema import ModelChunk, ModelResponse, ResponseBuilder
from lagent.testing.kit import Kit, items, value_of

__all__ = ["ModelKit", "ask", "whole"]


class ModelKit(Kit):
    """The fixtures, attributes and helpers of :class:`lagent.testing.ModelTests`.

    Attributes:
        sampling: sampling parameters of every request.
        prompt: a question with a short answer.
        long_prompt: a request for an answer of a hundred tokens or more; the tests stop it early where they can.
        tool, tool_prompt: a tool in OpenAI's form, and a request that calls for it.
        output_schema, schema_prompt: a JSON schema, and a request for what it describes.
        deterministic: whether ``sampling`` makes the model give the same answer to the same question every time.
        returns_usage: whether answers carry token counts.
        limits_tokens: whether ``max_new_tokens`` ends the answer.
        overflow_prompt: a text that does not fit the context window, if there is one.
        patience: for how many seconds the engine may go on with a request after its caller has gone.
    """

    sampling: ClassVar[dict[str, Any]] = {"max_new_tokens": 64, "temperature": 0.0}
    prompt: ClassVar[str] = "What is the capital of France?"
    long_prompt: ClassVar[str] = (
        "Write down the numbers from one to two hundred in words, separated by commas, and leave none out."
    )
    tool: ClassVar[dict[str, Any]] = {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather of a city",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "description": "the city", "maxLength": 20}},
                "required": ["city"],
                "additionalProperties": False,
            },
        },
    }
    tool_prompt: ClassVar[str] = "What is the weather in Paris? Look it up."
    output_schema: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}, "capital": {"type": "boolean"}},
        "required": ["city", "capital"],
        "additionalProperties": False,
    }
    schema_prompt: ClassVar[str] = "Is Paris a capital? Answer in JSON with the keys city and capital."
    deterministic: ClassVar[bool] = False
    returns_usage: ClassVar[bool] = True
    limits_tokens: ClassVar[bool] = True
    overflow_prompt: ClassVar[str | None] = None
    patience: ClassVar[float] = 30.0

    @pytest.fixture
    def model(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} needs a fixture 'model' that returns the model to test")

    @pytest.fixture
    def failing_model(self) -> Any:
        pytest.skip("no fixture 'failing_model'")

    def running_requests(self, model: Any) -> int | None:
        """How many requests the engine is working on, as the engine itself counts them; ``None`` if that cannot be seen.

        Override it to have cancellation tested.
        """
        return None

    def chat(self, model: Any, messages: Any, **options: Any) -> Any:
        return value_of(model.chat, messages, **{**self.sampling, **options})

    def stream(self, model: Any, messages: Any, **options: Any) -> Iterator[ModelChunk]:
        return items(model.stream_chat(messages, **{**self.sampling, **options}))

    def _needs(self, model: Any, capability: str) -> None:
        self.skip_unless(getattr(model.capabilities, capability), f"the model's capabilities do not name {capability!r}")

    def _wait_until_idle(self, model: Any) -> None:
        deadline = time.monotonic() + self.patience
        while (running := self.running_requests(model)) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not running, f"{running} requests are still running in the engine after their caller has gone"


def ask(text: str | None) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


def whole(chunks: Iterator[ModelChunk]) -> ModelResponse:
    builder = ResponseBuilder()
    for chunk in chunks:
        builder.add(chunk)
    return builder.response()
