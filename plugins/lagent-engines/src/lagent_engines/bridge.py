"""Using what lives on one event loop from threads and from other event loops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from concurrent.futures import Future
from contextlib import aclosing
from typing import Any, TypeVar

from lagent.errors import EngineError
from lagent.flow import END, Call
from lagent.threads import Mailbox

__all__ = ["Bridge", "BridgedStream"]

T = TypeVar("T")


class Bridge:
    """Runs coroutines and async generators on one event loop for callers anywhere else.

    Args:
        loop: a running event loop in another thread, which stays somebody else's; without it, the bridge starts one of its own.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._own = loop is None
        self.loop = loop if loop is not None else asyncio.new_event_loop()
        if self._own:
            self._thread = threading.Thread(target=self.loop.run_forever, name="lagent-engine", daemon=True)
            self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run ``coroutine`` there and wait for its result; not to be called on an event loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    def stream(self, source: Callable[[], AsyncGenerator[Any, None]]) -> BridgedStream:
        """Start the async generator that ``source`` makes; it runs on by itself."""
        return BridgedStream(self.loop, source)

    def close(self) -> None:
        """Stop the event loop, if it is the bridge's own. What still runs there is cancelled first."""
        if not self._own or self.loop.is_closed():
            return
        self.run(_cancel_all())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class BridgedStream:
    """What an async generator on another event loop yields, for a flow of either colour; see :class:`lagent.flow.Stream`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, source: Callable[[], AsyncGenerator[Any, None]]) -> None:
        self._loop, self._source = loop, source
        self._items = Mailbox()
        self._task: asyncio.Task[None] | None = None
        self._ended: Future[None] = Future()
        self._closed = False
        try:
            loop.call_soon_threadsafe(self._start)
        except RuntimeError as error:
            raise EngineError("the engine was closed") from error

    def next(self) -> Call:
        """The call that gives the next item, or :data:`lagent.flow.END`; it raises what the generator raises."""
        return Call(self._items.take)

    def close(self) -> Call:
        """The call that cancels the generator, if it still runs, and waits until it has cleaned up."""
        return Call(self._close)

    def _start(self) -> None:
        self._task = self._loop.create_task(self._pump())
        self._task.add_done_callback(self._end)

    async def _pump(self) -> None:
        async with aclosing(self._source()) as generator:
            async for item in generator:
                self._items.put(item)

    def _end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            error = task.exception()
            if error is None:
                self._items.put(END)
            else:
                self._items.fail(error)
        elif not self._closed:
            self._items.fail(EngineError("the engine was closed while it answered: ask again, which starts it anew"))
        if self._ended.set_running_or_notify_cancel():
            self._ended.set_result(None)

    def _close(self) -> Future[None]:
        self._closed = True
        if not self._ended.done() and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(lambda: self._task and self._task.cancel())
        elif not self._ended.done():
            self._ended.set_result(None)
        return self._ended


async def _cancel_all() -> None:
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
