"""Crossing between threads and event loops."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import os
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

__all__ = ["Mailbox", "in_thread", "wait"]

T = TypeVar("T")


@functools.cache
def _threads() -> ThreadPoolExecutor:
    """The threads of blocking calls; not the loop's own pool, which name look-ups share and long model calls would fill."""
    return ThreadPoolExecutor(max_workers=64, thread_name_prefix="lagent-blocking")


async def in_thread(function: Callable[[], T]) -> T:
    def call() -> T:
        try:
            return function()
        except StopIteration as error:  # a future cannot carry it: who waits for it would wait for ever
            raise RuntimeError("a call raised StopIteration") from error

    context = contextvars.copy_context()
    return await asyncio.get_running_loop().run_in_executor(_threads(), context.run, call)


_loop_lock = threading.Lock()
_loops: dict[int, asyncio.AbstractEventLoop] = {}
_depth: contextvars.ContextVar[int] = contextvars.ContextVar("lagent_loop_depth", default=0)
"""How many private loops wait for the running code. What it waits for itself goes to the next loop, as those are blocked."""


def _private_loop(depth: int) -> asyncio.AbstractEventLoop:
    """The event loop, in a daemon thread, on which synchronous agents run asynchronous components."""
    with _loop_lock:
        if depth not in _loops or _loops[depth].is_closed():
            _loops[depth] = asyncio.new_event_loop()
            threading.Thread(target=_loops[depth].run_forever, name=f"lagent-loop-{depth}", daemon=True).start()
        return _loops[depth]


def _after_fork() -> None:
    """The threads stay behind in the parent; a forked process starts its own."""
    global _loop_lock
    _loop_lock = threading.Lock()
    _loops.clear()
    _threads.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def wait(awaitable: Awaitable[T]) -> T:
    depth = _depth.get()

    async def settle() -> tuple[T, None] | tuple[None, BaseException]:
        _depth.set(depth + 1)
        try:
            return await awaitable, None
        except (SystemExit, KeyboardInterrupt) as error:  # would end the private loop, and nobody would be woken
            return None, error

    future = asyncio.run_coroutine_threadsafe(settle(), _private_loop(depth))
    try:
        result, error = future.result()
    except BaseException:
        future.cancel()
        raise
    if error is not None:
        raise error
    return result  # type: ignore[return-value]


class Mailbox:
    """Items on their way from any thread to one reader, who waits for them on whatever thread or event loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._unread: deque[tuple[Callable[[Future[Any], Any], None], Any]] = deque()
        self._reader: Future[Any] | None = None

    def put(self, item: Any) -> None:
        """Hand over an item."""
        self._deliver(Future.set_result, item)

    def fail(self, error: BaseException) -> None:
        """Hand over an error, which is raised where the reader waits."""
        self._deliver(Future.set_exception, error)

    def take(self) -> Future[Any]:
        """The next item; as a step of a flow, :class:`lagent.flow.Call` waits for it. A future that was cancelled takes none."""
        future: Future[Any] = Future()
        with self._lock:
            if self._unread:
                settle, value = self._unread.popleft()
                settle(future, value)
            else:
                self._reader = future
        return future

    def _deliver(self, settle: Callable[[Future[Any], Any], None], value: Any) -> None:
        with self._lock:
            reader, self._reader = self._reader, None
            if reader is None or not reader.set_running_or_notify_cancel():
                self._unread.append((settle, value))
                return
        settle(reader, value)
