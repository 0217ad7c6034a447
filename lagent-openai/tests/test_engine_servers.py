"""Against the servers of vLLM and LMDeploy on the CPU: the conformance kit, and what is particular to each.

They need environments of their own, which ``tests/engines/setup`` makes; ``LAGENT_VLLM_PYTHON`` and ``LAGENT_LMDEPLOY_PYTHON`` name
their interpreters. The model lies beside them.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from lagent.errors import ModelConfigurationError
from lagent.testing import AsyncModelTests
from lagent.testing.kit import value_of
from lagent_engines.server import ServerProcess
from lagent_lmdeploy.server import SYMPTOMS
from lagent_openai import AsyncGPTAPI

from .small_model import KEY, SmallModelTests, get

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1500)]

ENGINES = Path(__file__).parents[2] / "tests" / "engines"
START = 900.0
"""Seconds that a server may take to start on a busy machine."""

VLLM = [
    *("-m", "vllm.entrypoints.openai.api_server", "--served-model-name", "m", "--api-key", KEY, "--host", "127.0.0.1"),
    *("--dtype", "bfloat16", "--enforce-eager", "--max-model-len", "2048", "--block-size", "32"),
    *("--kv-cache-memory-bytes", "268435456", "--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
    "--enable-prompt-tokens-details",
]
LMDEPLOY = [
    *("-m", "lmdeploy", "serve", "api_server", "--backend", "pytorch", "--model-name", "m", "--api-keys", KEY),
    *("--server-name", "127.0.0.1", "--session-len", "2048", "--cache-block-seq-len", "32", "--enable-prefix-caching"),
    *("--max-prefill-token-num", "2048", "--max-batch-size", "16", "--tool-call-parser", "qwen2d5"),
    *("--logprobs-mode", "raw_logprobs"),
]


def python_of(engine: str) -> Path:
    variable = f"LAGENT_{engine.upper()}_PYTHON"
    if variable not in os.environ:
        pytest.skip(f"{variable} does not name the interpreter of an environment with {engine}")
    return Path(os.environ[variable])


def server_of(engine: str) -> ServerProcess:
    python = python_of(engine)
    model = str(python.parents[2] / "smollm2-hf")
    if engine == "vllm":
        command = [*VLLM, "--model", model, "--port"]
        environment = {"TORCHDYNAMO_DISABLE": "1"}
    else:
        command = [*LMDEPLOY, model, "--server-port"]
        environment = {"PYTHONPATH": str(ENGINES / "lmdeploy_cpu"), "LMDEPLOY_CPU_BYTES": str(2**30)}
    return ServerProcess(
        engine,
        lambda port: [str(python), *command, str(port)],
        environment={"OMP_NUM_THREADS": "1", **environment},
        start_timeout=START,
        symptoms=SYMPTOMS if engine == "lmdeploy" else (),
    )


class EngineServerTests(SmallModelTests, AsyncModelTests):
    """The kit, and what every server of an engine has to show."""

    engine: ClassVar[str]
    kind = AsyncGPTAPI

    @pytest.fixture(scope="class")
    @classmethod
    def url(cls) -> Iterator[str]:
        server = server_of(cls.engine)
        server.start()
        yield f"{server.url}/v1"
        server.close()

    def counted(self, model: Any) -> int:
        """How many requests the engine is working on, by its metrics, which may lag behind."""
        metrics = get(model.url.removesuffix("/v1") + "/metrics").decode()
        counts = re.findall(rf"^{self.engine}:num_requests_running{{.*}} (\S+)$", metrics, re.MULTILINE)
        return int(sum(map(float, counts)))

    # Beyond the kit

    def test_engine_stops_when_a_stream_is_closed(self, model: Any) -> None:
        ask = [{"role": "user", "content": self.long_prompt}]
        stream = self.stream(model, ask, max_new_tokens=1_500, ignore_eos=True)
        while not self.counted(model):
            next(stream)
        stream.close()
        deadline = time.monotonic() + 60
        while self.counted(model):
            assert time.monotonic() < deadline, "the engine goes on after its client has gone"
            time.sleep(0.2)

    def test_dialect_is_told_by_the_server(self, model: Any) -> None:
        self.chat(model, [{"role": "user", "content": "Hello"}])
        assert [dialect.name for dialect in model._dialects.values()] == [self.engine]

    def test_wrong_model(self, url: str) -> None:
        model = self.make(url, model_type="no-such-model")
        with pytest.raises(ModelConfigurationError, match="no-such-model"):
            self.chat(model, [{"role": "user", "content": "Hello"}])
        value_of(model.close)

    def test_sampling_parameters_of_the_dialect(self, model: Any) -> None:
        ask = [{"role": "user", "content": "Tell me a story"}]
        one, two = (
            self.chat(model, ask, temperature=1.0, seed=7, top_k=20, min_p=0.01, repetition_penalty=1.1) for _ in range(2)
        )
        assert one == two, "the seed was not taken"


class TestVllmServer(EngineServerTests):
    engine = "vllm"

    def test_structured_outputs(self, model: Any) -> None:
        ask = [{"role": "user", "content": "A word"}]
        assert re.fullmatch("[a-c]{4}", self.chat(model, ask, regex="[a-c]{4}"))
        assert self.chat(model, ask, choice=["red", "green"]) in ("red", "green")

    def test_responses_api(self, url: str) -> None:
        model = self.make(url, api="responses")
        response = self.chat(model, [{"role": "user", "content": "What is the capital of France?"}])
        assert "Paris" in response
        assert response.usage.completion_tokens > 0
        assert "".join(chunk.content for chunk in self.stream(model, [{"role": "user", "content": "Hello"}]))
        value_of(model.close)


class TestLMDeployServer(EngineServerTests):
    engine = "lmdeploy"
    lacking = ("images", "grammar")
