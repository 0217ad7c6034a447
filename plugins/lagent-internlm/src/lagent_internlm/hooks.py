"""Turning what InternLM's parsers read into calls of actions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lagent.errors import ActionArgumentsError
from lagent.schema import AgentMessage, FunctionCall
from lagent_actions.agents import ActionPreprocessor

__all__ = ["InternLMActionProcessor"]


class InternLMActionProcessor(ActionPreprocessor):
    """:class:`ActionPreprocessor` for messages that a tool parser formatted: an action that is text is code for the first action.

    Args:
        code_parameter: the parameter of that action that takes the code.
    """

    def __init__(self, code_parameter: str = "command") -> None:
        self.code_parameter = code_parameter

    def before_action(self, executor: Any, message: AgentMessage, session_id: Any) -> AgentMessage:
        formatted = message.formatted
        if not isinstance(formatted, Mapping) or "action" not in formatted:
            raise ActionArgumentsError(
                f"a message for an action needs a tool parser's result as 'formatted', not {formatted!r:.200}"
            )
        if not isinstance(code := formatted["action"], str):
            return super().before_action(executor, message, session_id)
        return message.model_copy(update={"content": FunctionCall(executor.keys()[0], {self.code_parameter: code})})
