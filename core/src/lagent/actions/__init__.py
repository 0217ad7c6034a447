"""Actions: the interface, the executors that run them, and what installed distributions add to them."""

from typing import Any

from lagent.actions.action_executor import ActionExecutor, AsyncActionExecutor, tool_name
from lagent.actions.base_action import AsyncActionMixin, BaseAction, FunctionAction, tool_api
from lagent.actions.builtin_actions import FinishAction, InvalidAction, NoAction
from lagent.actions.calculator import Calculator
from lagent.actions.parser import BaseParser, JsonParser, ParseError, TupleParser, content_parts

__all__ = [
    "ActionExecutor",
    "AsyncActionExecutor",
    "AsyncActionMixin",
    "BaseAction",
    "BaseParser",
    "Calculator",
    "FinishAction",
    "FunctionAction",
    "InvalidAction",
    "JsonParser",
    "NoAction",
    "ParseError",
    "TupleParser",
    "content_parts",
    "tool_api",
    "tool_name",
]


def __getattr__(name: str) -> Any:
    from lagent.registry import find_class

    return find_class(__name__, name)
