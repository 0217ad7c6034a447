"""What models have in common that pass requests on to other models."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

import attrs

from lagent import flow, registry
from lagent.errors import ModelConfigurationError
from lagent.flow import END, Call, Flow, Stream
from lagent.llms import AsyncLLMMixin, BaseLLM, Capabilities, ModelRequest
from lagent.llms.adapt import as_chunk, as_response, capabilities_of, model_call
from lagent.schema import ModelChunk, ModelResponse, SessionId

__all__ = ["AsyncWrapper", "Wrapper", "describe", "given"]


class Wrapper(BaseLLM):
    """Base of models that pass requests on.

    Args:
        models: models, or what :func:`lagent.registry.create` makes models of.
    """

    def __init__(self, models: Sequence[Any]) -> None:
        kind = "llms" if self.blocking else "async_llms"
        self.models = [registry.create(kind, model) for model in models]
        if not self.models:
            raise ModelConfigurationError(f"{type(self).__name__} needs a model to pass requests on to")
        self.capabilities = reduce(_both, map(capabilities_of, self.models))
        unset: dict[str, Any] = dict.fromkeys(("max_new_tokens", "top_p", "top_k", "temperature", "repetition_penalty"))
        super().__init__(" | ".join(map(describe, self.models)), **unset)

    def scrub(self, text: str) -> str:
        """``text`` without the keys of the models."""
        for model in self.models:
            text = model.scrub(text) if hasattr(model, "scrub") else text
        return text

    # For subclasses

    def _answering(self, request: ModelRequest) -> Flow[ModelResponse]:
        """Answer ``request`` whole."""
        raise NotImplementedError

    def _streaming(self, request: ModelRequest) -> Flow[ModelChunk]:
        """Emit the answer to ``request``, and give its last chunk."""
        raise NotImplementedError

    @staticmethod
    def _ask(model: Any, request: ModelRequest) -> Flow[ModelResponse]:
        return as_response((yield _call(model, "chat", request)))

    @staticmethod
    def _ask_streaming(model: Any, request: ModelRequest, see: Callable[[ModelChunk], None]) -> Flow[ModelChunk]:
        """Emit the answer of ``model``; ``see`` sees each chunk first."""
        chunk, text, source = ModelChunk(), "", Stream((yield _call(model, "stream_chat", request)), blocking=_blocks(model))
        try:
            while (item := (yield source.next())) is not END:
                chunk = as_chunk(item, text)
                text += chunk.content
                see(chunk)
                yield chunk
        finally:
            yield source.close()
        return chunk

    def _each(self, method: str, *args: Any) -> Flow[None]:
        for model in self.models:
            if hasattr(model, method):
                yield Call(getattr(model, method), args, blocking=_blocks(model))

    # Synchronous

    def _complete(self, request: ModelRequest) -> Any:
        return flow.run(self._answering(request))

    def _stream(self, request: ModelRequest) -> Iterator[ModelChunk]:
        return flow.stream(self._streaming(request))

    def close_session(self, session_id: SessionId) -> Any:
        flow.run(self._each("close_session", session_id))

    def close(self) -> Any:
        flow.run(self._each("close"))


class AsyncWrapper(AsyncLLMMixin, Wrapper):
    """:class:`Wrapper` for asynchronous callers."""

    async def _complete(self, request: ModelRequest) -> Any:
        return await flow.arun(self._answering(request))

    def _stream(self, request: ModelRequest) -> AsyncIterator[ModelChunk]:  # type: ignore[override]
        return flow.astream(self._streaming(request))

    async def close_session(self, session_id: SessionId) -> None:
        await flow.arun(self._each("close_session", session_id))

    async def close(self) -> None:
        await flow.arun(self._each("close"))


def describe(model: Any) -> str:
    """A name of ``model`` for people."""
    return str(getattr(model, "path", "") or type(model).__name__)


def given(values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of ``values`` that say something: neither ``None`` nor an empty list."""
    return {name: value for name, value in values.items() if value is not None and value != []}


def _blocks(model: Any) -> bool:
    return bool(getattr(model, "blocking", True))


def _call(model: Any, method: str, request: ModelRequest) -> Call:
    asked = {name: getattr(request, name) for name in ("tools", "tool_choice", "output_schema")}
    options = given(request.params | asked)
    if request.prompt is None:
        return model_call(model, method, request.messages, request.session_id, options)
    return model_call(model, {"chat": "generate"}.get(method, "stream_generate"), request.prompt, request.session_id, options)


def _both(one: Capabilities, other: Capabilities) -> Capabilities:
    return Capabilities(*(mine and its for mine, its in zip(attrs.astuple(one), attrs.astuple(other), strict=True)))
