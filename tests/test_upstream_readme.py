"""The README of lagent 0.5.0rc3 runs unchanged: every Python block of it, with scripted models in the place of the real ones.

The text is the long description in lagent's wheel: the file that ``LAGENT_UPSTREAM_WHEEL`` names, or else the one from PyPI.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import textwrap
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import lagent.llms
from lagent.errors import ComponentLoadError

_RELEASE = "lagent==0.5.0rc3"
_BLOCK = re.compile(r"^(?P<fence>`{3,})(?P<language>\w*)\n(?P<code>.*?)^(?P=fence)$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def readme(pytestconfig: pytest.Config) -> str:
    if (given := os.environ.get("LAGENT_UPSTREAM_WHEEL")) is not None:
        wheel = Path(given)
    else:
        assert pytestconfig.cache is not None
        folder = pytestconfig.cache.mkdir("lagent-upstream")
        if not list(folder.glob("*.whl")):
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--pre", "-d", str(folder), _RELEASE]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                pytest.skip(f"{_RELEASE} cannot be had: {done.stderr.strip()[-200:]}")
        wheel = next(iter(folder.glob("*.whl")))
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return archive.read(name).decode()


class Scripted:
    """A model in the style of lagent 0.5: it takes any arguments and answers with plain text."""

    def __init__(self, *args: Any, stop_words: Any = (), **kwargs: Any) -> None:
        self.gen_params: dict[str, Any] = {"stop_words": list(stop_words)}

    def chat(self, inputs: list[dict[str, Any]], session_id: Any = 0, **kwargs: Any) -> str:
        text = answer(inputs)
        for word in kwargs.get("stop_words", self.gen_params["stop_words"]):
            text = text.partition(word)[0]
        return text


class AsyncScripted(Scripted):
    async def chat(self, inputs: list[dict[str, Any]], session_id: Any = 0, **kwargs: Any) -> str:  # type: ignore[override]
        await asyncio.sleep(0)
        return super().chat(inputs, session_id, **kwargs)


def answer(messages: list[dict[str, Any]]) -> str:
    """What a good model would say in each place of the README."""
    said = "\n".join(str(message["content"]) for message in messages if message["role"] == "system" or "【" in message["content"])
    last = messages[-1]
    result = str(last["content"]) if last["role"] == "environment" and messages[-2]["role"] == "assistant" else None
    if "“典”、“孝”、“急”" in said:
        return "急"
    if "【晴】" in said:
        return "【多云】"
    if "逐步分析并编写Python代码" in said:
        return "首先，我们需要…\n\n```python\nresult = 63 * 63\nprint(result)\n```\n"
    if "with assistance of Python code" in said:
        code = "from fractions import Fraction\nprint([str(2 * Fraction(x, 10)) for x in (1, -3)])"
        return f"The projection is {result}." if result else f"We compute it.\n```python\n{code}\n```\n"
    if "engaging blogpost" in said:
        return f"A blogpost, draft {sum(message['role'] == 'assistant' for message in messages) + 1}."
    if "critique" in said:
        return "Make it longer."
    if "accurate data" in said:
        call = json.dumps({"name": "WebBrowser.search", "parameters": {"query": ["GDP of China"]}})
        return f"There is no search, but I know it: 14.7, 17.8. ({result})" if result else f"I search.\n```json\n{call}\n```\n"
    if "visible by the user" in said:
        code = "import matplotlib.pyplot as plt\nplt.plot([14.7, 17.8])\nplt.show()\nprint('drawn')"
        return f"Final Answer: {result}" if result else f"I draw.\n```python\n{code}\n```\n"
    raise AssertionError(f"no answer to {messages}")


@pytest.fixture
def replaced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for name in ("VllmModel", "LMDeployPipeline", "GPTAPI"):
        monkeypatch.setitem(vars(lagent.llms), name, Scripted)
        monkeypatch.setitem(vars(lagent.llms), f"Async{name}", AsyncScripted)
    monkeypatch.setenv("OPENAI_API_KEY", "of the test")  # the README sets it
    monkeypatch.chdir(tmp_path)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)  # the README asks for the current one
    yield
    asyncio.set_event_loop(None)
    loop.close()


def test_every_block_runs(readme: str, replaced: None, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = list(_BLOCK.finditer(readme))
    namespace: dict[str, Any] = {"__name__": "__main__"}
    printed: list[tuple[str, str]] = []
    for number, block in enumerate(blocks):
        if block["language"] != "python":
            continue
        code = block["code"]
        if code.startswith(" "):  # methods, quoted out of their class
            code = f"class Quoted:\n{textwrap.indent(textwrap.dedent(code), '    ')}"
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*the Bing Search API", UserWarning)
            warnings.simplefilter("ignore", ResourceWarning)  # the README leaves a file open
            exec(compile(code, f"README, block {number}", "exec"), namespace)
        shown = blocks[number + 1]["code"] if number + 1 < len(blocks) and not blocks[number + 1]["language"] else ""
        printed.append((capsys.readouterr().out, shown))

    outputs = [output for output, _ in printed if output]
    # What it prints where it says what it prints: to the letter, save for what depends on the model.
    exact = [
        (output, shown) for output, shown in printed if shown.startswith(("content='急'", "[AgentMessage", "content='3969.0'"))
    ]
    assert len(exact) == 3
    for output, shown in exact:
        assert output == shown
    parsed = json.loads(next(output for output in outputs if output.startswith("{")))
    assert parsed["formatted"] == {
        "tool_type": "code interpreter",
        "thought": "首先，我们需要…\n\n",
        "action": "result = 63 * 63\nprint(result)",
        "status": 1,
    }
    coder, blogger, visualizer = (namespace[name] for name in ("coder", "blogger", "visualizer"))
    assert namespace["answer"].content == "The projection is ['1/5', '-3/5']."
    assert [message["sender"] for message in coder.state_dict()["agent.memory"]] == ["user", "Agent", "ActionExecutor", "Agent"]
    assert [message.content for message in namespace["bot_msgs"]] == ["A blogpost, draft 4."] * 5
    critic = blogger.state_dict(session_id=3)["critic.memory"]
    assert critic[0]["content"].startswith("Reflect and provide critique on the following writing. \n\nA blogpost")
    assert namespace["bot_msg"].content.startswith("Final Answer: drawn")
    state = visualizer.state_dict()
    assert (
        "shut down the Bing Search API"
        in next(m for m in state["researcher.memory"] if m["sender"] == "ActionExecutor")["content"]
    )
    saved = json.loads(Path("visualizer.json").read_text(encoding="utf-8"))
    assert {key: _plain(value) for key, value in state.items()} == saved
    assert list(Path("work_dir/tmp_dir").glob("*.png"))
    for agent in (coder, visualizer):
        agent.close_session(0)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("module", "name", "distribution"),
    [
        ("lagent.llms.vllm_wrapper", "AsyncVllmModel", "lagent-vllm"),
        ("lagent.llms.lmdeploy_wrapper", "LMDeployPipeline", "lagent-lmdeploy"),
        ("lagent.agents.stream", "PLUGIN_CN", "lagent-internlm"),
    ],
)
def test_the_modules_of_the_examples_are_there(module: str, name: str, distribution: str) -> None:
    installed = {each.name for each in importlib.metadata.distributions()}
    missing = pytest.raises(ComponentLoadError, match=f"pip install {distribution}")
    with contextlib.nullcontext() if distribution in installed else missing:
        assert getattr(importlib.import_module(module), name)
