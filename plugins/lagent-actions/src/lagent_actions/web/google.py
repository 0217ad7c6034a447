"""Google and Google Scholar, by services that ask them."""

from __future__ import annotations

import os
from typing import Any

import httpx2

from lagent.actions import BaseAction, JsonParser, tool_api
from lagent.errors import ConfigurationError
from lagent.schema import ActionReturn, ActionStatusCode
from lagent_actions.twin import AsyncTwin
from lagent_actions.web.engines import GoogleSearch as _Serper
from lagent_actions.web.engines import call_json

__all__ = ["AsyncGoogleScholar", "AsyncGoogleSearch", "GoogleScholar", "GoogleSearch"]


def _key(given: str | None, *variables: str) -> str:
    key = given or next((os.environ[name] for name in variables if os.environ.get(name)), None)
    if not key:
        raise ConfigurationError(f"pass api_key, or set the environment variable {variables[0]}")
    return key


class GoogleSearch(BaseAction):
    """Searches Google, by the service Serper.

    Args:
        api_key: the key of https://serper.dev; by default, that of the environment variable ``SERPER_API_KEY``.
        timeout: seconds that a search may take.
        search_type: ``"search"``, ``"news"``, ``"images"`` or ``"places"``.
        description, parser: see :class:`lagent.actions.BaseAction`.
        url: the address of the service.
    """

    def __init__(
        self,
        api_key: str | None = None,
        timeout: float = 5,
        search_type: str = "search",
        description: dict[str, Any] | None = None,
        parser: Any = JsonParser,
        *,
        url: str = "https://google.serper.dev",
    ) -> None:
        super().__init__(description, parser)
        self._serper = _Serper(_key(api_key, "SERPER_API_KEY"), search_type=search_type, timeout=timeout, url=url)

    @tool_api
    def run(self, query: str, k: int = 10) -> ActionReturn:
        """Search Google, to answer a question about facts or recent events.

        Args:
            query: what to search for
            k: how many results to give
        """
        try:
            found = self._serper.ask(query, k)
        except httpx2.HTTPError as error:
            return ActionReturn(errmsg=str(error), state=ActionStatusCode.HTTP_ERROR)
        lines = self._lines(found, k) or ["No good Google Search Result was found"]
        return ActionReturn(result=[{"type": "text", "content": "\n".join(lines)}])

    def _lines(self, found: dict[str, Any], most: int) -> list[str]:
        box, graph = found.get("answerBox") or {}, found.get("knowledgeGraph") or {}
        if answer := box.get("answer") or box.get("snippet") or "\n".join(box.get("snippetHighlighted", [])):
            return [answer.replace("\n", " ")]
        title, lines = graph.get("title"), []
        if graph.get("type"):
            lines.append(f"{title}: {graph['type']}.")
        if graph.get("description"):
            lines.append(graph["description"])
        lines += [f"{title} {name}: {value}." for name, value in graph.get("attributes", {}).items()]
        for item in found.get(self._serper.LISTS[self._serper.search_type], [])[:most]:
            lines += [item["snippet"]] if "snippet" in item else []
            lines += [f"{name}: {value}." for name, value in item.get("attributes", {}).items()]
        return lines


class AsyncGoogleSearch(AsyncTwin, GoogleSearch):
    __doc__ = GoogleSearch.__doc__


