"""The data that flows between agents, models, parsers and actions."""

from lagent.schema.codes import ActionStatusCode, ActionValidCode, AgentStatusCode, ModelStatusCode, ParseStatus
from lagent.schema.data import to_data
from lagent.schema.message import ActionReturn, AgentMessage, FunctionCall, SessionId, tool_calls_of
from lagent.schema.model import ModelChunk, ModelResponse, ParsedResponse, ResponseBuilder, ToolCall, ToolCallDelta, Usage

__all__ = [
    "ActionReturn",
    "ActionStatusCode",
    "ActionValidCode",
    "AgentMessage",
    "AgentStatusCode",
    "FunctionCall",
    "ModelChunk",
    "ModelResponse",
    "ModelStatusCode",
    "ParseStatus",
    "ParsedResponse",
    "ResponseBuilder",
    "SessionId",
    "ToolCall",
    "ToolCallDelta",
    "Usage",
    "to_data",
    "tool_calls_of",
]
