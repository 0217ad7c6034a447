"""The web and papers."""

from lagent_actions.web.arxiv_search import ArxivSearch, AsyncArxivSearch
from lagent_actions.web.bing_map import AsyncBINGMap, BINGMap
from lagent_actions.web.browser import AsyncWebBrowser, WebBrowser
from lagent_actions.web.google import AsyncGoogleScholar, AsyncGoogleSearch, GoogleScholar, GoogleSearch

__all__ = [
    "ArxivSearch",
    "AsyncArxivSearch",
    "AsyncBINGMap",
    "AsyncGoogleScholar",
    "AsyncGoogleSearch",
    "AsyncWebBrowser",
    "BINGMap",
    "GoogleScholar",
    "GoogleSearch",
    "WebBrowser",
]
