"""LMDeploy's engine in this process: starting it, generating on its own event loop, errors in lagent's terms."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import threading
import weakref
from collections.abc import AsyncGenerator, Iterator
from typing import Any

from lagent.errors import ContextOverflowError, EngineError, ModelConfigurationError
from lagent_engines import Bridge

__all__ = ["Engine"]

_STOPPED = "LMDeploy's engine has stopped and answers nothing any more: see the cause or its log, and restart() the model"


class Engine:
    """A running LMDeploy pipeline.

    Args:
        path: the model's folder or name.
        options: further arguments of ``lmdeploy.pipeline``.

    Attributes:
        bridge: leads to the event loop of the pipeline, where everything runs.
        session_len: tokens that one request may take, prompt and answer.
        stop_token_ids: the tokens that end the model's turns by its chat template.

    Raises:
        ModelConfigurationError: LMDeploy cannot load the model.
    """

    def __init__(self, path: str, **options: Any) -> None:
        from lmdeploy import pipeline

        try:
            self._pipeline: Any = pipeline(path, **options)
        except Exception as error:  # whatever a model, a configuration, a driver or a lack of memory leads to
            raise ModelConfigurationError(f"LMDeploy cannot load {path!r}: {type(error).__name__}: {error}") from error
        self._engine: Any = self._pipeline.async_engine
        self._running: set[asyncio.Task[Any]] = set()
        self._dropped = weakref.finalize(self, _close_elsewhere, self._pipeline, self._running)
        self._dropped.atexit = False
        atexit.register(_close_alive, weakref.ref(self))  # before LMDeploy's own, which stops the loop under what runs
        self.bridge = Bridge(self._pipeline.internal_thread.loop)
        # The PyTorch engine's cache may be too small for the context window of the model.
        self.session_len: int = min(
            self._engine.session_len, getattr(self._engine.engine, "max_session_len", None) or self._engine.session_len
        )
        self.stop_token_ids: list[int] = list(self._engine.stop_words or ())

    @property
    def running(self) -> int:
        """How many requests the engine works on, as it counts them itself."""
        metrics = self.bridge.run(self._engine.get_schedule_metrics())
        return int(metrics.active_seqs + metrics.waiting_seqs)

    async def generate(self, prompt_ids: list[int], config: Any, adapter: str | None = None) -> AsyncGenerator[Any, None]:
        """Generate, on the event loop of the pipeline.

        Args:
            prompt_ids: the tokens of the prompt.
            config: a ``GenerationConfig``.
            adapter: the name of a LoRA adapter.

        Yields:
            Increments as LMDeploy's ``GenOut``, the last with a ``finish_reason``.

        Raises:
            ModelError: the request failed.
        """
        task = asyncio.current_task()
        if task is not None:
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        session = self._engine.session_mgr.get()  # with an id that no other has, whatever the user's sessions are called
        try:
            with self._errors(len(prompt_ids)):
                health = await self._engine.engine.get_health_status()
                if not health["alive"]:  # a request would take seconds to find out
                    raise EngineError(_STOPPED) from self._cause_of_death()
                request = await self._engine.preprocess(
                    None, session, gen_config=config, input_ids=prompt_ids, adapter_name=adapter
                )
                async with contextlib.aclosing(_stoppable(self._engine.generate(request), session)) as outputs:
                    async for out in outputs:
                        yield out
        finally:
            self._engine.session_mgr.remove(session)

    def close(self) -> None:
        """End what is running, and the engine."""
        if self._dropped.detach() is not None:
            _close(self._pipeline, self._running)

    @contextlib.contextmanager
    def _errors(self, prompt_tokens: int) -> Iterator[None]:
        """Raise LMDeploy's errors as lagent's; for their codes see ``lmdeploy.serve.core.exceptions.ErrorCode``."""
        from lmdeploy.serve.core.exceptions import RequestError

        try:
            yield
        except RequestError as error:
            if error.code == "context_length_exceeded":
                raise ContextOverflowError(f"the prompt of {prompt_tokens} tokens is too long for LMDeploy: {error}") from error
            if error.code in ("invalid_request", "unsupported_feature", "preprocess_failed"):
                raise ModelConfigurationError(f"LMDeploy refused the request: {error}") from error
            if error.code == "engine_unavailable":
                raise EngineError(_STOPPED) from (self._cause_of_death() or error)
            raise EngineError(f"LMDeploy failed: {error}") from error

    def _cause_of_death(self) -> BaseException | None:
        """What the main loop of the PyTorch engine ended with; turbomind does not tell."""
        task = getattr(getattr(self._engine.engine, "req_manager", None), "_loop_task", None)
        return task.exception() if task is not None and task.done() and not task.cancelled() else None


def _close(pipeline: Any, running: set[asyncio.Task[Any]]) -> None:
    """End what is running, and the engine."""

    async def cancel() -> None:
        tasks = tuple(running)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    loop = pipeline.internal_thread.loop
    if not loop.is_closed():
        asyncio.run_coroutine_threadsafe(cancel(), loop).result()
    pipeline.close()


def _close_elsewhere(*args: Any) -> None:
    """:func:`_close` for the garbage collector, which may run anywhere, also in the thread that is waited for."""
    threading.Thread(target=_close, args=args, name="lagent-lmdeploy-close", daemon=True).start()


def _close_alive(reference: weakref.ref[Engine]) -> None:
    if (engine := reference()) is not None:
        engine.close()


async def _stoppable(outputs: AsyncGenerator[Any, None], session: Any) -> AsyncGenerator[Any, None]:
    """Yield ``outputs``; closing, or cancelling who waits, ends the request of ``session`` in the engine first.

    LMDeploy's own generators must not be cancelled while they wait for a token: they swallow the cancellation, and the engine may go on
    to count a reader who never comes back, for whom its loop then spins for ever. So the request is aborted, and they end by themselves.
    """
    read: asyncio.Queue[Any] = asyncio.Queue()

    async def read_all() -> None:
        try:
            async for out in outputs:
                read.put_nowait(out)
        finally:
            read.put_nowait(None)

    reader = asyncio.ensure_future(read_all())
    try:
        while (out := await read.get()) is not None:
            yield out
        await reader  # which may have failed
    finally:
        if not reader.done():
            if session._handle is None:
                reader.cancel()  # it waits for its turn, and the engine does not know of it
            else:
                await session.async_abort()
            with contextlib.suppress(Exception, asyncio.CancelledError):
                await reader
