"""The interface of models, synchronous and asynchronous, from one implementation."""

from __future__ import annotations

import itertools
import math
import random
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, ClassVar

import attrs

from lagent import flow
from lagent.errors import (
    EngineError,
    ModelConfigurationError,
    ModelConnectionError,
    ModelError,
    ModelTimeoutError,
    RateLimitError,
    UnsupportedCapabilityError,
)
from lagent.flow import END, Call, Flow, Gather, Sleep, Stream
from lagent.llms.adapt import as_response
from lagent.llms.meta_template import LMTemplateParser
from lagent.llms.request import Capabilities, Message, ModelRequest, is_image
from lagent.schema import ModelChunk, ModelResponse, ResponseBuilder, SessionId

__all__ = ["AsyncBaseLLM", "AsyncLLMMixin", "BaseLLM"]

_RETRIED = (RateLimitError, ModelConnectionError, ModelTimeoutError, EngineError)
_LONGEST_WAIT = 120.0


class BaseLLM:
    """Base of models.

    A backend implements :meth:`_complete`, :meth:`_stream`, or both (each is derived from the other), declares its
    :attr:`capabilities`, and gets ``chat``, ``stream_chat``, ``generate`` and ``stream_generate`` with checks, templates and retries.
    A model in lagent's own style that overrides ``generate`` or ``chat`` works as well.

    Args:
        path: the model's path or name.
        tokenizer_only: accepted for lagent's sake.
        template_parser: makes a prompt of messages by ``meta_template``.
        meta_template: the chat format to use instead of the model's own; see :class:`LMTemplateParser`.
        max_new_tokens, top_p, top_k, temperature, repetition_penalty, stop_words: defaults of the sampling parameters.
        retries: how often a request that failed for a passing reason is sent again; ``math.inf`` for without end.
        gen_params: defaults of further sampling parameters.
    """

    capabilities: Capabilities = Capabilities()
    blocking: ClassVar[bool] = True
    """Whether calls wait for something, so that an asynchronous agent has to make them in a thread."""
    sampling_parameters: ClassVar[frozenset[str] | None] = None
    """The names of the sampling parameters that the model knows; ``None`` if it takes any."""

    def __init__(
        self,
        path: str = "",
        tokenizer_only: bool = False,
        template_parser: Callable[[Any], LMTemplateParser] = LMTemplateParser,
        meta_template: Sequence[Mapping[str, Any]] | None = None,
        *,
        max_new_tokens: int | None = 512,
        top_p: float | None = 0.8,
        top_k: int | None = 40,
        temperature: float | None = 0.8,
        repetition_penalty: float | None = 1.0,
        stop_words: Sequence[str] | str | None = None,
        retries: float = 0,
        **gen_params: Any,
    ) -> None:
        self.path = path
        self.tokenizer_only = tokenizer_only
        self.meta_template = meta_template
        self.template_parser = template_parser(meta_template)
        self.retries = retries
        self.gen_params: dict[str, Any] = {
            "max_new_tokens": max_new_tokens,
            "top_p": top_p,
            "top_k": top_k,
            "temperature": temperature,
            "repetition_penalty": repetition_penalty,
            "stop_words": [stop_words] if isinstance(stop_words, str) else list(stop_words or ()),
        }
        self.gen_params = self.update_gen_params(**gen_params)

    @property
    def chat_template(self) -> str | None:
        """The model's own chat template (Jinja), if it can tell; ``output_format="auto"`` chooses the parser by it."""
        return None

    # For backends

    def _complete(self, request: ModelRequest) -> Any:
        """Answer ``request`` whole: a :class:`ModelResponse`, or an awaitable of one in an asynchronous model."""
        if not self._overrides("generate"):
            raise NotImplementedError(f"{type(self).__name__} implements neither _complete, _stream nor generate")
        prompt = request.prompt if request.prompt is not None else self.template_parser(request.messages)
        return self.generate(prompt, **request.params)

    def _stream(self, request: ModelRequest) -> Any:
        """Answer ``request`` as an iterator (asynchronous in an asynchronous model) of :class:`ModelChunk`.

        Closing the iterator stops the generation.
        """
        raise NotImplementedError

    def close_session(self, session_id: SessionId) -> Any:
        """Release what the model holds for a session."""

    def close(self) -> Any:
        """Release the engine or connection."""

    # For users

    def chat(self, inputs: Any, session_id: Any = 0, **options: Any) -> Any:
        """Answer a conversation.

        Args:
            inputs: messages in OpenAI's form, or a list of such conversations (answered as a batch).
            session_id: whose request it is.
            options: ``tools``, ``tool_choice``, ``output_schema`` (see :class:`ModelRequest`) and sampling parameters.

        Returns:
            The :class:`ModelResponse`, or a list of them for a batch.

        Raises:
            ModelError: see :mod:`lagent.errors`.
        """
        return flow.run(self._answer(inputs, session_id, options))

    def stream_chat(self, inputs: Any, session_id: Any = 0, **options: Any) -> Any:
        """:meth:`chat` as an iterator of :class:`ModelChunk`; closing it stops the generation."""
        return flow.stream(self._answer_streaming(self._request(inputs, session_id, options)))

    def generate(self, inputs: Any, session_id: Any = 0, **options: Any) -> Any:
        """Continue a raw text (or each of a list of texts) without any chat template."""
        return flow.run(self._answer(inputs, session_id, options))

    def stream_generate(self, inputs: str, session_id: Any = 0, **options: Any) -> Any:
        """:meth:`generate` as an iterator of :class:`ModelChunk`."""
        return flow.stream(self._answer_streaming(self._request(inputs, session_id, options)))

    def update_gen_params(self, **params: Any) -> dict[str, Any]:
        """The model's sampling parameters with ``params`` on top.

        Raises:
            ModelConfigurationError: the model does not know one of the names.
        """
        if self.sampling_parameters is not None and (unknown := params.keys() - self.sampling_parameters):
            raise ModelConfigurationError(
                f"{type(self).__name__} knows no sampling parameter {', '.join(map(repr, sorted(unknown)))}; "
                f"it knows {', '.join(sorted(self.sampling_parameters))}"
            )
        if isinstance(params.get("stop_words"), str):
            params["stop_words"] = [params["stop_words"]]
        return {**self.gen_params, **params}

    # One implementation for both colours

    def _request(self, inputs: Any, session_id: SessionId, options: dict[str, Any]) -> ModelRequest:
        """Check what is asked against what the model can do, before anything is sent."""
        options = dict(options)
        known = {name: options.pop(name, None) for name in ("tools", "tool_choice", "output_schema")}
        for needed, wanted in (
            ("tools", known["tools"]),
            ("json_schema", known["output_schema"]),
            ("grammar", options.get("grammar")),
            ("images", not self.capabilities.images and _new_image(inputs)),
        ):
            if wanted and not getattr(self.capabilities, needed):
                raise UnsupportedCapabilityError(
                    f"{type(self).__name__} ({self.path or 'no path'}) does not support {needed!r}: leave it out, choose another "
                    "model, or let a parser do it from the text (output_format=)"
                )
        request = ModelRequest(session_id=session_id, params=self.update_gen_params(**options), **known)
        if isinstance(inputs, str):
            if not self.capabilities.raw_prompts:
                raise UnsupportedCapabilityError(f"{type(self).__name__} takes messages only: call chat, not generate")
            request.prompt = inputs
            return request
        request.messages = inputs if self.capabilities.system_role else _without_system(inputs)
        request.prompt = self._rendered(request.messages)
        return request

    def _rendered(self, messages: list[Message]) -> str | None:
        """The text of ``messages`` by the ``meta_template``, if there is one and the model takes plain text."""
        return self.template_parser(messages) if self.meta_template and self.capabilities.raw_prompts else None

    @classmethod
    def _overrides(cls, method: str) -> bool:
        """Whether a backend has its own ``method``."""
        return getattr(cls, method) not in (getattr(BaseLLM, method), getattr(AsyncLLMMixin, method, None))

    def _answer(self, inputs: Any, session_id: Any, options: dict[str, Any]) -> Flow[Any]:
        if isinstance(inputs, (str, Mapping)) or not inputs or isinstance(inputs[0], Mapping):
            return (yield from self._retrying(self._request(inputs, session_id, options)))
        ids = session_id if isinstance(session_id, (list, tuple)) else [session_id] * len(inputs)
        requests = [self._request(one, id_, options) for one, id_ in zip(inputs, ids, strict=True)]
        return (yield from self._batch(requests))

    def _batch(self, requests: list[ModelRequest]) -> Flow[list[ModelResponse]]:
        """Answer several requests; an engine with batches of its own overrides this."""
        responses: list[ModelResponse] = yield Gather([self._retrying(request) for request in requests])
        return responses

    def _retrying(self, request: ModelRequest) -> Flow[ModelResponse]:
        attempt = 0
        while True:
            try:
                if self._overrides("_complete") or not self._overrides("_stream"):
                    return as_response((yield Call(self._complete, (request,))))
                builder = ResponseBuilder()
                yield from self._try_once(request, builder)  # nobody reads what it emits
                return builder.response()
            except _RETRIED as error:
                yield from self._pause(attempt, error)
            attempt += 1
            request = attrs.evolve(request, request_id=uuid.uuid4().hex)

    def _answer_streaming(self, request: ModelRequest) -> Flow[ModelChunk]:
        """Emit the chunks. A retry happens only as long as nothing was emitted."""
        attempt = 0
        while True:
            builder = ResponseBuilder()
            try:
                return (yield from self._try_once(request, builder))
            except _RETRIED as error:
                if builder.started:
                    raise
                yield from self._pause(attempt, error)
            attempt += 1
            request = attrs.evolve(request, request_id=uuid.uuid4().hex)

    def _try_once(self, request: ModelRequest, builder: ResponseBuilder) -> Flow[ModelChunk]:
        """Emit the chunks of one try, the last of which says why the answer ended, and put them into ``builder``."""
        if not self._overrides("_stream"):
            chunk = as_response((yield Call(self._complete, (request,)))).chunk()
            chunk.finish_reason = chunk.finish_reason or "stop"
            return builder.add(chunk)
        source, last = Stream(self._stream(request)), None
        try:
            while (item := (yield source.next())) is not END:
                last = builder.add(item)
                yield last
        finally:
            yield source.close()
        if last is None or not builder.finished:
            last = builder.add(ModelChunk(finish_reason="stop"))
        return last

    def _pause(self, attempt: int, error: ModelError) -> Flow[None]:
        """Wait before the next try: as long as the server says, else exponentially longer with full jitter.

        A server that asks for more than two minutes is not waited for, unless retries are without end.
        """
        asked = getattr(error, "retry_after", None)
        if attempt >= self.retries or (asked is not None and asked > _LONGEST_WAIT and self.retries < math.inf):
            raise error
        yield Sleep(asked if asked is not None else random.uniform(0, min(60.0, 0.5 * 2 ** min(attempt, 7))))


