"""Models that own a server, with a small real one."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lagent.errors import AuthenticationError, EngineError, ModelConfigurationError, UnsupportedCapabilityError
from lagent.testing.kit import value_of
from lagent.testing.model_kit import ask
from lagent_engines.launch import EngineParsers, Launch, flags
from lagent_engines.owned import OwnedModel
from lagent_engines.served import AsyncServedMixin
from lagent_engines.server import Symptom

SCRIPT = Path(__file__).with_name("small_server.py")


class SmallModel(OwnedModel):
    engine = "compatible"
    parsers = EngineParsers({"hermes": "its_hermes"}, {})
    symptoms = (Symptom("the engine .*died", "revive it", fatal=True),)
    port_option = "--port"

    def _command(self, launch: Launch) -> list[str]:
        return ["-S", str(SCRIPT), *flags(launch.options, negative=False)]

    def _environment(self, key: str) -> dict[str, str]:
        return {"SMALL_SERVER_KEY": key}


class AsyncSmallModel(AsyncServedMixin, SmallModel):
    pass


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Any]:
    made: list[Any] = []
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")

    def make(kind: Any = SmallModel, options: Any = None, **arguments: Any) -> Any:
        unset = dict.fromkeys(["top_k", "repetition_penalty"])
        made.append(kind(str(tmp_path / "model"), options or {}, log=tmp_path / "log", **{**unset, **arguments}))
        return made[-1]

    yield make
    for model in made:
        value_of(model.close)


kinds = pytest.mark.parametrize("kind", [SmallModel, AsyncSmallModel])


def chat(model: Any, text: str = "Hello", **options: Any) -> Any:
    return value_of(model.chat, ask(text), **options)


@kinds
def test_starts_at_first_use(make: Any, kind: Any) -> None:
    model = make(kind, model_name="small")
    assert model.url is None
    assert model.server.pid is None
    assert chat(model) == f"small {model.server.pid}"
    assert model.url == model.server.url
    first = model.server.pid
    value_of(model.close)
    assert not model.server.running
    assert chat(model) == f"small {model.server.pid}" != f"small {first}"


def test_starts_now(make: Any) -> None:
    assert make(load="now").server.running
    with pytest.raises(ModelConfigurationError, match="load must be 'first use' or 'now', not 'later'"):
        make(load="later")


def test_many_requests_start_one_server(make: Any) -> None:
    model = make(AsyncSmallModel)

    async def ask_all() -> set[str]:
        return {str(answer) for answer in await asyncio.gather(*(model.chat(ask("Hello"), session_id=i) for i in range(8)))}

    assert len(asyncio.run(ask_all())) == 1
    model = make()
    with ThreadPoolExecutor(8) as pool:
        assert len({str(answer) for answer in pool.map(lambda _: chat(model), range(8))}) == 1


@kinds
def test_killed_server(make: Any, kind: Any) -> None:
    model = make(kind, retry=float("inf"))
    chat(model)
    url = model.url
    os.kill(model.server.pid, signal.SIGKILL)
    for _ in range(2):
        with pytest.raises(EngineError, match=r"compatible-server has ended by itself, killed by SIGKILL.*restart\(\)") as caught:
            chat(model)
        assert caught.value.__cause__ is not None
    value_of(model.restart)
    assert str(model.server.pid) in chat(model)
    assert model.url == url


@kinds
def test_server_killed_during_a_request(make: Any, kind: Any) -> None:
    model = make(kind, retry=float("inf"), load="now")
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(chat, model, "slow")
        while "a slow answer begins" not in model.server.tail():
            time.sleep(0.02)
        os.kill(model.server.pid, signal.SIGKILL)
        with pytest.raises(EngineError, match="killed by SIGKILL"):
            answer.result()


@kinds
def test_engine_that_dies_and_leaves_its_server(make: Any, kind: Any) -> None:
    model = make(kind, retry=float("inf"))
    for _ in range(2):
        with pytest.raises(
            EngineError, match=r"can answer no more; restart\(\) starts it again. It wrote 'the engine has died': revive it"
        ):
            chat(model, "fatal")
    assert not model.server.running
    value_of(model.restart)
    assert chat(model)


@kinds
def test_start_that_fails(make: Any, kind: Any) -> None:
    model = make(kind, {"fail": 3}, retry=float("inf"))
    for _ in range(2):
        with pytest.raises(EngineError, match="ended while it was starting, with exit code 3"):
            chat(model)
        with pytest.raises(EngineError, match="ended while it was starting, with exit code 3"):
            next(iter(value_of(lambda: SmallModel.stream_chat(model, ask("Hello")))))


def test_interpreter_does_not_wait_for_a_start(tmp_path: Path) -> None:
    code = f"""
import asyncio, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_served import AsyncSmallModel, ask
model = AsyncSmallModel({str(tmp_path)!r}, {{"unready": True}}, log={str(tmp_path / "log")!r})
asyncio.run(asyncio.wait_for(model.chat(ask("Hello")), 0.3))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert "TimeoutError" in done.stderr


def test_running_server(make: Any) -> None:
    model = make(model_name="small", load="now")
    other = SmallModel("small", {}, url=model.url, key=model.key, top_k=None, repetition_penalty=None)
    assert chat(other) == chat(model)
    with pytest.raises(ModelConfigurationError, match=r"the server at http://127.0.0.1:\d+ is not this model's own"):
        other.restart()
    other.close()
    assert model.server.running
    wrong = SmallModel("small", {}, url=model.url, key="wrong", top_k=None, repetition_penalty=None)
    with pytest.raises(AuthenticationError):
        chat(wrong)
    wrong.close()
    with pytest.raises(ModelConfigurationError, match="runs already: port, max_len cannot be chosen any more"):
        SmallModel("small", {"max_len": 3, "left_out": None}, url=model.url, port=3)


def test_proxies_are_not_for_the_own_server(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    assert chat(make())


def test_adapter(make: Any) -> None:
    model = make(model_name="small")
    assert chat(model, lora="an-adapter").startswith("an-adapter ")
    assert chat(model).startswith("small ")


def test_capabilities(make: Any, tmp_path: Path) -> None:
    model = make()
    assert not model.capabilities.tools
    assert not model.capabilities.images
    with pytest.raises(UnsupportedCapabilityError):
        chat(model, tools=[{"type": "function", "function": {"name": "f", "description": "", "parameters": {}}}])
    assert make(tool_parser="hermes").capabilities.tools


def test_meta_template_is_compared_with_the_chat_template(make: Any, tmp_path: Path) -> None:
    template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"
    meta = [{"role": role, "begin": f"<{role}>"} for role in ("system", "user", "assistant")]
    meta[2]["generate"] = True  # type: ignore[assignment]
    make(chat_template=template, meta_template=meta, on_template_mismatch="error")
    with pytest.raises(ModelConfigurationError, match="meta_template does not match"):
        make(
            chat_template="another" + template,
            meta_template=[{**each, "begin": "["} for each in meta],
            on_template_mismatch="error",
        )
    assert make(chat_template=template).chat_template == template


def test_unknown_parameter(make: Any) -> None:
    with pytest.raises(ModelConfigurationError, match="SmallModel knows no sampling parameter 'temprature'"):
        make(temprature=1.0)
    with pytest.raises(ModelConfigurationError, match="SmallModel knows no sampling parameter 'temprature'"):
        chat(make(), temprature=1.0)


def test_no_such_model() -> None:
    with pytest.raises(ModelConfigurationError, match="there is no model at '/no/such/model'"):
        SmallModel("/no/such/model", {})
