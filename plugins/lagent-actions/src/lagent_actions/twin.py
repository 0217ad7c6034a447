"""Asynchronous twins of actions, made of the same code."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any

from lagent.actions import AsyncActionMixin
from lagent.flow import Call

__all__ = ["AsyncTwin"]


class AsyncTwin(AsyncActionMixin):
    """Turns the tool APIs of the action class behind it into coroutine functions that run them in a thread.

    What is there of the action's ``reserve(session_id)`` and ``interrupt(session_id)`` is called: the first for a future that is waited
    for before, as many waiting threads would keep those from running that end the waiting; the second when the call is cancelled.
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
        session_id, done = kwargs.get("session_id"), False
        if hasattr(self, "reserve"):
            await asyncio.wrap_future(self.reserve(session_id))
        try:
            result = await Call(function, (self, *args), kwargs, blocking=True).arun()
            done = True
            return result
        finally:
            if not done and hasattr(self, "interrupt"):
                self.interrupt(session_id)

    return call
