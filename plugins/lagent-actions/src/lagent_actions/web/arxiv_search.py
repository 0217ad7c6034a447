"""Papers on arXiv."""

from __future__ import annotations

import threading
from typing import Any

import arxiv  # type: ignore[import-untyped]
import requests

from lagent.actions import BaseAction, JsonParser, tool_api
from lagent.schema import ActionReturn, ActionStatusCode
from lagent_actions.twin import AsyncTwin

__all__ = ["ArxivSearch", "AsyncArxivSearch"]


class ArxivSearch(BaseAction):
    """Finds papers on arXiv.org: physics, mathematics, computer science, biology, finance, statistics, engineering, economics.

    Args:
        top_k_results: how many papers are given.
        max_query_len: how many characters of a query are used.
        doc_content_chars_max: how many characters of an abstract are given.
        description, parser: see :class:`lagent.actions.BaseAction`.
        client: the client of the package ``arxiv``, which keeps to arXiv's limit of one request every three seconds.
    """

    def __init__(
        self,
        top_k_results: int = 3,
        max_query_len: int = 300,
        doc_content_chars_max: int = 1500,
        description: dict[str, Any] | None = None,
        parser: Any = JsonParser,
        *,
        client: arxiv.Client | None = None,
    ) -> None:
        super().__init__(description, parser)
        self.top_k_results = top_k_results
        self.max_query_len = max_query_len
        self.doc_content_chars_max = doc_content_chars_max
        self.client = client or arxiv.Client(page_size=max(top_k_results, 1))
        self._lock = threading.Lock()

    @tool_api(explode_return=True)
    def get_arxiv_article_information(self, query: str) -> Any:
        """Find papers on arXiv.

        Args:
            query: what to search for

        Returns:
            dict: the papers
                * content (str): date, title, authors and abstract of each
        """
        search = arxiv.Search(query[: self.max_query_len], max_results=self.top_k_results)
        try:
            with self._lock:  # the client waits between requests, and is not made for several threads
                found = list(self.client.results(search))
        except (arxiv.ArxivError, requests.RequestException) as error:
            return ActionReturn(errmsg=f"arXiv cannot be asked: {error}", state=ActionStatusCode.HTTP_ERROR)
        papers = [
            f"Published: {paper.updated.date()}\nTitle: {paper.title}\nAuthors: {', '.join(a.name for a in paper.authors)}\n"
            f"Summary: {paper.summary[: self.doc_content_chars_max]}"
            for paper in found
        ]
        return {"content": "\n\n".join(papers) or "No good Arxiv Result was found"}


class AsyncArxivSearch(AsyncTwin, ArxivSearch):
    __doc__ = ArxivSearch.__doc__
