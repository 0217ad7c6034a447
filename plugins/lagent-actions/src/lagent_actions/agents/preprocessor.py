"""Between what a parser read and the call of an action."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lagent.errors import ActionArgumentsError
from lagent.hooks import Hook
from lagent.schema import ActionReturn, ActionStatusCode, AgentMessage, FunctionCall, ParsedResponse, to_data

__all__ = ["ActionPreprocessor"]


class ActionPreprocessor(Hook):
    """Takes the call of an action out of ``message.formatted``, and turns its result into text.

    ``formatted`` may be a :class:`FunctionCall`, a mapping with ``name`` and ``parameters``, one with such a mapping as its ``action``, or
    what a parser made of either; of a parser's tool calls, the first counts.
    """

    blocking = False

    def before_action(self, executor: Any, message: AgentMessage, session_id: Any) -> AgentMessage:
        return message.model_copy(update={"content": _call(message.formatted)})

    def after_action(self, executor: Any, message: AgentMessage, session_id: Any) -> AgentMessage:
        content = message.content
        if isinstance(content, ActionReturn):
            content = content.format_result() if content.state == ActionStatusCode.SUCCESS else content.errmsg
        return message.model_copy(update={"content": content})


def _call(formatted: Any) -> FunctionCall:
    if isinstance(formatted, FunctionCall):
        return formatted
    if isinstance(formatted, ParsedResponse):
        if formatted.tool_calls:
            return FunctionCall(formatted.tool_calls[0].name, formatted.tool_calls[0].arguments)
        formatted = to_data(formatted.value)
    if isinstance(formatted, Mapping):
        for call in (formatted, formatted.get("action")):
            if isinstance(call, Mapping) and "name" in call and "parameters" in call:
                return FunctionCall(call["name"], call["parameters"])
    raise ActionArgumentsError(
        f"the message names no action: 'formatted' should hold a 'name' and 'parameters', or an 'action' that does, not {formatted!r:.200}"
    )
