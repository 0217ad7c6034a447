"""The web actions, against a local server that speaks the formats of the services."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import arxiv
import pytest

from lagent.actions import ActionExecutor, AsyncActionExecutor
from lagent.actions import WebBrowser as FromCore
from lagent.errors import ConfigurationError
from lagent.schema import ActionStatusCode, AgentMessage
from lagent_actions.web import (
    ArxivSearch,
    AsyncArxivSearch,
    AsyncBINGMap,
    AsyncGoogleScholar,
    AsyncGoogleSearch,
    AsyncWebBrowser,
    BINGMap,
    GoogleScholar,
    GoogleSearch,
    WebBrowser,
)
from lagent_actions.web import fetch as fetching
from lagent_actions.web.engines import BraveSearch, RetiredServiceError, SearxngSearch
from lagent_actions.web.fetch import ContentFetcher, RefusedAddressError
from lagent_actions.web.tencent import TencentSearch

PAGE = """<html><head><title>T</title><style>p {color: red}</style></head>
<body><script>alert(1)</script><h1>Hello</h1><p>wörld &amp; all</p></body></html>"""

FEED = """<?xml version="1.0" encoding="UTF-8"?>
<feed xmlns="http://www.w3.org/2005/Atom" xmlns:opensearch="http://a9.com/-/spec/opensearch/1.1/" xmlns:arxiv="http://arxiv.org/schemas/atom">
<opensearch:totalResults>1</opensearch:totalResults><opensearch:startIndex>0</opensearch:startIndex>
<opensearch:itemsPerPage>1</opensearch:itemsPerPage>
<id>http://arxiv.org/api/x</id><title>query</title><updated>2024-01-01T00:00:00Z</updated>
<entry><id>http://arxiv.org/abs/1706.03762v7</id><published>2017-06-12T17:57:34Z</published><updated>2023-08-02T00:41:18Z</updated>
<title>Attention Is All You Need</title><summary>The dominant models...</summary>
<author><name>Ashish Vaswani</name></author><author><name>Noam Shazeer</name></author>
<link href="http://arxiv.org/abs/1706.03762v7" rel="alternate" type="text/html"/>
<arxiv:primary_category term="cs.CL"/><category term="cs.CL"/></entry></feed>"""


class Handler(BaseHTTPRequestHandler):
    """Answers by path, and notes what it was asked."""

    server: Any

    def log_message(self, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        body = self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
        self.server.asked.append(
            (self.command, parts.path, query, {name.lower(): value for name, value in self.headers.items()}, body)
        )
        port = self.server.server_port
        answer: Any = {
            "/page": PAGE,
            "/searx": {
                "results": [
                    _hit(f"http://127.0.0.1:{port}/page", "one"),
                    _hit("http://youtube.com/x", "two"),
                    _hit("http://e.org/p.pdf", "3"),
                ]
            },
            "/web/search": {
                "web": {"results": [{"url": "http://b.org", "description": "d", "extra_snippets": ["e"], "title": "B"}]}
            },
            "/search": {
                "organic": [{"link": "http://g.org", "snippet": "s", "title": "G", "attributes": {"Year": "1"}}],
                "knowledgeGraph": {"title": "K", "type": "Thing", "description": "kd", "descriptionLink": "http://k.org"},
            },
            "/tencent": {"Response": {"Pages": [{"Display": json.dumps({"url": "http://t.org", "content": "c", "title": "T"})}]}},
            "/serpapi": _serpapi(query),
            "/arxiv": FEED,
        }.get(parts.path)
        with contextlib.suppress(OSError):
            self.reply(parts.path, answer, query)

    def reply(self, path: str, answer: Any, query: dict[str, str]) -> None:
        if path == "/redirect":
            self.send_response(302)
            self.send_header("Location", query["to"])
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif path in ("/endless", "/slow", "/binary"):
            self.send_response(200)
            self.send_header("Content-Type", "image/png" if path == "/binary" else "text/plain")
            self.end_headers()
            for _ in range(200):
                self.wfile.write(b"x" * (1 << 20 if path == "/endless" else 1))
                self.wfile.flush()
                time.sleep(0 if path == "/endless" else 0.1)
        elif answer is None:
            self.send_error(404 if path != "/broken" else 503)
        else:
            data = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
            kind = (
                "application/atom+xml"
                if path == "/arxiv"
                else "text/html; charset=utf-8"
                if path == "/page"
                else "application/json"
            )
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)


def _hit(url: str, text: str) -> dict[str, str]:
    return {"url": url, "content": text, "title": f"title {text}"}


def _serpapi(query: dict[str, str]) -> Any:
    if query.get("q") == "nothing":
        return {"error": "Google hasn't returned any results for this query."}
    return {
        "google_scholar": {
            "organic_results": [
                {
                    "title": "Attention",
                    "result_id": "id1",
                    "snippet": "sn",
                    "publication_info": {"summary": "NIPS"},
                    "inline_links": {"cited_by": {"total": 9}},
                },
                {"title": "No links", "result_id": "id2"},
            ]
        },
        "google_scholar_author": {
            "author": {"name": "A. Author", "affiliations": "Uni"},
            "articles": [{"title": "t", "authors": "a"}],
        },
        "google_scholar_cite": {"citations": [{"title": "MLA", "snippet": "Author, A."}]},
        "google_scholar_profiles": {"profiles": [{"author_id": "xyz"}]},
    }.get(query.get("engine", ""))


@pytest.fixture(scope="module")
def running() -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.asked = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def server(running: Any) -> Any:
    running.asked.clear()
    running.url = f"http://127.0.0.1:{running.server_port}"
    return running


def settled(result: Any) -> Any:
    async def wait() -> Any:
        return await result

    return asyncio.run(wait()) if hasattr(result, "__await__") else result


# Reading pages


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://127.1/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0.0.0.0/",
        "http://localhost/",
        "http://[::1]/",
        "http://[::]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:10.0.0.1]/",
        "http://[64:ff9b::a9fe:a9fe]/",
        "http://[2002:7f00:1::]/",
        "http://[fe80::1]/",
        "http://[fd00:ec2::254]/",
        "http://10.0.0.1/",
        "http://172.16.0.1/",
        "http://192.168.1.1/",
        "http://169.254.169.254/latest/meta-data/",
        "http://100.64.0.1/",
        "http://224.0.0.1/",
        "file:///etc/passwd",
        "ftp://example.org/",
        "gopher://example.org/",
        "//example.org/",
        "http:///",
        "http://user:word@example.org/",
        "http://example.org:99999/",
    ],
)
def test_what_is_not_of_the_public_web_is_not_read(url: str) -> None:
    with pytest.raises(RefusedAddressError):
        ContentFetcher().read(url)


def test_names_and_redirects_that_lead_inside_are_refused(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fetcher = ContentFetcher(allowed_hosts=["127.0.0.1"])
    inside = f"http://localhost:{server.server_port}/page"
    good, text = fetcher.fetch(f"{server.url}/redirect?to={inside}")
    assert not good
    assert "localhost has the address" in text
    assert [path for _, path, *_ in server.asked] == ["/redirect"]

    lookups = iter(["93.184.216.34", "127.0.0.1"])  # a name that changes its address after it was checked
    real = socket.getaddrinfo

    def changing(host: Any, *args: Any, **kwargs: Any) -> Any:
        if host == "rebind.example":
            return real(next(lookups), *args, **kwargs)
        return real(host, *args, **kwargs)

    monkeypatch.setattr(fetching.socket, "getaddrinfo", changing)
    assert ContentFetcher()._address("rebind.example", 80) == "93.184.216.34"  # which is what the connection goes to
    with pytest.raises(RefusedAddressError, match=r"rebind.example has the address 127\.0\.0\.1"):
        ContentFetcher()._address("rebind.example", 80)


def test_pages_are_read_as_text_within_limits(server: Any) -> None:
    fetcher = ContentFetcher(allowed_hosts=["127.0.0.1"], timeout=1, most_bytes=1 << 20)
    assert fetcher.read(f"{server.url}/page#part") == "T\nHello\nwörld & all"
    assert server.asked[0][3]["host"] == f"127.0.0.1:{server.server_port}"
    assert fetcher.read(f"{server.url}/redirect?to=/page").endswith("wörld & all")
    assert len(fetcher.read(f"{server.url}/endless")) == 1 << 20
    for path, problem in (
        ("/slow", "within 1 seconds"),
        ("/binary", "no text, but image/png"),
        ("/none", "404"),
        ("/redirect?to=/redirect?to=/redirect?to=/x", "404"),
    ):
        good, text = fetcher.fetch(f"{server.url}{path}")
        assert not good
        assert problem in text
    loop = f"{server.url}/redirect?to=/redirect%3Fto=%2Fredirect"
    assert not fetcher.fetch(loop)[0]


# Searching


@pytest.mark.parametrize("cls", [WebBrowser, AsyncWebBrowser])
def test_a_browser_searches_selects_and_opens(server: Any, cls: Any) -> None:
    browser = cls("SearxngSearch", url=f"{server.url}/searx", allowed_hosts=["127.0.0.1"], topk=5)
    found = settled(browser.search(["a", "b"], session_id="s"))
    assert found == {0: {"url": f"{server.url}/page", "summ": "one\none", "title": "title one"}}
    settled(browser.search("a", session_id="s"))
    assert len(server.asked) == 2  # the results of a query are kept for a while
    read = settled(browser.select([0, 7], session_id="s"))
    assert read[0]["content"] == "T\nHello\nwörld & all"
    with pytest.raises(ValueError, match="search first"):
        settled(browser.select([0], session_id="other"))
    assert settled(browser.open_url(f"{server.url}/page"))["content"].startswith("T\nHello")
    assert "not of the public web" in settled(browser.open_url("http://169.254.169.254/"))["error"]
    browser.close_session("s")
    with pytest.raises(ValueError, match="search first"):
        settled(browser.select([0], session_id="s"))


async def test_an_executor_runs_a_browser_of_either_colour(server: Any) -> None:
    message = AgentMessage({"name": "Web.search", "parameters": {"query": ["a"]}})
    for cls in (WebBrowser, AsyncWebBrowser):
        browser = cls("SearxngSearch", url=f"{server.url}/searx", description={"name": "Web"})
        plain = await asyncio.to_thread(ActionExecutor(browser), message)
        other = await AsyncActionExecutor(browser)(message)
        assert plain.content == other.content
        assert "title one" in plain.content.format_result()
    assert FromCore is WebBrowser


def test_the_other_engines_speak_their_formats(server: Any) -> None:
    browser = WebBrowser("BraveSearch", api_key="k", url=server.url)
    assert browser.search("q") == {0: {"url": "http://b.org", "summ": "d e", "title": "B"}}
    assert server.asked[-1][3]["x-subscription-token"] == "k"
    assert server.asked[-1][2]["count"] == "20"
    browser = WebBrowser("GoogleSearch", api_key="k", url=server.url)
    assert [result["url"] for result in browser.search("q").values()] == ["http://k.org", "http://g.org"]
    assert json.loads(server.asked[-1][4]) == {"q": "q", "num": 20}
    browser = WebBrowser("TencentSearch", secret_id="i", secret_key="s", url=f"{server.url}/tencent", tsn=2)
    assert browser.search("q")[0]["summ"] == "c"
    assert json.loads(server.asked[-1][4]) == {"Query": "q", "Tsn": 2}
    assert server.asked[-1][3]["authorization"].startswith("TC3-HMAC-SHA256 Credential=i/")
    with pytest.raises(ConfigurationError, match="no search engine 'Altavista'; there are DuckDuckGoSearch"):
        WebBrowser("Altavista")
    assert isinstance(WebBrowser(BraveSearch("k")).searcher, BraveSearch)


def test_the_signature_of_tencent_depends_on_what_is_asked() -> None:
    search = TencentSearch("id", "key")
    first, second = search._headers('{"Query":"a"}', 1700000000), search._headers('{"Query":"a"}', 1700000000)
    assert first == second
    assert "Credential=id/2023-11-14/tms/tc3_request, SignedHeaders=content-type;host;x-tc-action" in first["Authorization"]
    assert search._headers('{"Query":"b"}', 1700000000)["Authorization"] != first["Authorization"]


def test_a_service_that_fails_is_asked_again_and_then_told(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lagent_actions.web.engines.time.sleep", lambda _: None)
    browser = WebBrowser(SearxngSearch(url=f"{server.url}/broken"))
    with pytest.warns(UserWarning, match="failed"):
        result = browser({"query": "q"}, "search")
    assert result.state == ActionStatusCode.API_ERROR
    assert "the service answered 503" in result.errmsg
    assert len(server.asked) == 3


def test_services_that_are_no_more_say_so() -> None:
    browser = WebBrowser("BingSearch", api_key="k")
    with pytest.warns(UserWarning, match="failed"):
        result = browser({"query": "q"}, "search")
    assert "shut down the Bing Search API" in result.errmsg
    assert "DuckDuckGoSearch" in result.errmsg
    for cls in (BINGMap, AsyncBINGMap):
        with pytest.raises(RetiredServiceError, match="OpenStreetMap"):
            cls("key")


@pytest.mark.parametrize("cls", [GoogleSearch, AsyncGoogleSearch])
def test_google(server: Any, cls: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    action = cls("k", url=server.url)
    assert settled(action({"query": "q", "k": 2})).format_result() == "K: Thing.\nkd\ns\nYear: 1."
    assert server.asked[-1][3]["x-api-key"] == "k"
    failed = settled(cls("k", url=f"{server.url}/broken")({"query": "q"}))
    assert failed.state == ActionStatusCode.HTTP_ERROR
    monkeypatch.delenv("SERPER_API_KEY", raising=False)
    with pytest.raises(ConfigurationError, match="SERPER_API_KEY"):
        cls()


@pytest.mark.parametrize("cls", [GoogleScholar, AsyncGoogleScholar])
def test_google_scholar(server: Any, cls: Any) -> None:
    action = cls("secret-key", url=f"{server.url}/serpapi")
    found = settled(action.search_google_scholar("q", as_ylo=2017))
    assert found == {
        "title": ["Attention", "No links"],
        "cited_by": [9, ""],
        "organic_id": ["id1", "id2"],
        "pub_info": ["NIPS", ""],
        "snippets": ["sn", ""],
    }
    assert server.asked[-1][2] == {"engine": "google_scholar", "api_key": "secret-key", "q": "q", "as_ylo": "2017"}
    assert settled(action.get_author_information("xyz"))["articles"] == [{"title": "t", "authors": "a"}]
    assert settled(action.get_citation_format("id1")) == "Author, A."
    assert settled(action.get_author_id("A")) == {"author_id": "xyz"}
    assert server.asked[-1][2]["no_cache"] == "false"
    nothing = settled(action({"query": "nothing"}, "search_google_scholar"))
    assert nothing.state == ActionStatusCode.HTTP_ERROR
    assert "hasn't returned any results" in nothing.errmsg
    broken = settled(cls("secret-key", url=f"{server.url}/broken")({"query": "q"}, "search_google_scholar"))
    assert "secret-key" not in broken.errmsg


@pytest.mark.parametrize("cls", [ArxivSearch, AsyncArxivSearch])
def test_arxiv(server: Any, cls: Any) -> None:
    client = arxiv.Client(page_size=3, delay_seconds=0, num_retries=0)
    client.query_url_format = f"{server.url}/arxiv?{{}}"
    found = settled(cls(client=client)({"query": "attention"}, "get_arxiv_article_information")).format_result()
    assert "Published: 2023-08-02" in found
    assert "Title: Attention Is All You Need" in found
    assert "Authors: Ashish Vaswani, Noam Shazeer" in found
    assert server.asked[-1][2]["search_query"] == "attention"
    client.query_url_format = f"{server.url}/broken?{{}}"
    failed = settled(cls(client=client)({"query": "attention"}, "get_arxiv_article_information"))
    assert failed.state == ActionStatusCode.HTTP_ERROR
    client._session.close()


def test_what_ddgs_gives_and_how_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    from ddgs.exceptions import DDGSException

    asked = []

    def text(self: Any, query: str, **options: Any) -> Any:
        asked.append((query, options["max_results"]))
        if query == "fail":
            raise DDGSException("No results found.")
        return [{"href": "http://d.org", "body": "b", "title": "D"}, {"href": "http://youtube.com/v", "body": "", "title": ""}]

    monkeypatch.setattr("ddgs.ddgs.DDGS.text", text)
    monkeypatch.setattr("lagent_actions.web.engines.time.sleep", lambda _: None)
    browser = WebBrowser(topk=2)
    assert browser.search("'q'") == {0: {"url": "http://d.org", "summ": "b", "title": "D"}}
    assert asked == [("q", 4)]
    with pytest.raises(Exception, match="No results found"), pytest.warns(UserWarning, match="failed"):
        browser.search("fail")


@pytest.mark.skipif("LAGENT_TEST_INTERNET" not in os.environ, reason="asks DuckDuckGo; set LAGENT_TEST_INTERNET to do so")
def test_duckduckgo() -> None:
    assert WebBrowser(topk=3).search("Python programming language")


def test_slides(tmp_path: Path) -> None:
    from PIL import Image
    from pptx import Presentation

    from lagent_actions.ppt import PPT, AsyncPPT

    Image.new("RGB", (40, 90), "red").save(tmp_path / "i.png")
    for cls in (PPT, AsyncPPT):
        slides = cls(work_dir=str(tmp_path))
        settled(slides.create_file("Default", str(tmp_path / "a.pptx"), session_id=1))
        settled(slides.add_first_page("Title", "Sub", session_id=1))
        settled(slides.add_text_page("Page", "one[SPAN] two", session_id=1))
        settled(slides.add_text_image_page("Picture", "text", "i.png", session_id=1))
        assert "a.pptx" in settled(slides.submit_file(session_id=1))["status"]
        first, second, third = Presentation(str(tmp_path / "a.pptx")).slides
        assert [shape.text_frame.text for shape in first.placeholders] == ["Title", "Sub"]
        assert second.placeholders[1].text_frame.text == "one\ntwo"
        assert [shape.name.split()[0] for shape in third.shapes] == ["Title", "Content", "Picture"]
        for call, problem in (
            ({"theme": "Default", "abs_location": "../b.pptx"}, "outside of"),
            ({"theme": "Default", "abs_location": "/etc/b.pptx"}, "outside of"),
            ({"theme": "Default", "abs_location": "b.txt"}, r"has to end in .pptx"),
            ({"theme": "Neon", "abs_location": "b.pptx"}, "no theme 'Neon'"),
        ):
            assert problem in settled(slides(call, "create_file")).errmsg
        assert "create_file first" in settled(slides({}, "submit_file")).errmsg
