"""What the tests of real servers have in common: one small model, which needs to be shown what is meant."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from typing import Any, ClassVar

import attrs
import pytest

from lagent.errors import AuthenticationError
from lagent.testing.kit import value_of

KEY = "the-right-key"


def get(url: str) -> bytes:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {KEY}"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.read()


def past_calls() -> list[dict[str, Any]]:
    """Two questions that were answered with a tool call: servers let a model write any text before a call that is required."""
    messages = []
    for number, city in enumerate(["Rome", "Oslo"]):
        function = {"name": "get_weather", "arguments": {"city": city}}
        calls = [{"id": f"call{number}", "type": "function", "function": function}]
        messages.append({"role": "user", "content": f"What is the weather in {city}? Look it up."})
        messages.append({"role": "assistant", "content": "", "tool_calls": calls})
    return messages


class SmallModelTests:
    """Goes before a conformance kit. A fixture ``url`` gives the server's base URL.

    Attributes:
        kind: the class to test.
        lacking: capabilities that this server, or this model, does not have.
    """

    kind: ClassVar[Any]
    sampling: ClassVar[dict[str, Any]] = {"max_new_tokens": 16, "temperature": 0.0}
    overflow_prompt = "word " * 4500
    lacking: ClassVar[tuple[str, ...]] = ("images",)

    def make(self, url: str, **options: Any) -> Any:
        model = self.kind(**{"model_type": "m", "api_base": url, "key": KEY, "retry": 0, **options})
        model.capabilities = attrs.evolve(model.capabilities, **dict.fromkeys(self.lacking, False))
        model.url = url
        return model

    @pytest.fixture
    def model(self, url: str) -> Iterator[Any]:
        model = self.make(url)
        yield model
        value_of(model.close)

    @pytest.fixture
    def failing_model(self, url: str) -> Iterator[Any]:
        model = self.make(url, key="a-wrong-key")
        yield model
        value_of(model.close)

    def chat(self, model: Any, messages: Any, **options: Any) -> Any:
        messages, options = self._shown(messages, options)
        return super().chat(model, messages, **options)  # type: ignore[misc]

    def stream(self, model: Any, messages: Any, **options: Any) -> Any:
        messages, options = self._shown(messages, options)
        return super().stream(model, messages, **options)  # type: ignore[misc]

    @staticmethod
    def _shown(messages: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        if options.get("tool_choice") == "required":
            messages = [*past_calls(), *messages]
        room = {"max_new_tokens": 64} if options.keys() & {"tool_choice", "output_schema"} else {}
        return messages, room | options

    # Beyond the kit

    def test_wrong_key(self, failing_model: Any) -> None:
        with pytest.raises(AuthenticationError):
            self.chat(failing_model, [{"role": "user", "content": "Hello"}])

    def test_cached_tokens(self, model: Any) -> None:
        first = [{"role": "system", "content": "Answer questions about numbers. " * 40}, {"role": "user", "content": "1 + 1?"}]
        self.chat(model, first)
        second = [*first, {"role": "assistant", "content": "2"}, {"role": "user", "content": "2 + 2?"}]
        assert self.chat(model, second).usage.cached_tokens >= 128