class GoogleScholar(BaseAction):
    """Searches Google Scholar for papers, authors and citations, by the service SerpApi.

    Args:
        api_key: the key of https://serpapi.com; by default, that of ``SERPAPI_API_KEY`` or ``SERPER_API_KEY`` in the environment.
        description, parser: see :class:`lagent.actions.BaseAction`.
        url: the address of the service.
    """

    def __init__(
        self,
        api_key: str | None = None,
        description: dict[str, Any] | None = None,
        parser: Any = JsonParser,
        *,
        url: str = "https://serpapi.com/search",
    ) -> None:
        super().__init__(description, parser)
        self.api_key, self.url = _key(api_key, "SERPAPI_API_KEY", "SERPER_API_KEY"), url

    def _ask(self, engine: str, key: str, **params: Any) -> Any:
        """What the answer has under ``key``, or the return value that tells why it has not."""
        params = {name: str(value).lower() if isinstance(value, bool) else value for name, value in params.items()}
        try:
            found = call_json("GET", self.url, timeout=30, params={"engine": engine, "api_key": self.api_key, **params})
        except httpx2.HTTPError as error:
            return ActionReturn(errmsg=str(error).replace(self.api_key, "…"), state=ActionStatusCode.HTTP_ERROR)
        if not found.get(key):
            return ActionReturn(errmsg=found.get("error") or f"the answer has no {key}", state=ActionStatusCode.HTTP_ERROR)
        return found if key == "author" else found[key]

    @tool_api(explode_return=True)
    def search_google_scholar(
        self,
        query: str,
        cites: str | None = None,
        as_ylo: int | None = None,
        as_yhi: int | None = None,
        scisbd: int | None = None,
        cluster: str | None = None,
        hl: str | None = None,
        lr: str | None = None,
        start: int | None = None,
        num: int | None = None,
        as_sdt: str | None = None,
        safe: str | None = None,
        filter: str | None = None,
        as_vis: str | None = None,
    ) -> Any:
        """Search for scholarly articles.

        Args:
            query: what to search for
            cites: the id of an article, to find those that cite it
            as_ylo: the first year of the results
            as_yhi: the last year of the results
            scisbd: 1 for abstracts, 2 for everything added in the last year, by date
            cluster: the id of an article, to find all its versions
            hl: the language of the interface
            lr: the languages of the results
            start: how many results to pass over
            num: how many results to give, at most 20
            as_sdt: kind of search, or a filter
            safe: "active" to filter adult content, or "off"
            filter: "1" to leave out similar results, or "0"
            as_vis: "1" to leave out mere citations, or "0"

        Returns:
            dict: the first three articles
                - title: their titles
                - cited_by: how often each is cited
                - organic_id: their ids
                - pub_info: where each was published
                - snippets: an excerpt of each
        """
        params = {name: value for name, value in locals().items() if name not in ("self", "query")}
        found = self._ask("google_scholar", "organic_results", q=query, **params)
        if isinstance(found, ActionReturn):
            return found
        found = found[:3]
        return {
            "title": [item.get("title", "") for item in found],
            "cited_by": [item.get("inline_links", {}).get("cited_by", {}).get("total", "") for item in found],
            "organic_id": [item.get("result_id", "") for item in found],
            "pub_info": [item.get("publication_info", {}).get("summary", "") for item in found],
            "snippets": [item.get("snippet", "") for item in found],
        }

    @tool_api(explode_return=True)
    def get_author_information(
        self,
        author_id: str,
        hl: str | None = None,
        view_op: str | None = None,
        sort: str | None = None,
        citation_id: str | None = None,
        start: int | None = None,
        num: int | None = None,
        no_cache: bool | None = None,
        async_req: bool | None = None,
        output: str | None = None,
    ) -> Any:
        """Tell about an author, whose id get_author_id gives.

        Args:
            author_id: the id of the author
            hl: the language of the interface
            view_op: the part of the page to see
            sort: the order of the articles
            citation_id: the id of one citation
            start: how many articles to pass over
            num: how many articles to give
            no_cache: whether the service has to ask anew
            async_req: whether the service answers later
            output: the form of the answer, "json"

        Returns:
            dict: the author
                * name: the name
                * affiliations: where the author works
                * website: the homepage
                * articles: at most 3 articles, with title and authors
        """
        params = {name: value for name, value in locals().items() if name not in ("self", "async_req")}
        found = self._ask("google_scholar_author", "author", **params, **{"async": async_req})
        if isinstance(found, ActionReturn):
            return found
        author = found["author"]
        return {
            "name": author.get("name", ""),
            "affiliations": author.get("affiliations", ""),
            "website": author.get("website", ""),
            "articles": [
                {"title": item.get("title", ""), "authors": item.get("authors", "")} for item in found.get("articles", [])[:3]
            ],
        }

    @tool_api(explode_return=True)
    def get_citation_format(
        self, q: str, no_cache: bool | None = None, async_: bool | None = None, output: str | None = "json"
    ) -> Any:
        """Cite an article in MLA form.

        Args:
            q: the id of the article, an organic_id of search_google_scholar
            no_cache: whether the service has to ask anew
            async_: whether the service answers later
            output: the form of the answer, "json"

        Returns:
            dict: the citation
                * citation: the text
        """
        found = self._ask("google_scholar_cite", "citations", q=q, no_cache=no_cache, output=output, **{"async": async_})
        return found if isinstance(found, ActionReturn) else found[0]["snippet"]

    @tool_api(explode_return=True)
    def get_author_id(
        self,
        mauthors: str,
        hl: str | None = "en",
        after_author: str | None = None,
        before_author: str | None = None,
        no_cache: bool | None = False,
        _async: bool | None = False,
        output: str | None = "json",
    ) -> Any:
        """Find the id of an author.

        Args:
            mauthors: the name
            hl: the language of the interface
            after_author: the token of the next page
            before_author: the token of the page before
            no_cache: whether the service has to ask anew
            _async: whether the service answers later
            output: the form of the answer, "json"

        Returns:
            dict: the author
                * author_id: the id
        """
        params = {name: value for name, value in locals().items() if name not in ("self", "_async")}
        found = self._ask("google_scholar_profiles", "profiles", **params, **{"async": _async})
        return found if isinstance(found, ActionReturn) else {"author_id": found[0]["author_id"]}


class AsyncGoogleScholar(AsyncTwin, GoogleScholar):
    __doc__ = GoogleScholar.__doc__
