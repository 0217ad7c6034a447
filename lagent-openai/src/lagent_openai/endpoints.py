"""Where requests go: base URLs and keys, used in turn."""

from __future__ import annotations

import asyncio
import functools
import math
import os
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx2
import openai
from attrs import define, field

from lagent.errors import AuthenticationError, ModelConfigurationError, ModelError, RateLimitError
from lagent.flow import Call
from lagent_openai.failures import model_error
from lagent_openai.limits import TimeLimits

__all__ = ["OPENAI_API_BASE", "Endpoint", "Endpoints", "Key", "Secret"]

OPENAI_API_BASE = "https://api.openai.com/v1"

Key = str | Callable[[], str | Awaitable[str]] | None

_SHORTEST = 4
"""What is shorter is no key but a stand-in for one, and may be part of any word."""

_REST = 5.0
"""Seconds that an endpoint is passed over after a rate limit that does not say for how long."""


class Secret:
    """A key that shows nowhere."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return "Secret(***)"


@define(eq=False)
class Endpoint:
    """One base URL with one key."""

    base_url: str = field(repr=False)
    key: Secret | Callable[[], Any] | None = field(repr=False)
    organization: str | None
    blocked_until: float = field(default=0.0, repr=False)

    @property
    def server(self) -> str:
        """The base URL as messages may show it, without user and password."""
        parts = urlsplit(self.base_url)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()

    @property
    def root(self) -> str:
        """The URL of the server itself, without the version."""
        return self.base_url.removesuffix("/v1")


class Endpoints:
    """Base URLs and keys, used in turn; one that was rejected or is rate-limited is passed over while there are others.

    Args:
        api_base: base URLs; one that ends in the path of an API, such as ``…/chat/completions``, is cut there.
        key: keys. ``"ENV"`` is the environment variable ``OPENAI_API_KEY``; a function is called for every request.
        org: OpenAI organisations.
        limits: time limits, of which ``connect`` is applied here.
        proxies: proxy URLs by scheme, ``{"https": …}``.

    Raises:
        ModelConfigurationError: lists of different lengths, or a URL that is none.
    """

    def __init__(
        self,
        api_base: str | Sequence[str] | None,
        key: Key | Sequence[Key],
        org: str | Sequence[str] | None,
        limits: TimeLimits,
        proxies: Mapping[str, str] | None,
    ) -> None:
        urls = [_base_url(url) for url in _listed(api_base or os.environ.get("OPENAI_BASE_URL") or OPENAI_API_BASE)]
        keys, orgs = [_secret(one) for one in _listed(key)], _listed(org)
        count = max(len(urls), len(keys), len(orgs))
        for name, values in (("api_base", urls), ("key", keys), ("org", orgs)):
            if len(values) not in (1, count):
                raise ModelConfigurationError(
                    f"{name} has {len(values)} entries where another list has {count}: give one, or one for each"
                )
        self._all = [Endpoint(_at(urls, i), _at(keys, i), _at(orgs, i)) for i in range(count)]
        self._secrets = {one.reveal() for one in keys if isinstance(one, Secret)} | {urlsplit(url).password or "" for url in urls}
        self._timeout = httpx2.Timeout(None, connect=limits.connect)
        self._proxies = proxies
        self._turn = 0
        self._lock = threading.Lock()
        self._clients: dict[asyncio.AbstractEventLoop, tuple[httpx2.AsyncClient, dict[Endpoint, openai.AsyncOpenAI]]] = {}

    def __repr__(self) -> str:
        return f"Endpoints({', '.join(endpoint.server for endpoint in self._all)})"

    def next(self, tried: Container[Endpoint] = ()) -> Endpoint | None:
        """The endpoint whose turn it is; ``None`` if all that are not blocked have been ``tried``."""
        with self._lock:
            self._turn += 1
            now = time.monotonic()
            in_turn = [self._all[(self._turn + i) % len(self._all)] for i in range(len(self._all))]
        free = [endpoint for endpoint in in_turn if endpoint.blocked_until <= now and endpoint not in tried]
        if not free and not tried:  # all are blocked: the server has the last word
            return min(in_turn, key=lambda endpoint: endpoint.blocked_until)
        return free[0] if free else None

    def accepted(self, endpoint: Endpoint) -> None:
        """Take note that the server answered a request to ``endpoint``."""
        endpoint.blocked_until = 0.0

    def refused(self, endpoint: Endpoint, error: AuthenticationError | RateLimitError) -> None:
        """Pass ``endpoint`` over: for good where its key was rejected, else for as long as the server says."""
        wait = getattr(error, "retry_after", math.inf)
        endpoint.blocked_until = time.monotonic() + (_REST if wait is None else wait)

    def client(self, endpoint: Endpoint) -> openai.AsyncOpenAI:
        """The client of ``endpoint`` for the running event loop."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if loop not in self._clients:
                for closed in [other for other in self._clients if other.is_closed()]:
                    del self._clients[closed]
                self._clients[loop] = (self._transport(), {})
            http, clients = self._clients[loop]
            if endpoint not in clients:
                clients[endpoint] = openai.AsyncOpenAI(
                    api_key=self._api_key(endpoint),
                    base_url=endpoint.base_url,
                    organization=endpoint.organization,
                    http_client=http,
                    timeout=self._timeout,
                    max_retries=0,
                )
            return clients[endpoint]

    def _transport(self) -> httpx2.AsyncClient:
        proxies = (self._proxies or {}).items()
        mounts = {f"{scheme}://": httpx2.AsyncHTTPTransport(proxy=url, verify=_certificates()) for scheme, url in proxies}
        return openai.DefaultAsyncHttpxClient(timeout=self._timeout, mounts=mounts or None, verify=_certificates())

    def _api_key(self, endpoint: Endpoint) -> str | Callable[[], Awaitable[str]]:
        key = endpoint.key
        if isinstance(key, Secret):
            return key.reveal()
        if key is None:
            if endpoint.base_url == OPENAI_API_BASE:
                raise AuthenticationError(f"{OPENAI_API_BASE} needs a key: set OPENAI_API_KEY or pass key=")
            return "EMPTY"  # what servers without keys are given by convention

        async def fetch() -> str:
            try:
                value: str = await Call(key, blocking=True).arun()
            except Exception as error:
                raise AuthenticationError(f"the key for {endpoint.server} cannot be had: {error!r}") from error
            self._secrets.add(value)
            return value

        return fetch

    def model_error(self, endpoint: Endpoint, error: Exception) -> ModelError:
        """The error of lagent's that says what ``error`` means; no key is left in either."""
        text = str(error)
        if (scrubbed := self.scrub(text)) != text:
            error.args = (scrubbed,)
            if isinstance(error, openai.APIError):
                error.message, error.body = scrubbed, None
        return model_error(error, endpoint.server)

    def scrub(self, text: str) -> str:
        """``text`` without the keys that it may hold."""
        for secret in self._secrets:
            if len(secret) >= _SHORTEST:
                text = text.replace(secret, "***")
        return text

    async def aclose(self) -> None:
        """Close the connections, on every event loop that they were made on and that still runs."""
        with self._lock:
            clients, self._clients = self._clients, {}
        for loop, (http, _) in clients.items():
            if loop is asyncio.get_running_loop():
                await http.aclose()
            elif loop.is_running():
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(http.aclose(), loop))


@functools.cache
def _certificates() -> ssl.SSLContext:
    """The certificates to trust; reading them takes longer than all else that making a client takes."""
    return httpx2.create_ssl_context()


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _at(values: list[Any], index: int) -> Any:
    return values[index % len(values)]


def _secret(key: Key) -> Secret | Callable[[], Any] | None:
    if key == "ENV":
        key = os.environ.get("OPENAI_API_KEY")
    return Secret(key) if isinstance(key, str) and key else key if callable(key) else None


def _base_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ModelConfigurationError(f"api_base must be the URL of a server, such as http://localhost:8000/v1, not {url!r}")
    path = parts.path.rstrip("/")
    for ending in ("/chat/completions", "/completions", "/responses"):
        path = path.removesuffix(ending)
    return parts._replace(path=path or "/v1", query="", fragment="").geturl()
