"""Searching the web and reading its pages."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2

from lagent.actions import BaseAction, JsonParser, tool_api
from lagent.errors import ConfigurationError
from lagent.schema import SessionId
from lagent_actions.twin import AsyncTwin
from lagent_actions.web.engines import BingSearch, BraveSearch, DuckDuckGoSearch, GoogleSearch, SearxngSearch
from lagent_actions.web.fetch import ContentFetcher
from lagent_actions.web.tencent import TencentSearch

__all__ = ["AsyncWebBrowser", "WebBrowser"]

_LONGEST_CONTENT = 8192
_MOST_SELECTED = 4


_ENGINES = {cls.__name__: cls for cls in (DuckDuckGoSearch, BingSearch, SearxngSearch, BraveSearch, GoogleSearch, TencentSearch)}


def _engine(name: Any, **options: Any) -> Any:
    """The search engine of a name; an object that has ``search`` is taken as it is.

    Raises:
        ConfigurationError: there is none of that name.
    """
    if callable(getattr(name, "search", None)):
        return name
    if name not in _ENGINES:
        raise ConfigurationError(f"there is no search engine {name!r}; there are {', '.join(_ENGINES)}")
    return _ENGINES[name](**options)


class WebBrowser(BaseAction):
    """Searches the web, and reads pages of it.

    Args:
        searcher_type: the search engine: ``"DuckDuckGoSearch"``, ``"SearxngSearch"``, ``"BraveSearch"``, ``"GoogleSearch"``,
            ``"TencentSearch"``, or an object with their method ``search``.
        timeout: seconds that reading a page may take.
        black_list: results whose address contains one of these are left out.
        topk: how many results a query gives.
        description, parser: see :class:`lagent.actions.BaseAction`.
        allowed_hosts: hosts that may be read though their addresses are private.
        kwargs: for the search engine, such as ``api_key`` and ``proxy``.
    """

    def __init__(
        self,
        searcher_type: Any = "DuckDuckGoSearch",
        timeout: float = 5,
        black_list: Sequence[str] | None = None,
        topk: int = 20,
        description: dict[str, Any] | None = None,
        parser: Any = JsonParser,
        *,
        allowed_hosts: Collection[str] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(description, parser)
        self.searcher = _engine(searcher_type, black_list=black_list, topk=topk, **kwargs)
        self.fetcher = ContentFetcher(timeout, allowed_hosts=allowed_hosts)
        self._results: dict[SessionId | None, dict[int, dict[str, str]]] = {}
        self._lock = threading.Lock()

    @tool_api
    def search(self, query: str | list[str], session_id: SessionId | None = None) -> dict[int, dict[str, str]]:
        """Search the web. The results have numbers, by which select reads them.

        Args:
            query: what to search for, or a list of such queries
        """
        queries = [query] if isinstance(query, str) else query
        merged: dict[str, dict[str, str]] = {}
        problems = []
        with ThreadPoolExecutor(min(len(queries), 8) or 1) as pool:
            for text, found in zip(queries, pool.map(self._search, queries), strict=True):
                if isinstance(found, Exception):
                    problems.append(found)
                    warnings.warn(f"the search for {text!r} failed: {found}", stacklevel=2)
                    continue
                for result in found.values():
                    known = merged.setdefault(result["url"], result)
                    if known is not result:
                        known["summ"] += f"\n{result['summ']}"
        if problems and len(problems) == len(queries):
            raise problems[0]
        results = dict(enumerate(merged.values()))
        with self._lock:
            self._results[session_id] = results
        return results

    def _search(self, query: str) -> Any:
        try:
            return self.searcher.search(query)
        except (httpx2.HTTPError, ValueError, KeyError) as error:
            return error

    @tool_api
    def select(self, select_ids: list[int], session_id: SessionId | None = None) -> dict[int, dict[str, str]]:
        """Read the pages of some results of the last search.

        Args:
            select_ids: the numbers of the results, at most 4
        """
        with self._lock:
            results = self._results.get(session_id, {})
        chosen = [number for number in dict.fromkeys(select_ids) if number in results][:_MOST_SELECTED]
        if not chosen:
            raise ValueError(f"the last search has no results {select_ids}; it has {list(results) or 'none: search first'}")
        read = {}
        with ThreadPoolExecutor(len(chosen)) as pool:
            for number, (good, text) in zip(
                chosen, pool.map(lambda n: self.fetcher.fetch(results[n]["url"]), chosen), strict=True
            ):
                page = {"url": results[number]["url"], "title": results[number]["title"]}
                read[number] = page | ({"content": text[:_LONGEST_CONTENT]} if good else {"error": text})
        return read

    @tool_api
    def open_url(self, url: str) -> dict[str, str]:
        """Read a page.

        Args:
            url: its address
        """
        good, text = self.fetcher.fetch(url)
        return {"type": "text", "content": text} if good else {"error": text}

    def close_session(self, session_id: SessionId) -> None:
        """Forget the results of a session."""
        with self._lock:
            self._results.pop(session_id, None)


class AsyncWebBrowser(AsyncTwin, WebBrowser):
    __doc__ = WebBrowser.__doc__
