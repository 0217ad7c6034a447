"""Agents for the InternLM models."""

from lagent.llms import INTERNLM2_META
from lagent_internlm.agents import (
    AgentForInternLM,
    AsyncAgentForInternLM,
    AsyncMathCoder,
    AsyncStreamingAgentForInternLM,
    AsyncStreamingMathCoder,
    MathCoder,
    StreamingAgentForInternLM,
    StreamingMathCoder,
    get_plugin_prompt,
)
from lagent_internlm.aggregator import InternLMToolAggregator
from lagent_internlm.hooks import InternLMActionProcessor

__all__ = [
    "INTERNLM2_META",
    "AgentForInternLM",
    "AsyncAgentForInternLM",
    "AsyncMathCoder",
    "AsyncStreamingAgentForInternLM",
    "AsyncStreamingMathCoder",
    "InternLMActionProcessor",
    "InternLMToolAggregator",
    "MathCoder",
    "StreamingAgentForInternLM",
    "StreamingMathCoder",
    "get_plugin_prompt",
]
