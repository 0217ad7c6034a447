"""The states of models, agents, actions and parsers."""

from __future__ import annotations

from enum import Enum, IntEnum

__all__ = ["ActionStatusCode", "ActionValidCode", "AgentStatusCode", "ModelStatusCode", "ParseStatus"]


class ModelStatusCode(IntEnum):
    """Where a model call stands."""

    END = 0
    STREAM_ING = 1
    SERVER_ERR = -1
    SESSION_CLOSED = -2
    SESSION_OUT_OF_LIMIT = -3
    SESSION_INVALID_ARG = -4
    SESSION_READY = 2


class AgentStatusCode(IntEnum):
    """Where an agent's answer stands: a model's states, then those of tools and of code."""

    END = 0
    STREAM_ING = 1
    SERVER_ERR = -1
    SESSION_CLOSED = -2
    SESSION_OUT_OF_LIMIT = -3
    SESSION_INVALID_ARG = -4
    SESSION_READY = 2
    PLUGIN_START = 3
    PLUGIN_END = 4
    PLUGIN_RETURN = 5
    CODING = 6
    CODE_END = 7
    CODE_RETURN = 8


class ActionStatusCode(IntEnum):
    """How an action ended."""

    ING = 1
    SUCCESS = 0
    HTTP_ERROR = -1000
    ARGS_ERROR = -1001
    API_ERROR = -1002


class ActionValidCode(IntEnum):
    """What kind of action a call turned out to name."""

    FINISH = 1
    OPEN = 0
    CLOSED = -1
    INVALID = -2
    ABSENT = -3


class ParseStatus(str, Enum):
    """How far a parser got with the text of a model."""

    OK = "ok"
    REPAIRED = "repaired"  # malformed, read all the same
    PARTIAL = "partial"  # ends in the middle of a structure
    ERROR = "error"  # cannot be read
