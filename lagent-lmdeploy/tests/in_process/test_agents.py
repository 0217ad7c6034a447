"""Agents on both models, and the examples."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lagent.agents import Agent, AsyncAgent, AsyncToolAgent, ToolAgent
from lagent.schema import AgentMessage

from .conftest import BACKEND, PATH

EXAMPLES = Path(__file__).parents[2] / "examples"


def plain(messages: list[AgentMessage]) -> list[Any]:
    """What two runs have in common: all but ids, and how much the cache knew."""
    usages = [(message.extra_info or {}).get("usage") for message in messages]
    counts = [usage and (usage["prompt_tokens"], usage["completion_tokens"]) for usage in usages]
    return [(message.sender, message.content, count) for message, count in zip(messages, counts, strict=True)]


def test_the_same_conversation_with_both_models(pipeline: Any, async_pipeline: Any) -> None:
    questions = ["What is the capital of France?", "And of Italy?", "Thank you!"]
    agent = Agent(pipeline, "Be brief.", name="assistant")
    async_agent = AsyncAgent(async_pipeline, "Be brief.", name="assistant")

    async def talk() -> None:
        for question in questions:
            await async_agent(question, session_id="talk")

    for question in questions:
        agent(question, session_id="talk")
    asyncio.run(talk())
    one, two = (each.memory.get_memory("talk") for each in (agent, async_agent))
    assert len(one) == 6
    assert plain(one) == plain(two)


def test_tools_of_an_agent(pipeline: Any, async_pipeline: Any) -> None:
    """The small model answers as it pleases; both agents have to go the same way with it."""
    options: dict[str, Any] = {"actions": ["calculator"], "max_turn": 2}
    agent, async_agent = ToolAgent(pipeline, **options), AsyncToolAgent(async_pipeline, **options)
    assert agent("What is 37*412?").content == asyncio.run(async_agent("What is 37*412?")).content


@pytest.mark.parametrize("name", ["run_agent_lmdeploy.py", "run_async_agent_lmdeploy.py"])
def test_examples(name: str) -> None:
    if BACKEND == "turbomind":
        pytest.skip("the examples let LMDeploy choose the engine")
    start = (
        "import runpy, site, sys; site.addsitedir(sys.argv[1]); sys.path[:0] = sys.argv[2].split(';'); del sys.argv[:3]\n"
        + ("import lmdeploy_cpu; lmdeploy_cpu.install()\n" if BACKEND == "shim" else "")
        + "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    shim = str(Path(__file__).parents[3] / "tests" / "engines" / "lmdeploy_cpu")
    packages = str(Path(pytest.__file__).parents[1])
    command = [sys.executable, "-c", start, packages, shim, str(EXAMPLES / name), PATH, "--max-new-tokens", "12"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "LMDEPLOY_CPU_BYTES": str(2**30)}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "interpreter" in done.stdout
    assert "time elapsed" in done.stdout
