"""vLLM in this process for asynchronous callers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from typing import Any

from lagent.errors import EngineError
from lagent_engines import Bridge, BridgedStream, Piece
from lagent_vllm import errors
from lagent_vllm.engine import BaseEngine
from lagent_vllm.processes import Log, processes_of
from lagent_vllm.requests import EngineRequest, Outputs

__all__ = ["AsyncEngine"]


class AsyncEngine(BaseEngine):
    """``AsyncLLM`` on an event loop of its own, for callers on any loop or thread.

    Args:
        arguments: vLLM's engine arguments.
        adapters: ``LoRARequest`` of the adapters to load, by name.

    Raises:
        ModelError: the engine does not start.
    """

    def __init__(self, arguments: Mapping[str, Any], adapters: Mapping[str, Any]) -> None:
        self._log = Log()
        self._running: dict[str, Any] = {}  # the task of each request
        self._closed = False
        self._engine = None
        self._bridge = Bridge()
        try:
            with errors.starting(arguments, self._log):
                self._bridge.run(self._start(arguments, adapters))
        except BaseException:
            self._bridge.close()
            raise

    async def _start(self, arguments: Mapping[str, Any], adapters: Mapping[str, Any]) -> None:
        from vllm import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        self._engine = AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments))
        try:
            for adapter in adapters.values():
                await self._engine.add_lora(adapter)
        except BaseException:
            self._engine.shutdown()
            raise

    def generate(self, request: EngineRequest) -> BridgedStream:
        """Hand ``request`` to the engine.

        Raises:
            EngineError: the engine is dead.
        """
        self._check()
        if self._engine.errored:
            raise errors.death(self._engine.dead_error, self._log)
        return self._bridge.stream(lambda: self._pieces(request))

    async def _pieces(self, request: EngineRequest) -> AsyncGenerator[Piece, None]:
        self._check()
        made, finished = Outputs(request), False
        self._running[request.id] = asyncio.current_task()
        try:
            with errors.answering(self._log):
                generated = self._engine.generate(
                    request.prompt, request.sampling_params, request.id, lora_request=request.lora, priority=request.priority
                )
                async with aclosing(generated) as outputs:
                    async for output in outputs:
                        finished = output.finished
                        self._check()
                        yield made.piece(output)
        finally:
            del self._running[request.id]
            if not finished and not self._closed:
                # vLLM does so itself, but not for a request that is cancelled while it is being handed over.
                with suppress(Exception):
                    await self._engine.abort(request.id)

    def _check(self) -> None:
        if self._closed:
            raise EngineError("the engine was closed: ask again, which starts it anew")

    def close(self) -> None:
        """Stop the engine. Who waits for it gets an :class:`EngineError`."""
        if _running_loop() is self._bridge.loop:
            # Garbage collection may run there, and would wait for itself.
            threading.Thread(target=self.close).start()
            return
        if self._closed:
            return
        self._bridge.run(self._stop())
        self._engine = None
        self._bridge.close()
        self._log.close()

    async def _stop(self) -> None:
        self._closed = True
        with suppress(Exception):  # the engine may be dead
            await self._engine.abort(list(self._running))
        await asyncio.gather(*self._running.values(), return_exceptions=True)
        processes = processes_of(self._engine)
        self._engine.shutdown()
        for process in processes:
            process.join()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
