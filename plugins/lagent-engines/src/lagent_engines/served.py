"""The base of models behind the server of an engine, somebody else's or their own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import Any, ClassVar, TypeVar

import attrs

from lagent.errors import EngineError, ModelConfigurationError, ModelConnectionError, ModelError, ModelTimeoutError
from lagent.flow import Call, Flow
from lagent.llms import AsyncLLMMixin, ModelRequest
from lagent.schema import ModelChunk, ModelResponse
from lagent.threads import in_thread
from lagent_engines.server import ServerProcess
from lagent_openai import DIALECTS, GPTAPI
from lagent_openai.endpoints import Endpoints

__all__ = ["AsyncServedMixin", "ServedModel"]

T = TypeVar("T")

_NOTICE = 1.0
"""Seconds within which the end of a server is noticed after a request to it has failed."""


class ServedModel(GPTAPI):
    """A model behind a server, which runs already, or which this object starts and owns.

    Beside the sampling parameters of the server's dialect, a request takes ``lora``, the name of an adapter that the server has.

    Args:
        model_type: the model's name at the server.
        url: the root URL of a running server, ``http://host:port``.
        server: a server of its own, instead.
        key: the server's key.
        options: see :class:`lagent_openai.GPTAPI`; the sampling parameters have lagent's defaults.

    Attributes:
        server: the own server, if there is one; it offers ``pid``, ``log`` and ``tail()``.
        key: the server's key, for other clients.
    """

    engine: ClassVar[str]
    """The name of the server's dialect, one of :data:`lagent_openai.DIALECTS`."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "engine" in vars(cls):
            cls.sampling_parameters = frozenset(DIALECTS[cls.engine].parameters) | {"extra_body", "lora"}

    def __init__(
        self,
        model_type: str,
        *,
        url: str | None = None,
        server: ServerProcess | None = None,
        key: str | None = None,
        top_p: float | None = 0.8,
        top_k: int | None = 40,
        temperature: float | None = 0.8,
        repetition_penalty: float | None = 1.0,
        **options: Any,
    ) -> None:
        self.server = server
        self.key = key
        if server is not None:
            options.setdefault("proxies", {"http": None})  # none is between us and a server of this machine
        self._proxies = options.get("proxies")
        self._url = url
        super().__init__(
            model_type,
            key=key,
            api_base=url or "http://127.0.0.1",
            dialect=self.engine,
            top_p=top_p,
            top_k=top_k,
            temperature=temperature,
            repetition_penalty=repetition_penalty,
            **options,
        )
        self.capabilities = attrs.evolve(self.capabilities, prefix_caching=True)

    @property
    def url(self) -> str | None:
        """The root URL of the server; the own server has one once it was started."""
        return self._url

    def close(self) -> Any:
        """Close the connections and stop the own server; a later request starts it again."""
        super().close()
        if self.server is not None:
            self.server.close()

    def restart(self) -> Any:
        """Start the own server anew, for example after it was killed.

        Raises:
            ModelConfigurationError: the server belongs to somebody else.
        """
        if self.server is None:
            raise ModelConfigurationError(f"the server at {self._url} is not this model's own: restart it where it was started")
        self.server.restart()
        self._connect()

    # For subclasses

    def _prepared(self, request: ModelRequest) -> ModelRequest:
        """``request`` as it is sent."""
        params = dict(request.params)
        if (adapter := params.pop("lora", None)) is not None:  # servers know adapters as models
            params["extra_body"] = {"model": adapter, **(params.get("extra_body") or {})}
        return attrs.evolve(request, params=params)

    async def _abort(self, request: ModelRequest) -> None:
        """Tell the engine that nobody waits for the answer any more, where closing the connection is not enough."""

    # From request to answer

    def _retrying(self, request: ModelRequest) -> Flow[ModelResponse]:
        yield from self._ready()
        return (yield from super()._retrying(request))

    def _answer_streaming(self, request: ModelRequest) -> Flow[ModelChunk]:
        yield from self._ready()
        return (yield from super()._answer_streaming(request))

    def _pause(self, attempt: int, error: ModelError) -> Flow[None]:
        if self.server is not None and not self.server.running:
            raise error  # it does not come back by itself
        yield from super()._pause(attempt, error)

    async def _complete(self, request: ModelRequest) -> ModelResponse:
        async with self._watching(request):
            return await super()._complete(self._prepared(request))

    async def _stream(self, request: ModelRequest) -> AsyncIterator[ModelChunk]:
        source: Any = super()._stream(self._prepared(request))
        try:
            async with self._watching(request):
                async for chunk in source:
                    yield chunk
        finally:
            await source.aclose()

    @asynccontextmanager
    async def _watching(self, request: ModelRequest) -> AsyncIterator[None]:
        """Say what became of the server where a request fails, and let the engine know where it is given up."""
        try:
            yield
        except (asyncio.CancelledError, GeneratorExit):
            await self._abort(request)
            raise
        except (ModelTimeoutError, ModelConnectionError, EngineError) as error:
            if isinstance(error, ModelTimeoutError):
                await self._abort(request)
            server = self.server
            ended = await in_thread(lambda: server.failure(within=_NOTICE)) if server is not None else None
            if ended is None:
                raise
            raise ended from error

    def _ready(self) -> Flow[None]:
        """Start the own server unless it runs."""
        if self.server is not None and not (self.server.running and self._url == self.server.url):
            yield Call(self._connect) if self.blocking else Call(_in_daemon_thread, (self._connect,))

    def _connect(self) -> None:
        assert self.server is not None
        self.server.start()
        if self._url != self.server.url:
            self._endpoints = Endpoints(self.server.url, self.key, None, self.timeout, self._proxies)
            self._url = self.server.url


def _in_daemon_thread(function: Callable[[], T]) -> Future[T]:
    """Run ``function`` in a thread that an interpreter which ends does not wait for, as starting an engine takes long."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="lagent-server-start", daemon=True).start()
    return future


class AsyncServedMixin(AsyncLLMMixin):
    """Makes a :class:`ServedModel` asynchronous; goes before it."""

    async def close(self: Any) -> None:
        """See :meth:`ServedModel.close`."""
        await self._endpoints.aclose()
        if self.server is not None:
            await in_thread(self.server.close)

    async def restart(self: Any) -> None:
        """See :meth:`ServedModel.restart`."""
        await in_thread(lambda: ServedModel.restart(self))
