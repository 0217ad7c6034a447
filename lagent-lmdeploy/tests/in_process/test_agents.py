"""Agents on both models, and the examples."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from lagent.agents import AsyncToolAgent, ToolAgent

from .conftest import PATH, run_script

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_tools_of_an_agent(pipeline: Any, async_pipeline: Any) -> None:
    """The small model answers as it pleases; both agents have to go the same way with it."""
    options: dict[str, Any] = {"actions": ["calculator"], "max_turn": 2}
    agent, async_agent = ToolAgent(pipeline, **options), AsyncToolAgent(async_pipeline, **options)
    assert agent("What is 37*412?").content == asyncio.run(async_agent("What is 37*412?")).content


@pytest.mark.parametrize("name", ["run_agent_lmdeploy.py", "run_async_agent_lmdeploy.py"])
def test_examples(name: str) -> None:
    printed = run_script(EXAMPLES / name, PATH, "--max-new-tokens", "12")
    assert "interpreter" in printed
    assert "time elapsed" in printed
