"""Asynchronous twins of actions, made of the same code."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from lagent.actions import AsyncActionMixin
from lagent.flow import Call

__all__ = ["AsyncTwin"]


class AsyncTwin(AsyncActionMixin):
    """Turns the tool APIs of the action class behind it into coroutine functions that run them in a thread.

    When such a call is cancelled and the action can ``interrupt(session_id)``, what runs in the session is interrupted.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name in dir(cls):
            member: Any = getattr(cls, name, None)
            if hasattr(member, "api_description"):
                setattr(cls, name, _awaitable(member))


def _awaitable(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        done = False
        try:
            result = await Call(function, (self, *args), kwargs, blocking=True).arun()
            done = True
            return result
        finally:
            if not done and hasattr(self, "interrupt"):
                self.interrupt(kwargs.get("session_id"))

    return call
