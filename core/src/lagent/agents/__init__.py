"""Agents: objects you call, made of layers."""

from __future__ import annotations

from typing import Any

from lagent.agents.agent import Agent
from lagent.agents.sequential import (
    AgentDict,
    AgentList,
    AsyncSequential,
    AsyncStreamingSequential,
    Sequential,
    StreamingSequential,
)
from lagent.agents.tools import AsyncStreamingToolAgent, AsyncToolAgent, StreamingToolAgent, ToolAgent
from lagent.agents.variants import (
    VARIANTS,
    AsyncAgent,
    AsyncAgentMixin,
    AsyncStreamingAgent,
    AsyncStreamingAgentMixin,
    StreamingAgent,
    StreamingAgentMixin,
    call_agent,
)
from lagent.registry import find_class

__all__ = [
    "VARIANTS",
    "Agent",
    "AgentDict",
    "AgentList",
    "AsyncAgent",
    "AsyncAgentMixin",
    "AsyncSequential",
    "AsyncStreamingAgent",
    "AsyncStreamingAgentMixin",
    "AsyncStreamingSequential",
    "AsyncStreamingToolAgent",
    "AsyncToolAgent",
    "Sequential",
    "StreamingAgent",
    "StreamingAgentMixin",
    "StreamingSequential",
    "StreamingToolAgent",
    "ToolAgent",
    "call_agent",
]


def __getattr__(name: str) -> Any:
    return find_class(__name__, name)
