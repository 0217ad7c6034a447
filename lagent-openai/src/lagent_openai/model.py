"""The models ``GPTAPI`` and ``AsyncGPTAPI``."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import attrs
import httpx2
import openai
from attrs import define

from lagent.errors import AuthenticationError, ModelConfigurationError, ModelConnectionError, ModelError, RateLimitError
from lagent.flow import Call
from lagent.llms import AsyncLLMMixin, BaseLLM, Capabilities, ModelRequest
from lagent.schema import ModelChunk, ModelResponse
from lagent_openai.chat import CHAT, COMPLETIONS, Api
from lagent_openai.dialects import DIALECTS, Dialect, dialect_named, dialect_of
from lagent_openai.endpoints import OPENAI_API_BASE, Endpoint, Endpoints, Key
from lagent_openai.limits import Clock, Limiter, TimeLimits
from lagent_openai.responses import RESPONSES

__all__ = ["GPTAPI", "AsyncGPTAPI"]

Message = dict[str, Any]

_ROLES = ({"role": "environment", "api_role": "system"},)
"""What lagent makes of roles where no ``meta_template`` says otherwise."""

_UNREADABLE = (ValueError, LookupError, TypeError, AttributeError)
"""What reading an answer raises that does not have the documented form."""


class GPTAPI(BaseLLM):
    """A model behind OpenAI or an OpenAI-compatible server.

    Args:
        model_type: the model's name at the server.
        retry: how often a request that failed for a passing reason is sent again; ``math.inf`` for without end.
        json_mode: ask for any JSON object as the answer (``output_schema`` asks for one of a given form).
        key: the key, ``"ENV"`` for the environment variable ``OPENAI_API_KEY``, or a function, plain or asynchronous, that returns
            one. Of a list, keys are used in turn; one that is rejected or rate-limited is passed over.
        org: OpenAI organisation, or one for each key.
        meta_template: what to make of roles: a list of ``{"role": "environment", "api_role": "system"}``, each with an optional
            ``begin`` and ``end`` around the text. Without ``api_role``, a chat format as text (see
            :class:`lagent.llms.LMTemplateParser`), sent to the server's Completions API.
        api_base: base URL of the server, or one for each key; the full URL of ``/chat/completions`` is understood too. Without it,
            the environment variable ``OPENAI_BASE_URL``, or OpenAI.
        proxies: proxy URLs by scheme, ``{"https": "http://…"}``.
        api: ``"chat"`` (Chat Completions), ``"responses"``, or ``"auto"``: Chat Completions until the server says that the model
            is to be had by the Responses API only.
        dialect: the kind of server (see :data:`DIALECTS`); ``"auto"`` asks the server once.
        timeout: see :class:`TimeLimits`; a number limits the whole request.
        max_concurrency: how many requests may run at once.
        max_new_tokens: the most tokens of an answer; ``None`` leaves it to the server, as for any sampling parameter not given.
        gen_params: sampling parameters under lagent's names (see :attr:`Dialect.parameters`); ``extra_body`` holds fields of the
            request's body that are sent as they are.

    Raises:
        ModelConfigurationError: an argument cannot be used.
    """

    is_api = True

    def __init__(
        self,
        model_type: str = "gpt-3.5-turbo",
        retry: float = 2,
        json_mode: bool = False,
        key: Key | Sequence[Key] = "ENV",
        org: str | Sequence[str] | None = None,
        meta_template: Sequence[Mapping[str, Any]] | None = None,
        api_base: str | Sequence[str] | None = None,
        proxies: Mapping[str, str] | None = None,
        *,
        api: Literal["auto", "chat", "responses"] = "auto",
        dialect: str = "auto",
        timeout: TimeLimits | Mapping[str, float | None] | float | None = None,
        max_concurrency: int | None = None,
        max_new_tokens: int | None = 512,
        **gen_params: Any,
    ) -> None:
        if api not in ("auto", "chat", "responses"):
            raise ModelConfigurationError(f"api must be 'auto', 'chat' or 'responses', not {api!r}")
        self.model_type = model_type
        self.timeout = TimeLimits.of(timeout)
        self._api = api
        self._limiter = Limiter(max_concurrency)
        self._endpoints = Endpoints(api_base, key, org, self.timeout, proxies)
        self._dialect = None if dialect == "auto" else dialect_named(dialect)
        self._dialects: dict[Endpoint, Dialect] = {}  # as the servers told
        known = None if self._dialect is None else self._dialect.parameters
        self.capabilities = Capabilities(
            tools=True,
            json_schema=True,
            grammar=known is None or "grammar" in known,
            streaming=True,
            images=True,
            logprobs=known is None or "logprobs" in known,
            raw_prompts=True,
        )
        self._roles = {item["role"]: item for item in meta_template or _ROLES if "api_role" in item}
        if json_mode:
            gen_params.setdefault("response_format", {"type": "json_object"})
        unset = dict.fromkeys(("top_p", "top_k", "temperature", "repetition_penalty"))
        super().__init__(
            model_type,
            meta_template=None if self._roles else meta_template,
            max_new_tokens=max_new_tokens,
            retries=retry,
            **{**unset, **gen_params},
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model_type!r}, {self._endpoints!r})"

    def close(self) -> Any:
        """Close the connections."""
        return Call(self._endpoints.aclose).run()

    # One implementation for both colours: a synchronous driver awaits it on a private event loop.

    async def _complete(self, request: ModelRequest) -> ModelResponse:
        async with self._limiter.slot():
            clock = Clock(self.timeout, streamed=False)
            sent = await clock.wait(self._send(request, stream=False))
        with self._reading(sent.endpoint):
            response = sent.api.read(sent.answer.json(), sent.dialect)
        response.extra.setdefault("request_id", request.request_id)
        if response.tool_calls and response.finish_reason == "stop":
            response.finish_reason = "tool_calls"
        return response

    async def _stream(self, request: ModelRequest) -> AsyncIterator[ModelChunk]:
        async with self._limiter.slot():
            clock = Clock(self.timeout, streamed=True)
            sent = await clock.wait(self._send(request, stream=True))
            last, logprobs, called = ModelChunk(extra={"request_id": request.request_id}), [], False
            try:
                while (event := await clock.wait(self._event(sent))) is not None:
                    last.finish_reason = event.finish_reason or last.finish_reason
                    last.usage = event.usage or last.usage
                    logprobs += event.extra.pop("logprobs", ())
                    last.extra |= event.extra
                    if event.content or event.reasoning or event.tool_calls:
                        clock.token()
                        called = called or bool(event.tool_calls)
                        yield ModelChunk(event.content, event.reasoning, event.tool_calls)
            finally:
                await sent.answer.close()
        if last.finish_reason is None:
            raise ModelConnectionError(f"{sent.endpoint.server} ended its answer in the middle")
        if called and last.finish_reason == "stop":
            last.finish_reason = "tool_calls"
        if logprobs:
            last.extra["logprobs"] = logprobs
        yield last

    async def _event(self, sent: _Sent) -> ModelChunk | None:
        """What the next event of a streamed answer adds; ``None`` at its end."""
        with self._reading(sent.endpoint):
            data = await anext(sent.answer, None)
            return None if data is None else sent.api.read_event(data, sent.dialect)

    async def _send(self, request: ModelRequest, *, stream: bool) -> _Sent:
        """Send ``request`` to the endpoint whose turn it is, and to the next where that one's key is rejected or rate-limited."""
        refused: list[ModelError] = []
        tried: list[Endpoint] = []
        while (endpoint := self._endpoints.next(tried)) is not None:
            tried.append(endpoint)
            try:
                sent = await self._send_to(endpoint, request, stream)
            except (AuthenticationError, RateLimitError) as error:
                self._endpoints.refused(endpoint, error)
                refused.append(error)
            else:
                self._endpoints.accepted(endpoint)
                return sent
        raise min(refused, key=_wait)

    async def _send_to(self, endpoint: Endpoint, request: ModelRequest, stream: bool) -> _Sent:
        client = self._endpoints.client(endpoint)
        try:
            dialect = await self._dialect_at(endpoint, client)
            api = COMPLETIONS if request.prompt is not None else RESPONSES if self._api == "responses" else CHAT
            body = api.body(self._in_roles(request), self.model_type, dialect, stream)
            header = dialect.request_id_header
            options: openai.RequestOptions = {"headers": {header: request.request_id}} if header else {}
            answer: Any
            if stream:
                kind = openai.AsyncStream[Any]
                answer = await client.post(api.path, body=body, options=options, cast_to=object, stream=True, stream_cls=kind)
            else:
                answer = await client.post(api.path, body=body, options=options, cast_to=httpx2.Response)
        except openai.OpenAIError as error:
            if self._api == "auto" and "v1/responses" in str(error):  # the model is to be had there only
                self._api = "responses"
                return await self._send_to(endpoint, request, stream)
            raise self._endpoints.model_error(endpoint, error) from error
        except TypeError as error:
            raise ModelConfigurationError(f"the request cannot be written as JSON: {error}") from error
        return _Sent(endpoint, api, dialect, answer)

    async def _dialect_at(self, endpoint: Endpoint, client: openai.AsyncOpenAI) -> Dialect:
        """The dialect of the server; asks it the first time."""
        if self._dialect is not None:
            return self._dialect
        if endpoint not in self._dialects:
            if endpoint.base_url == OPENAI_API_BASE:
                self._dialects[endpoint] = DIALECTS["openai"]
            else:
                self._dialects[endpoint] = dialect_of(await _ask(client, "/models")) or await _probed(client, endpoint.root)
        return self._dialects[endpoint]

    def _in_roles(self, request: ModelRequest) -> ModelRequest:
        """``request`` with the roles that the server is to see."""
        if not any(message["role"] in self._roles for message in request.messages):
            return request
        return attrs.evolve(request, messages=[self._in_role(message) for message in request.messages])

    def _in_role(self, message: Message) -> Message:
        if (item := self._roles.get(message["role"])) is None:
            return message
        message = {**message, "role": item["api_role"]}
        if isinstance(message.get("content"), str):
            message["content"] = f"{item.get('begin', '')}{message['content']}{item.get('end', '')}"
        return message

    @contextmanager
    def _reading(self, endpoint: Endpoint) -> Iterator[None]:
        try:
            yield
        except ModelError:
            raise
        except (openai.OpenAIError, *_UNREADABLE) as error:
            raise self._endpoints.model_error(endpoint, error) from error


class AsyncGPTAPI(AsyncLLMMixin, GPTAPI):
    """:class:`GPTAPI` with asynchronous methods."""

    async def close(self) -> None:
        """Close the connections."""
        await self._endpoints.aclose()


@define
class _Sent:
    """A request that was accepted; ``answer`` is its HTTP response, or the stream of its events."""

    endpoint: Endpoint
    api: Api
    dialect: Dialect
    answer: Any


def _wait(error: ModelError) -> float:
    """How long it may take until ``error`` has passed."""
    wait = getattr(error, "retry_after", math.inf)
    return 0.0 if wait is None else wait


async def _ask(client: openai.AsyncOpenAI, path: str) -> Any:
    """The body under ``path``; ``None`` where the server has nothing there."""
    try:
        return await client.get(path, cast_to=object)
    except openai.APIStatusError as error:
        if error.status_code in (404, 405, 501):
            return None
        raise


async def _probed(client: openai.AsyncOpenAI, root: str) -> Dialect:
    for dialect in DIALECTS.values():
        if dialect.probe is not None:
            path, name = dialect.probe
            found = await _ask(client, root + path)
            if isinstance(found, Mapping) and name in found:
                return dialect
    return DIALECTS["compatible"]
