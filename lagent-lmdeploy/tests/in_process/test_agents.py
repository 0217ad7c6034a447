"""Agents on both models."""

from __future__ import annotations

import asyncio
from typing import Any

from lagent.agents import AsyncToolAgent, ToolAgent


def test_tools_of_an_agent(pipeline: Any, async_pipeline: Any) -> None:
    """The small model answers as it pleases; both agents have to go the same way with it."""
    options: dict[str, Any] = {"actions": ["calculator"], "max_turn": 2}
    agent, async_agent = ToolAgent(pipeline, **options), AsyncToolAgent(async_pipeline, **options)
    assert agent("What is 37*412?").content == asyncio.run(async_agent("What is 37*412?")).content
