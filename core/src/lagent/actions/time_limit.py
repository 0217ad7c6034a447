"""Calls that may take only so long."""

from __future__ import annotations

import asyncio
import inspect
import threading
from concurrent.futures import Future
from contextvars import copy_context
from typing import Any

from attrs import frozen

from lagent.flow import Call

__all__ = ["Limited"]

_GRACE = 1.0  # seconds for a cancelled coroutine to clean up before it is left to itself


@frozen
class Limited:
    """A step of a flow: a call that is given up after some seconds. A coroutine is cancelled, a thread is left to itself.

    Raises:
        TimeoutError: the time is over.
    """

    call: Call
    seconds: float

    def run(self) -> Any:
        return Call(self.arun).run()

    async def arun(self) -> Any:
        coroutine = inspect.iscoroutinefunction(self.call.function)
        work = asyncio.ensure_future(self._outcome() if coroutine else asyncio.wrap_future(self._in_thread()))
        try:
            done, _ = await asyncio.wait({work}, timeout=self.seconds)
        finally:
            if not work.done():
                work.cancel()
                await asyncio.wait({work}, timeout=_GRACE)
        if not done:
            raise TimeoutError(f"no result within {self.seconds:g} seconds")
        result, error = work.result()
        if error is not None:
            raise error
        return result

    # An error is handed over as a value: a task or future cannot carry SystemExit or StopIteration.

    async def _outcome(self) -> tuple[Any, BaseException | None]:
        try:
            return await self.call.arun(), None
        except (Exception, SystemExit) as error:
            return None, error

    def _in_thread(self) -> Future[tuple[Any, BaseException | None]]:
        # A thread of its own, not one of a pool: calls that hang would use the pool up and keep the program from ending.
        future: Future[tuple[Any, BaseException | None]] = Future()
        future.set_running_or_notify_cancel()
        context = copy_context()

        def work() -> None:
            try:
                future.set_result((context.run(self.call.run), None))
            except BaseException as error:
                future.set_result((None, error))

        threading.Thread(target=work, name="lagent-action", daemon=True).start()
        return future
