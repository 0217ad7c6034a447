"""Search engines."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import httpx2

from lagent.errors import ConfigurationError

__all__ = [
    "BaseSearch",
    "BingSearch",
    "BraveSearch",
    "DuckDuckGoSearch",
    "GoogleSearch",
    "Hit",
    "RetiredServiceError",
    "SearxngSearch",
    "call_json",
]

_BLACK_LIST = ("enoN", "youtube.com", "bilibili.com", "researchgate.net")
_KEPT_SECONDS, _MOST_KEPT = 600, 100

Hit = tuple[str, str, str]
"""A result: its address, an excerpt, its title."""


class RetiredServiceError(ConfigurationError):
    """The service was shut down; the message says what to use instead."""


def call_json(
    method: str,
    url: str,
    *,
    timeout: float,
    proxy: Any = None,
    params: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
    json: Any = None,
    content: str | None = None,
) -> Any:
    """The JSON answer of a service.

    Raises:
        httpx2.HTTPError: it cannot be reached, answers with an error, or with something else.
    """
    if isinstance(proxy, Mapping):  # as requests takes them
        proxy = proxy.get("https") or proxy.get("http")
    with httpx2.Client(timeout=timeout, proxy=proxy or None) as client:
        given = {name: value for name, value in (params or {}).items() if value is not None}
        response = client.request(method, url, params=given, headers=headers, json=json, content=content)
        if response.status_code >= 400:
            raise httpx2.HTTPError(f"the service answered {response.status_code} {response.reason_phrase}: {response.text:.300}")
        try:
            return response.json()
        except ValueError as error:
            raise httpx2.HTTPError(f"the service did not answer with JSON: {response.text:.300}") from error


class BaseSearch:
    """Base of search engines.

    Args:
        topk: how many results are given.
        black_list: results whose address contains one of these are left out.
        proxy: the address of a proxy.
        timeout: seconds that a search may take.
    """

    def __init__(self, topk: int = 3, black_list: Sequence[str] | None = None, *, proxy: Any = None, timeout: float = 30) -> None:
        self.topk, self.black_list = topk, list(_BLACK_LIST if black_list is None else black_list)
        self.proxy, self.timeout = proxy, timeout
        self._kept: OrderedDict[str, tuple[float, dict[int, dict[str, str]]]] = OrderedDict()
        self._lock = threading.Lock()

    def search(self, query: str, max_retry: int = 3) -> dict[int, dict[str, str]]:
        """The results by number, each with ``url``, ``summ`` and ``title``; those of the last ten minutes are kept.

        Raises:
            httpx2.HTTPError: the service cannot be asked, even after ``max_retry`` tries.
            RetiredServiceError: there is no such service any more.
        """
        with self._lock:
            when, results = self._kept.get(query, (float("-inf"), {}))
        if time.monotonic() - when < _KEPT_SECONDS:
            return {number: dict(result) for number, result in results.items()}
        for attempt in range(max_retry):
            try:
                hits = self._hits(query)
                break
            except httpx2.HTTPError:
                if attempt + 1 == max_retry:
                    raise
                time.sleep(0.5 * 2**attempt)
        results = {}
        for url, excerpt, title in hits:
            if not any(domain in url for domain in self.black_list) and not url.endswith(".pdf") and len(results) < self.topk:
                results[len(results)] = {"url": url, "summ": excerpt, "title": title}
        with self._lock:
            self._kept[query] = time.monotonic(), results
            if len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        return {number: dict(result) for number, result in results.items()}

    def _hits(self, query: str) -> list[Hit]:
        raise NotImplementedError

    def _call(self, method: str, url: str, **options: Any) -> Any:
        return call_json(method, url, timeout=self.timeout, proxy=self.proxy, **options)


class DuckDuckGoSearch(BaseSearch):
    """DuckDuckGo and others by the package ``ddgs``; needs no key."""

    backend: ClassVar[str] = "auto"

    def _hits(self, query: str) -> list[Hit]:
        from ddgs import DDGS
        from ddgs.exceptions import DDGSException

        proxy = self.proxy.get("https") if isinstance(self.proxy, Mapping) else self.proxy
        try:
            with DDGS(timeout=int(self.timeout), proxy=proxy) as client:
                found = client.text(query.strip("'"), max_results=self.topk * 2, backend=self.backend)
        except DDGSException as error:
            raise httpx2.HTTPError(f"the search found nothing or failed: {error}") from error
        return [(item["href"], item["body"], item["title"]) for item in found]


class BingSearch(BaseSearch):
    """Bing's API, which is no more."""

    def __init__(
        self, api_key: str = "", region: str = "zh-CN", topk: int = 3, black_list: Sequence[str] | None = None, **_: Any
    ):
        super().__init__(topk, black_list)

    def search(self, query: str, max_retry: int = 3) -> dict[int, dict[str, str]]:
        raise RetiredServiceError(
            "Microsoft shut down the Bing Search API on 11 August 2025: use the searcher DuckDuckGoSearch (no key), SearxngSearch (your "
            "own server), BraveSearch or GoogleSearch (with a key)"
        )


