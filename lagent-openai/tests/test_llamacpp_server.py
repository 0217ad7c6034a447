"""Against llama.cpp's own server with the small embedded model: the conformance kits, and what is particular to it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lagent.testing import AsyncModelTests, ModelTests, overrides_kit
from lagent.testing.kit import value_of
from lagent_openai import GPTAPI, AsyncGPTAPI

from .small_model import KEY, SmallModelTests, get

xllamacpp = pytest.importorskip("xllamacpp")
models = pytest.importorskip("lagent_llamacpp.models")

TEMPLATE = Path(__file__).parents[2] / "tests" / "engines" / "hermes.jinja"
THINKING = Path(__file__).parent / "thinking.jinja"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(TEMPLATE) as address:
        yield address


@contextmanager
def serving(template: Path) -> Iterator[str]:
    """Serve the small model with a chat template; gives the base URL."""
    params = xllamacpp.CommonParams()
    params.model.path = str(models.resolve(None))
    params.model_alias = {"m"}
    params.chat_template = template.read_text()
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


class LlamaCppServerTests(SmallModelTests):
    def running_requests(self, model: Any) -> int:
        slots = json.loads(get(model.url.removesuffix("/v1") + "/slots"))
        return sum(slot["is_processing"] for slot in slots)


@pytest.mark.engine  # the same code as the asynchronous model, which the quick suite tests
class TestGPTAPI(LlamaCppServerTests, ModelTests):
    kind = GPTAPI


class TestAsyncGPTAPI(LlamaCppServerTests, AsyncModelTests):
    kind = AsyncGPTAPI

    @overrides_kit("while the server makes a whole answer it does not notice that the client has gone; it does while it streams")
    def test_cancelling_a_request(self, model: Any) -> None:
        async def cancel() -> None:
            async def consume() -> None:
                async for _ in model.stream_chat([{"role": "user", "content": self.long_prompt}], max_new_tokens=2_000):
                    begun.set()

            begun = asyncio.Event()
            task = asyncio.ensure_future(consume())
            await begun.wait()
            assert await asyncio.to_thread(self.running_requests, model) == 1
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        value_of(cancel)
        self._wait_until_idle(model)
        assert self.chat(model, [{"role": "user", "content": self.prompt}])


def test_reasoning() -> None:
    """The small model does not think by itself; a grammar has it write as models write that do, and the server takes it apart."""
    thought = r'root ::= "<think>\nIt is simple." "\n</think>\n\n" "Yes."'
    with serving(THINKING) as url:
        model = GPTAPI("m", key=KEY, api_base=url)
        question = [{"role": "user", "content": "Is it?"}]
        response = model.chat(question, grammar=thought, max_new_tokens=40)
        chunks = list(model.stream_chat(question, grammar=thought, max_new_tokens=40))
        model.close()
    assert (response.content, response.reasoning.strip()) == ("Yes.", "It is simple.")
    assert "".join(chunk.content for chunk in chunks) == "Yes."
    assert "".join(chunk.reasoning for chunk in chunks).strip() == "It is simple."
