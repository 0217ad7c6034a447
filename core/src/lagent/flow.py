"""One generator, run in four ways: plain, asynchronous, streaming, asynchronous streaming.

A *flow* is a generator that describes work once for all four. It yields

- a :class:`Call` (or another :class:`Step`) for everything that may have to be waited for, and is resumed with its result, and
- anything else to emit it to the reader of the stream;

its return value is the last thing emitted. The drivers :func:`run`, :func:`arun`, :func:`stream` and :func:`astream` execute a flow.
An asynchronous driver awaits awaitable results and moves a ``blocking`` call to a thread; a synchronous one runs awaitables on a
private event loop. Errors, cancellation and the early close of a stream (as :class:`StreamClosed`) are raised inside the flow, at the
yield that was waiting, so that its clean-up runs and may itself yield calls.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from attrs import define, field

from lagent.schema import SessionId
from lagent.threads import in_thread, wait

__all__ = [
    "END",
    "Call",
    "Flow",
    "Gather",
    "Sleep",
    "Step",
    "Stream",
    "StreamClosed",
    "arun",
    "astream",
    "current_session",
    "invoke",
    "run",
    "stream",
]

T = TypeVar("T")

Flow = Generator[Any, Any, T]
"""A generator that yields steps and emissions and returns ``T``."""

END: Any = object()
"""What a :class:`Stream` gives once it is exhausted."""

current_session: contextvars.ContextVar[SessionId | None] = contextvars.ContextVar("lagent_session", default=None)
"""The session whose call is running, so that an agent called without ``session_id`` inside another's ``forward`` joins it."""


class StreamClosed(BaseException):
    """Raised inside a flow whose reader closed the stream before its end."""


class Step(Protocol):
    """Something that a flow waits for."""

    def run(self) -> Any: ...
    async def arun(self) -> Any: ...


