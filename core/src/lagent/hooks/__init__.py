"""Hooks: what may happen around agents, models and actions."""

from typing import Any

from lagent.hooks.logger import MessageLogger
from lagent.hooks.manager import Hook, HookManager, RemovableHandle, register_hook
from lagent.hooks.specs import EVENTS, hookimpl

__all__ = ["EVENTS", "Hook", "HookManager", "MessageLogger", "RemovableHandle", "hookimpl", "register_hook"]


def __getattr__(name: str) -> Any:
    from lagent.registry import find_class

    return find_class(__name__, name)
