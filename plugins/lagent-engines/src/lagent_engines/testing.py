"""Tests for models behind the server of an engine, run beside the kits of :mod:`lagent.testing`."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from lagent.errors import EngineError, ModelConfigurationError
from lagent.testing.kit import Kit, value_of
from lagent.testing.model_kit import ask

__all__ = ["WORDS", "OwnedModelTests", "ServedModelTests", "SmallModelKit"]

WORDS = (
    "red",
    "blue",
    "green",
    "black",
    "white",
    "pink",
    "gold",
    "grey",
    "north",
    "south",
    "east",
    "west",
    "cat",
    "dog",
    "cow",
    "pig",
)
"""What sixteen sessions may ask about, to get answers that differ."""

_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _past_calls() -> list[dict[str, Any]]:
    """Two questions that were answered with a tool call."""
    messages: list[dict[str, Any]] = []
    for number, city in enumerate(["Rome", "Oslo"]):
        function = {"name": "get_weather", "arguments": {"city": city}}
        calls = [{"id": f"call{number}", "type": "function", "function": function}]
        messages.append({"role": "user", "content": f"What is the weather in {city}? Look it up."})
        messages.append({"role": "assistant", "content": "", "tool_calls": calls})
    return messages


class SmallModelKit(Kit):
    """Goes before :class:`lagent.testing.ModelTests` or :class:`lagent.testing.AsyncModelTests`, for a small model behind a server.

    A small model needs to be shown what is meant: servers let a model write any text before a call that is required.
    """

    sampling: ClassVar[dict[str, Any]] = {"max_new_tokens": 16, "temperature": 0.0}
    overflow_prompt: ClassVar[str | None] = "word " * 4500

    def chat(self, model: Any, messages: Any, **options: Any) -> Any:
        messages, options = self._shown(messages, options)
        return super().chat(model, messages, **options)  # type: ignore[misc]

    def stream(self, model: Any, messages: Any, **options: Any) -> Any:
        messages, options = self._shown(messages, options)
        return super().stream(model, messages, **options)  # type: ignore[misc]

    @staticmethod
    def _shown(messages: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        if options.get("tool_choice") == "required":
            messages = [*_past_calls(), *messages]
        room = {"max_new_tokens": 64} if options.keys() & {"tool_choice", "output_schema"} else {}
        return messages, room | options


class ServedModelTests(SmallModelKit):
    """What models behind the server of an engine have to do, beyond the kit.

    Attributes:
        running_metric: the metric of the server that counts the requests its engine is working on, to have it tested that those end
            which are given up; ``None`` where another class tests it.
    """

    running_metric: ClassVar[str | None] = None

    def connected(self, model: Any, **options: Any) -> Any:
        """Another model at the server of ``model``."""
        raise NotImplementedError

    @pytest.fixture
    def failing_model(self, model: Any) -> Iterator[Any]:
        self.chat(model, ask("Hello"))
        failing = self.connected(model, key="a-wrong-key", retry=0)
        yield failing
        value_of(failing.close)

    def get(self, model: Any, path: str, key: str | None = None) -> str:
        """What the server has at ``path``."""
        request = urllib.request.Request(f"{model.url}{path}", headers={"Authorization": f"Bearer {key or model.key}"})
        with _DIRECT.open(request, timeout=30) as answer:
            return str(answer.read().decode())

    def counted(self, model: Any) -> int:
        """How many requests the engine is working on, by its metrics, which may lag behind."""
        counts = re.findall(rf"^{self.running_metric}{{.*}} (\S+)$", self.get(model, "/metrics"), re.MULTILINE)
        assert counts, f"the server has no metric {self.running_metric}"
        return int(sum(map(float, counts)))

    def wait_until_counted(self, model: Any, count: int) -> None:
        deadline = time.monotonic() + 60
        while self.counted(model) != count:
            assert time.monotonic() < deadline, f"the engine does not come to {count} requests"
            time.sleep(0.1)

    def test_engine_stops_when_a_stream_is_closed(self, model: Any) -> None:
        self.skip_unless(self.running_metric, "running_metric is not set")
        stream = self.stream(model, ask("Tell me a long story."), max_new_tokens=1_500, ignore_eos=True)
        next(stream)
        self.wait_until_counted(model, 1)
        stream.close()
        self.wait_until_counted(model, 0)

    def test_engine_stops_when_a_request_is_cancelled(self, model: Any) -> None:
        self.skip_unless(not model.blocking, "a request of a synchronous model cannot be cancelled")
        self.skip_unless(self.running_metric, "running_metric is not set")
        self.chat(model, ask("Hello"))
        options = {**self.sampling, "max_new_tokens": 1_500, "ignore_eos": True}

        async def cancel() -> None:
            task = asyncio.ensure_future(model.chat(ask("Tell me a long story."), **options))
            await asyncio.to_thread(self.wait_until_counted, model, 1)
            task.cancel()
            await asyncio.wait([task])

        value_of(cancel)
        self.wait_until_counted(model, 0)

    def test_seeded_sampling(self, model: Any) -> None:
        sampling = {"temperature": 1.0, "seed": 7, "top_k": 20, "min_p": 0.01, "repetition_penalty": 1.1}
        one, two = (self.chat(model, ask("Tell me a story"), **sampling) for _ in range(2))
        assert one == two, "the seed was not taken"

    def test_cached_tokens(self, model: Any) -> None:
        first = [{"role": "system", "content": "Answer questions about numbers. " * 40}, *ask("1 + 1?")]
        self.chat(model, first)
        second = [*first, {"role": "assistant", "content": "2"}, *ask("2 + 2?")]
        assert self.chat(model, second).usage.cached_tokens >= 128

    def test_unknown_adapter(self, model: Any) -> None:
        with pytest.raises(ModelConfigurationError, match="no-such-adapter"):
            self.chat(model, ask("Hello"), lora="no-such-adapter")


class OwnedModelTests(ServedModelTests):
    """:class:`ServedModelTests` for a model that owns its server."""

    def test_the_server_is_for_its_owner_only(self, model: Any) -> None:
        self.chat(model, ask("Hello"))
        with pytest.raises(urllib.error.HTTPError, match="401"):
            self.get(model, "/v1/models", key="another-key")
        assert model.key.encode() not in Path(f"/proc/{model.server.pid}/cmdline").read_bytes(), "everybody can read the key"
        assert model.key not in repr(model)

    def test_killed_server_is_noticed_and_restarted(self, model: Any) -> None:
        self.skip_unless(not model.blocking, "the asynchronous model is tested for both, as starting an engine takes long")
        before = self.chat(model, ask("What is the capital of France?"))
        url, pid = model.url, model.server.pid
        stream = self.stream(model, ask("Tell me a long story."), max_new_tokens=1_500, ignore_eos=True)
        next(stream)
        os.kill(pid, signal.SIGKILL)
        for failing in (lambda: list(stream), lambda: self.chat(model, ask("Hello"))):
            with pytest.raises(EngineError, match=r"killed by SIGKILL.*restart\(\)") as caught:
                failing()
            assert "The end of its log" in str(caught.value)
        value_of(model.restart)
        assert (model.url, model.server.pid != pid) == (url, True)
        assert self.chat(model, ask("What is the capital of France?")) == before
