"""Against llama.cpp's own server with the small embedded model: the conformance kits, and what is particular to it."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from lagent.errors import AuthenticationError
from lagent.testing import AsyncModelTests, ModelTests
from lagent_openai import AsyncGPTAPI, GPTAPI

xllamacpp = pytest.importorskip("xllamacpp")
models = pytest.importorskip("lagent_llamacpp.models")

KEY = "the-right-key"
TEMPLATE = Path(__file__).with_name("hermes.jinja")


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


class Common:
    sampling = {"max_new_tokens": 32, "temperature": 0.0}
    overflow_prompt = "word " * 3000

    def running_requests(self, model: Any) -> int:
        request = urllib.request.Request(model.url.removesuffix("/v1") + "/slots", headers={"Authorization": f"Bearer {KEY}"})
        with urllib.request.urlopen(request) as answer:
            return sum(slot["is_processing"] for slot in json.load(answer))


class TestLlamaCppServer(Common, ModelTests):
    @pytest.fixture
    def model(self, url: str) -> Iterator[GPTAPI]:
        model = GPTAPI("smollm2", api_base=url, key=KEY, retry=0)
        model.url = url
        model.capabilities = attrs.evolve(model.capabilities, images=False)
        yield model
        model.close()

    @pytest.fixture
    def failing_model(self, url: str) -> Iterator[GPTAPI]:
        model = GPTAPI("smollm2", api_base=url, key="a-wrong-key", retry=0)
        yield model
        model.close()