class AsyncLLMMixin:
    """Turns the methods of a model into coroutine functions and async generators; goes before the base class."""

    blocking: ClassVar[bool] = False

    async def chat(self: Any, inputs: Any, session_id: Any = 0, **options: Any) -> Any:
        """See :meth:`BaseLLM.chat`."""
        return await flow.arun(self._answer(inputs, session_id, options))

    def stream_chat(self: Any, inputs: Any, session_id: Any = 0, **options: Any) -> AsyncIterator[ModelChunk]:
        """See :meth:`BaseLLM.stream_chat`."""
        return flow.astream(self._answer_streaming(self._request(inputs, session_id, options)))

    async def generate(self: Any, inputs: Any, session_id: Any = 0, **options: Any) -> Any:
        """See :meth:`BaseLLM.generate`."""
        return await flow.arun(self._answer(inputs, session_id, options))

    def stream_generate(self: Any, inputs: str, session_id: Any = 0, **options: Any) -> AsyncIterator[ModelChunk]:
        """See :meth:`BaseLLM.stream_generate`."""
        return flow.astream(self._answer_streaming(self._request(inputs, session_id, options)))


class AsyncBaseLLM(AsyncLLMMixin, BaseLLM):
    """Base of asynchronous models: :meth:`_complete` is a coroutine function, :meth:`_stream` an async generator."""


def _new_image(inputs: Any) -> bool:
    """Whether there is an image behind the last answer; those before it were checked with the turn that brought them."""
    new = (
        itertools.takewhile(lambda message: message["role"] != "assistant", reversed(inputs)) if isinstance(inputs, list) else ()
    )
    parts = (part for message in new if isinstance(message.get("content"), list) for part in message["content"])
    return any(is_image(part) for part in parts if isinstance(part, Mapping))


def _without_system(messages: list[Message]) -> list[Message]:
    system = [str(message["content"]) for message in messages if message["role"] == "system"]
    rest = [message for message in messages if message["role"] != "system"]
    if system and rest and isinstance(rest[0]["content"], str):
        rest[0] = {**rest[0], "content": "\n\n".join([*system, rest[0]["content"]])}
    elif system:
        rest.insert(0, {"role": "user", "content": "\n\n".join(system)})
    return rest
