"""Agents that choose among actions, and the hook that they need."""

from lagent_actions.agents.preprocessor import ActionPreprocessor
from lagent_actions.agents.react import AsyncReAct, AsyncStreamingReAct, ReAct, StreamingReAct
from lagent_actions.agents.rewoo import AsyncReWOO, AsyncStreamingReWOO, ReWOO, StreamingReWOO

__all__ = [
    "ActionPreprocessor",
    "AsyncReAct",
    "AsyncReWOO",
    "AsyncStreamingReAct",
    "AsyncStreamingReWOO",
    "ReAct",
    "ReWOO",
    "StreamingReAct",
    "StreamingReWOO",
]