class SearxngSearch(BaseSearch):
    """A SearXNG server (https://docs.searxng.org/dev/search_api.html) whose settings allow the format ``json``.

    Args:
        api_key, auth_name: the value and the name of a header, for servers that want one.
        language, categories: of the results.
        url: the address of the server's search; the environment variable ``SEARXNG_URL`` comes before it.
    """

    def __init__(
        self,
        api_key: str = "",
        auth_name: str = "searxng",
        language: str = "zh",
        categories: str = "general",
        url: str = "http://127.0.0.1:18883",
        topk: int = 3,
        black_list: Sequence[str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(topk, black_list, **options)
        self.headers = {auth_name: api_key} if api_key else {}
        self.language, self.categories = language, categories
        self.url = os.environ.get("SEARXNG_URL") or url

    def _hits(self, query: str) -> list[Hit]:
        params = {"q": query, "categories": self.categories, "language": self.language, "format": "json"}
        found = self._call("GET", self.url, params=params, headers=self.headers)
        return [(item["url"], item.get("content") or "", item.get("title") or "") for item in found["results"]]


class BraveSearch(BaseSearch):
    """Brave's API (https://api-dashboard.search.brave.com/app/documentation).

    Args:
        api_key: the key.
        region, language: of the results.
        extra_snippets: whether to ask for more excerpts (``extra_snippests`` is lagent's spelling).
        search_type: ``"web"`` or ``"news"``.
        url: the address of the API.
    """

    def __init__(
        self,
        api_key: str,
        region: str = "ALL",
        language: str = "zh-hans",
        extra_snippests: bool = True,
        topk: int = 3,
        black_list: Sequence[str] | None = None,
        *,
        search_type: str = "web",
        url: str = "https://api.search.brave.com/res/v1",
        proxy: Any = None,
        timeout: float = 30,
        **params: Any,
    ) -> None:
        super().__init__(topk, black_list, proxy=proxy, timeout=timeout)
        self.api_key, self.search_type, self.url = api_key, search_type, url
        snippets = "true" if extra_snippests else "false"
        self.params = {"country": region, "search_lang": language, "extra_snippets": snippets, "count": topk, **params}

    def _hits(self, query: str) -> list[Hit]:
        headers = {"X-Subscription-Token": self.api_key, "Accept": "application/json"}
        found = self._call("GET", f"{self.url}/{self.search_type}/search", params={"q": query, **self.params}, headers=headers)
        items = found.get("web", {}).get("results", []) if self.search_type == "web" else found.get("results", [])
        return [
            (
                item.get("url", ""),
                " ".join(filter(None, [item.get("description"), *item.get("extra_snippets", [])])),
                item.get("title", ""),
            )
            for item in items
        ]


class GoogleSearch(BaseSearch):
    """Google by Serper (https://serper.dev).

    Args:
        api_key: the key of Serper.
        search_type: ``"search"``, ``"news"``, ``"images"`` or ``"places"``.
        url: the address of the API.
    """

    LISTS: ClassVar[dict[str, str]] = {"search": "organic", "news": "news", "images": "images", "places": "places"}
    """Where in the answer the results of each kind are."""

    def __init__(
        self,
        api_key: str,
        topk: int = 3,
        black_list: Sequence[str] | None = None,
        *,
        search_type: str = "search",
        url: str = "https://google.serper.dev",
        proxy: Any = None,
        timeout: float = 30,
        **params: Any,
    ) -> None:
        if search_type not in self.LISTS:
            raise ConfigurationError(f"search_type must be one of {', '.join(self.LISTS)}, not {search_type!r}")
        super().__init__(topk, black_list, proxy=proxy, timeout=timeout)
        self.api_key, self.search_type, self.url, self.params = api_key, search_type, url, params

    def ask(self, query: str, most: int) -> dict[str, Any]:
        """The answer of the service as it is."""
        headers = {"X-API-KEY": self.api_key}
        answer: dict[str, Any] = self._call(
            "POST", f"{self.url}/{self.search_type}", headers=headers, json={"q": query, "num": most, **self.params}
        )
        return answer

    def _hits(self, query: str) -> list[Hit]:
        found = self.ask(query, self.topk)
        hits = []
        box, graph = found.get("answerBox") or {}, found.get("knowledgeGraph") or {}
        if text := box.get("answer") or box.get("snippet") or "\n".join(box.get("snippetHighlighted", [])):
            hits.append((box.get("link", ""), text.replace("\n", " "), box.get("title", "")))
        if graph:
            title = f"{graph.get('title', '')}: {graph.get('type', '')}."
            hits.append((graph.get("descriptionLink", ""), _described(graph, "description"), title))
        items = found.get(self.LISTS[self.search_type], [])
        return [*hits, *((item.get("link", ""), _described(item, "snippet"), item.get("title", "")) for item in items)]


def _described(item: Mapping[str, Any], key: str) -> str:
    attributes = [f"{name}: {value}" for name, value in (item.get("attributes") or {}).items()]
    return ". ".join(filter(None, [item.get(key, ""), *attributes]))
