"""Limits on the time and the number of requests."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio
from attrs import define, fields

from lagent.errors import ModelConfigurationError, ModelTimeoutError

__all__ = ["Clock", "Limiter", "TimeLimits"]

T = TypeVar("T")


@define(frozen=True)
class TimeLimits:
    """How long a request may take, in seconds; ``None`` for without end. Waiting for a free slot does not count.

    Attributes:
        connect: until the connection stands.
        first_token: until the first piece of a streamed answer.
        between_tokens: until each further piece.
        total: until the answer is complete, streamed or not; the time that the reader of a stream takes counts here.
    """

    connect: float | None = 10.0
    first_token: float | None = 300.0
    between_tokens: float | None = 120.0
    total: float | None = 600.0

    @classmethod
    def of(cls, value: TimeLimits | Mapping[str, Any] | float | None) -> TimeLimits:
        """The limits that ``value`` means: a number is the ``total``, a mapping names some of them, ``None`` keeps the defaults.

        Raises:
            ModelConfigurationError: a name or a value cannot be used.
        """
        if value is None or isinstance(value, cls):
            return value or cls()
        named = dict(value) if isinstance(value, Mapping) else {"total": value}
        known = [attribute.name for attribute in fields(cls)]
        for name, seconds in named.items():
            if name not in known:
                raise ModelConfigurationError(f"timeout has no part {name!r}; it has {', '.join(known)}")
            if seconds is not None and not (isinstance(seconds, (int, float)) and seconds > 0):
                raise ModelConfigurationError(f"timeout {name!r} must be a positive number of seconds or None, not {seconds!r}")
        return cls(**named)


class Clock:
    """Watches over the time limits of one request, from its making on."""

    def __init__(self, limits: TimeLimits, *, streamed: bool) -> None:
        now = time.monotonic()
        self._between = limits.between_tokens
        self._total = limits.total
        self._end = _after(now, limits.total)
        self._next: float | None = _after(now, limits.first_token if streamed else None)
        self._waiting_for = f"first token in {limits.first_token} s"

    def token(self) -> None:
        """A piece of the answer has come; the time for the next one runs from when it is waited for."""
        self._next = None
        self._waiting_for = f"further token in {self._between} s"

    async def wait(self, awaitable: Awaitable[T]) -> T:
        """The result of ``awaitable``.

        Raises:
            ModelTimeoutError: it did not come within the limits.
        """
        now = time.monotonic()
        if self._next is None:
            self._next = _after(now, self._between)
        end = min(self._next, self._end)
        if end == math.inf:
            return await awaitable
        with anyio.move_on_after(max(0.0, end - now)):
            return await awaitable
        what = f"complete answer in {self._total} s" if self._end <= self._next else self._waiting_for
        raise ModelTimeoutError(f"the server gave no {what}; see timeout=")


def _after(now: float, seconds: float | None) -> float:
    return math.inf if seconds is None else now + seconds


class Limiter:
    """Lets a number of requests run at once; first come, first served, across threads and event loops.

    Args:
        limit: how many; ``None`` for any number.
    """

    def __init__(self, limit: int | None) -> None:
        if limit is not None and limit < 1:
            raise ModelConfigurationError(f"max_concurrency must be at least 1 or None, not {limit!r}")
        self._free = limit
        self._waiting: deque[Future[None]] = deque()
        self._lock = threading.Lock()

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Hold one slot."""
        if self._free is None:
            yield
            return
        await self._acquire()
        try:
            yield
        finally:
            self._release()

    async def _acquire(self) -> None:
        assert self._free is not None
        with self._lock:
            if self._free:
                self._free -= 1
                return
            turn: Future[None] = Future()
            self._waiting.append(turn)
        try:
            await asyncio.wrap_future(turn)
        except asyncio.CancelledError:
            if not turn.cancel() and not turn.cancelled():  # the turn came while the caller was being cancelled
                self._release()
            raise

    def _release(self) -> None:
        assert self._free is not None
        with self._lock:
            while self._waiting:
                turn = self._waiting.popleft()
                if turn.set_running_or_notify_cancel():
                    turn.set_result(None)
                    return
            self._free += 1
