"""Against llama.cpp's own server with the small embedded model: the conformance kits, and what is particular to it."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import attrs
import pytest

from lagent.errors import AuthenticationError
from lagent.testing import AsyncModelTests, ModelTests
from lagent.testing.kit import value_of
from lagent_openai import GPTAPI, AsyncGPTAPI

xllamacpp = pytest.importorskip("xllamacpp")
models = pytest.importorskip("lagent_llamacpp.models")

KEY = "the-right-key"
TEMPLATE = Path(__file__).parents[2] / "tests" / "engines" / "hermes.jinja"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    params = xllamacpp.CommonParams()
    params.model.path = str(models.resolve(None))
    params.model_alias = {"smollm2"}
    params.chat_template = TEMPLATE.read_text()
    params.use_jinja = True
    params.n_ctx = 4096
    params.n_parallel = 4
    params.cpuparams.n_threads = 1
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [KEY]
    params.verbosity = 0
    params.endpoint_slots = True
    server = xllamacpp.Server(params)
    yield f"{server.listening_address}/v1"
    del server


def past_calls() -> list[dict[str, Any]]:
    """Two questions that were answered with a tool call. The server lets a model write any text before a call that is required, and
    this small one has to see what is meant."""
    return [
        message
        for number, city in enumerate(["Rome", "Oslo"])
        for message in (
            {"role": "user", "content": f"What is the weather in {city}? Look it up."},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [
                    {"id": f"call{number}", "type": "function", "function": {"name": "get_weather", "arguments": {"city": city}}}
                ],
            },
        )
    ]


class Common:
    sampling: ClassVar[dict[str, Any]] = {"max_new_tokens": 16, "temperature": 0.0}
    overflow_prompt = "word " * 3000

    def asked(self, messages: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        if options.get("tool_choice") == "required":
            messages = [*past_calls(), *messages]
        return messages, ({"max_new_tokens": 48} if "tool_choice" in options or "output_schema" in options else {}) | options

    def chat(self, model: Any, messages: Any, **options: Any) -> Any:
        messages, options = self.asked(messages, options)
        return super().chat(model, messages, **options)

    def stream(self, model: Any, messages: Any, **options: Any) -> Any:
        messages, options = self.asked(messages, options)
        return super().stream(model, messages, **options)

    def running_requests(self, model: Any) -> int:
        request = urllib.request.Request(model.url.removesuffix("/v1") + "/slots", headers={"Authorization": f"Bearer {KEY}"})
        with urllib.request.urlopen(request) as answer:
            return sum(slot["is_processing"] for slot in json.load(answer))

    @pytest.fixture
    def model(self, url: str) -> Iterator[Any]:
        model = self.kind("smollm2", api_base=url, key=KEY, retry=0)
        model.url = url
        model.capabilities = attrs.evolve(model.capabilities, images=False)  # this model is blind
        yield model
        value_of(model.close)

    @pytest.fixture
    def failing_model(self, url: str) -> Iterator[Any]:
        model = self.kind("smollm2", api_base=url, key="a-wrong-key", retry=0)
        yield model
        value_of(model.close)

    def test_wrong_key(self, failing_model: Any) -> None:
        with pytest.raises(AuthenticationError):
            self.chat(failing_model, [{"role": "user", "content": "Hello"}])

    def test_cached_tokens(self, model: Any) -> None:
        first = [{"role": "system", "content": "Answer questions about numbers. " * 10}, {"role": "user", "content": "1 + 1?"}]
        self.chat(model, first)
        second = [*first, {"role": "assistant", "content": "2"}, {"role": "user", "content": "2 + 2?"}]
        assert self.chat(model, second).usage.cached_tokens > 40


@pytest.mark.engine  # the same code as the asynchronous model, which the quick suite tests
class TestGPTAPI(Common, ModelTests):
    kind = GPTAPI


class TestAsyncGPTAPI(Common, AsyncModelTests):
    kind = AsyncGPTAPI
