"""The server of LMDeploy, started and owned, and its clients, with a small model.

``LAGENT_LMDEPLOY_PYTHON`` names the interpreter of an environment that has LMDeploy; see ``test_in_process.py``.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lagent.errors import EngineError, ModelConfigurationError
from lagent.testing import AsyncModelTests, ModelTests
from lagent.testing.kit import value_of
from lagent.testing.model_kit import ask
from lagent_engines.environments import engine_python, output_in, small_model
from lagent_engines.testing import OwnedModelTests, ServedModelTests
from lagent_lmdeploy import AsyncLMDeployClient, AsyncLMDeployServer, LMDeployClient, LMDeployServer

from .conversation import SAMPLING, conversation

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1500)]

SHIM = {
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": str(Path(__file__).parents[2] / "tests" / "engines" / "lmdeploy_cpu"),
    "LMDEPLOY_CPU_BYTES": str(2**30),
}
"""What makes LMDeploy's PyTorch engine run on the CPU, for tests only."""


@pytest.fixture(
    scope="module", params=["shim", *(pytest.param(each, marks=pytest.mark.gpu) for each in ("turbomind", "pytorch"))]
)
def setting(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Arguments of a server that is small enough for the CPU."""
    if (python := engine_python("lmdeploy")) is None:
        pytest.skip("LAGENT_LMDEPLOY_PYTHON does not name the interpreter of an environment with LMDeploy")
    if request.param != "shim" and shutil.which("nvidia-smi") is None:
        pytest.skip("there is no GPU")
    serve_cfg = {
        "backend": "turbomind" if request.param == "turbomind" else "pytorch",
        "session_len": 2048,
        "cache_block_seq_len": 64 if request.param == "turbomind" else 32,
        "max_prefill_token_num": 2048,
        "max_batch_size": 16,
    }
    return {
        "path": os.environ.get("LAGENT_LMDEPLOY_MODEL") or small_model(python),
        "python": python,
        "environment": SHIM if request.param == "shim" else {},
        "serve_cfg": serve_cfg,
        "model_name": "small",
    }


@pytest.fixture(scope="module")
def server(setting: dict[str, Any]) -> Iterator[LMDeployServer]:
    model = LMDeployServer(**setting, retry=0, load="now")
    yield model
    model.close()


class LMDeployTests(ServedModelTests):
    sampling = {"max_new_tokens": 8, "temperature": 0.0}  # a token takes long on the CPU

    def connected(self, model: Any, **options: Any) -> Any:
        kind = LMDeployClient if model.blocking else AsyncLMDeployClient
        return kind(model.url, model.model_type, **{"key": model.key, **options})

    def test_stop_word_of_several_tokens(self, model: Any) -> None:
        question = ask("Count: one, two, three,")
        answer = self.chat(model, question, max_new_tokens=40).content
        word = answer[10:22]
        assert len(word) == 12, f"the answer {answer!r} is too short to be cut in the middle"
        for response in (
            self.chat(model, question, max_new_tokens=40, stop_words=[word]),
            list(self.stream(model, question, max_new_tokens=40, stop_words=[word]))[-1],
        ):
            assert (getattr(response, "text", response) or response) == answer.partition(word)[0]
            assert response.finish_reason == "stop"

    def test_regular_expression(self, model: Any) -> None:
        form = {"type": "regex_schema", "regex_schema": "[a-c]{4}"}
        assert set(self.chat(model, ask("A word"), response_format=form)) <= set("abc")

    def test_greedy(self, model: Any) -> None:
        """LMDeploy's server always samples."""
        one, two = (self.chat(model, ask("Tell me a story"), temperature=0.0, top_k=0, top_p=1.0) for _ in range(2))
        assert one == two == self.chat(model, ask("Tell me a story"), temperature=1.0, top_k=1)


class TestLMDeployServer(LMDeployTests, OwnedModelTests, ModelTests):
    @pytest.fixture
    def model(self, server: LMDeployServer) -> LMDeployServer:
        return server

    def test_what_the_chat_template_tells(self, model: Any) -> None:
        assert "<tool_call>" in model.chat_template
        assert model.capabilities.tools

    def test_port_that_is_taken(self, model: Any, setting: dict[str, Any]) -> None:
        port = int(model.url.rpartition(":")[2])
        with pytest.raises(ModelConfigurationError, match=rf"lmdeploy-server cannot listen at port {port}"):
            LMDeployServer(**setting, server_port=port, load="now")


class TestLMDeployClient(LMDeployTests, ModelTests):
    @pytest.fixture
    def model(self, server: LMDeployServer) -> Iterator[LMDeployClient]:
        client = LMDeployClient(str(server.url), "small", key=server.key, retry=0)
        client.capabilities = server.capabilities  # a client cannot know what the model lacks
        yield client
        client.close()


class TestAsyncLMDeployClient(LMDeployTests, AsyncModelTests):
    @pytest.fixture
    def model(self, server: LMDeployServer) -> Iterator[AsyncLMDeployClient]:
        client = AsyncLMDeployClient(str(server.url), "small", key=server.key, retry=0)
        client.capabilities = server.capabilities
        yield client
        value_of(client.close)


def test_same_conversation_through_server_client_and_pipeline(server: LMDeployServer, setting: dict[str, Any]) -> None:
    clients = [kind(str(server.url), "small", key=server.key, **SAMPLING) for kind in (LMDeployClient, AsyncLMDeployClient)]
    server.gen_params.update(SAMPLING)
    expected = conversation(server)
    assert len(expected) == 6
    for client in clients:
        assert conversation(client) == expected
        value_of(client.close)
    if "PYTHONPATH" in setting["environment"]:  # two engines on one GPU may not have room
        options = {"max_prefill_token_num": 2048, "max_batch_size": 16, "session_len": 2048}
        script, asked = Path(__file__).with_name("conversation.py"), {"backend": "pytorch", "pipeline_cfg": options}
        variables = setting["environment"]
        written = output_in(setting["python"], script, setting["path"], json.dumps(asked), variables=variables)
        for spoken in json.loads(written.splitlines()[-1]):
            assert [tuple(message) for message in spoken] == expected


def test_engine_that_is_killed_and_leaves_its_server(server: LMDeployServer) -> None:
    """The last test of this server."""
    children = Path(f"/proc/{server.server.pid}/task/{server.server.pid}/children").read_text().split()
    engine = [int(child) for child in children if Path(f"/proc/{child}/comm").read_text().startswith("ZMQMPEngine")]
    if not engine:
        pytest.skip("the engine runs in the server's process")
    os.kill(engine[0], signal.SIGKILL)
    for _ in range(2):
        with pytest.raises(EngineError, match="can answer no more.*'engine process is not alive': the engine was killed"):
            server.chat(ask("Hello"))


class TestAsyncLMDeployServer(LMDeployTests, OwnedModelTests, AsyncModelTests):
    """On another server, which is killed and started again."""

    running_metric = "lmdeploy:num_requests_running"

    @pytest.fixture(scope="class")
    @classmethod
    def model(cls, setting: dict[str, Any]) -> Iterator[Any]:
        model = AsyncLMDeployServer(**setting, retry=0)
        yield model
        value_of(model.close)

    def test_requests_are_aborted_through_their_route(self, model: Any) -> None:
        with contextlib.closing(self.stream(model, ask("Tell me a story."), max_new_tokens=1_500, ignore_eos=True)) as stream:
            next(stream)
        assert '"POST /abort_request HTTP/1.1" 200' in model.server.tail(50)


def test_options_that_the_engine_does_not_know(setting: dict[str, Any], tmp_path: Path) -> None:
    setting = {**setting, "serve_cfg": {"sesion_len": 3}, "log": tmp_path / "log"}
    model = LMDeployServer(**setting)
    for _ in range(2):
        with pytest.raises(ModelConfigurationError, match="unrecognized arguments: --sesion-len.*: correct serve_cfg"):
            model.chat(ask("Hello"))


def test_engine_that_is_not_installed(setting: dict[str, Any], tmp_path: Path) -> None:
    model = LMDeployServer(**{**setting, "python": sys.executable, "log": tmp_path / "log"})
    with pytest.raises(ModelConfigurationError, match="No module named 'lmdeploy.*: install lmdeploy, or let python="):
        model.chat(ask("Hello"))


def test_example(setting: dict[str, Any]) -> None:
    example = Path(__file__).parents[1] / "examples" / "run_async_agent_lmdeploy_server.py"
    written = output_in(setting["python"], example, setting["path"], variables=setting["environment"])
    assert "Paris" in written