@define(slots=True)
class Call:
    """A call whose result the flow waits for.

    Attributes:
        function, args, kwargs: what to call. The result may be awaitable or a :class:`concurrent.futures.Future`.
        blocking: the call may wait for something outside the process, so asynchronous drivers run it in a thread
            unless ``function`` is a coroutine function.
        session_id: if given, the value of :data:`current_session` during the call.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(factory=dict)
    blocking: bool = field(default=False, kw_only=True)
    session_id: SessionId | None = field(default=None, kw_only=True)

    def run(self) -> Any:
        token = current_session.set(self.session_id) if self.session_id is not None else None
        try:
            value = self.function(*self.args, **self.kwargs)
            if isinstance(value, Future):
                return value.result()
            return wait(value) if hasattr(value, "__await__") else value
        finally:
            if token is not None:
                current_session.reset(token)

    async def arun(self) -> Any:
        token = current_session.set(self.session_id) if self.session_id is not None else None
        try:
            if self.blocking and not inspect.iscoroutinefunction(self.function):
                value = await in_thread(functools.partial(self.function, *self.args, **self.kwargs))
            else:
                value = self.function(*self.args, **self.kwargs)
            if isinstance(value, Future):
                if value.done():  # a reader of what is always there would keep the loop to itself, and could not be cancelled
                    await asyncio.sleep(0)
                    return value.result()
                return await asyncio.wrap_future(value)
            return await value if hasattr(value, "__await__") else value
        finally:
            if token is not None:
                current_session.reset(token)


@define(slots=True)
class Gather:
    """Several flows at once; gives the list of their results. What they emit is dropped.

    Threads run them in a synchronous driver, tasks in an asynchronous one. The first error is raised when all have ended.
    """

    flows: Sequence[Flow[Any]]

    def run(self) -> list[Any]:
        if len(self.flows) == 1:
            return [run(self.flows[0])]
        with ThreadPoolExecutor(len(self.flows) or 1, thread_name_prefix="lagent-gather") as pool:
            futures = [pool.submit(contextvars.copy_context().run, run, flow) for flow in self.flows]
        return [future.result() for future in futures]

    async def arun(self) -> list[Any]:
        tasks = [asyncio.ensure_future(arun(flow)) for flow in self.flows]
        try:
            results = await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return results


@define(slots=True)
class Sleep:
    """A pause of some seconds."""

    seconds: float

    def run(self) -> None:
        time.sleep(self.seconds)

    async def arun(self) -> None:
        await asyncio.sleep(self.seconds)


class Stream:
    """An iterator, asynchronous or not, whose items and whose closing a flow waits for.

    Args:
        source: a generator, iterator, async generator or async iterator.
        blocking: whether taking an item from a synchronous ``source`` may wait.
        session_id: see :class:`Call`.
    """

    def __init__(self, source: Any, *, blocking: bool = False, session_id: SessionId | None = None) -> None:
        self._source = source
        self._asynchronous = hasattr(source, "__anext__")
        # A cancelled task leaves its thread inside next(); closing has to wait for it, as a running generator refuses.
        self._lock = threading.Lock()
        self._take = Call(
            self._anext if self._asynchronous else self._next,
            blocking=blocking and not self._asynchronous,
            session_id=session_id,
        )

    @staticmethod
    def accepts(value: Any) -> bool:
        """Whether ``value`` is something to iterate rather than a result."""
        return hasattr(value, "__anext__") or hasattr(value, "__next__")

    def next(self) -> Call:
        """The call that gives the next item, or :data:`END`."""
        return self._take

    def close(self) -> Call:
        """The call that ends the source, whether it is exhausted or not."""
        return Call(self._close, blocking=self._take.blocking)

    def _next(self) -> Any:
        with self._lock:
            return next(self._source, END)

    async def _anext(self) -> Any:
        return await anext(self._source, END)

    def _close(self) -> Any:
        if self._asynchronous:
            return self._source.aclose() if hasattr(self._source, "aclose") else None
        if hasattr(self._source, "close"):
            with self._lock:
                self._source.close()
        return None


def invoke(
    function: Callable[..., Any],
    *args: Any,
    blocking: bool,
    session_id: SessionId,
    each: Callable[[Any], Flow[Any]] | None = None,
    **kwargs: Any,
) -> Flow[Any]:
    """Call ``function`` of whatever colour with ``session_id`` and give its result; of a stream, emit all items and give the last.

    Args:
        function: a plain, coroutine, generator or async generator function.
        blocking: whether a synchronous ``function`` may wait.
        each: a flow that every item of a stream goes through before it is emitted.
    """
    result = yield Call(function, args, {**kwargs, "session_id": session_id}, blocking=blocking, session_id=session_id)
    if not Stream.accepts(result):
        return result
    source, last = Stream(result, blocking=blocking, session_id=session_id), None
    try:
        while (item := (yield source.next())) is not END:
            last = item if each is None else (yield from each(item))
            yield last
    finally:
        yield source.close()
    return last


# Drivers ---------------------------------------------------------------------------------------------------------


class _Progress:
    """Advances a flow step by step: iterate, and tell the outcome of each step as ``value`` or ``error``."""

    def __init__(self, flow: Flow[Any]) -> None:
        self._flow = flow
        self.value: Any = None
        self.error: BaseException | None = None
        self.result: Any = None
        self.closed = False

    def __iter__(self) -> _Progress:
        return self

    def __next__(self) -> Any:
        value, error, self.value, self.error = self.value, self.error, None, None
        try:
            return self._flow.send(value) if error is None else self._flow.throw(error)
        except StopIteration as stop:
            self.result = stop.value
            raise
        except StreamClosed:
            if not self.closed:
                raise
            raise StopIteration from None

    def close(self) -> None:
        """Let the flow know that nobody reads it any more."""
        self.error, self.closed = StreamClosed(), True


def run(flow: Flow[T]) -> T:
    """Run ``flow`` and give its return value."""
    progress = _Progress(flow)
    for step in progress:
        if hasattr(step, "arun"):
            try:
                progress.value = step.run()
            except BaseException as error:
                progress.error = error
    return progress.result  # type: ignore[no-any-return]


async def arun(flow: Flow[T]) -> T:
    """:func:`run` for asynchronous callers."""
    progress = _Progress(flow)
    for step in progress:
        if hasattr(step, "arun"):
            try:
                progress.value = await step.arun()
            except BaseException as error:
                progress.error = error
    return progress.result  # type: ignore[no-any-return]


def stream(flow: Flow[Any]) -> Iterator[Any]:
    """Run ``flow`` and yield what it emits, its return value last."""
    progress, last = _Progress(flow), END
    for step in progress:
        try:
            if hasattr(step, "arun"):
                progress.value = step.run()
            elif not progress.closed:
                last = step
                yield step
        except GeneratorExit:
            progress.close()
        except BaseException as error:
            progress.error = error
    if not progress.closed and progress.result is not last:
        yield progress.result


async def astream(flow: Flow[Any]) -> AsyncIterator[Any]:
    """:func:`stream` for asynchronous callers."""
    progress, last = _Progress(flow), END
    for step in progress:
        try:
            if hasattr(step, "arun"):
                progress.value = await step.arun()
            elif not progress.closed:
                last = step
                yield step
        except GeneratorExit:
            progress.close()
        except BaseException as error:
            progress.error = error
    if not progress.closed and progress.result is not last:
        yield progress.result
