"""Keys and base URLs: where they come from, that they are used in turn, and that they show nowhere."""

from __future__ import annotations

import logging
import time
import traceback
from typing import Any

import pytest

from lagent.agents import Agent, StreamingAgent
from lagent.errors import AuthenticationError, ModelConfigurationError, ModelError, RateLimitError
from lagent.testing.kit import items
from lagent_openai import Recorded

from .faulty_server import END, HELLO, Server, answer, failure, serving, stream

ASK = [{"role": "user", "content": "Say hello"}]
KEY = "sk-secret-key-of-the-test"


def used(server: Server) -> list[str]:
    return [request.headers["authorization"].removeprefix("Bearer ") for request in server.requests]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORG_ID"):
        monkeypatch.delenv(name, raising=False)


def test_from_the_environment(server: Server, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "from-the-environment")
    make(key="ENV").chat(ASK)
    assert used(server) == ["from-the-environment"]


def test_server_without_keys(server: Server, make: Any) -> None:
    assert make(key="ENV").chat(ASK) == "Hello"


def test_openai_needs_a_key(make: Any) -> None:
    model = make(key="ENV", api_base=None)
    with pytest.raises(AuthenticationError, match="OPENAI_API_KEY"):
        model.chat(ASK)


def test_from_a_function_for_every_request(server: Server, make: Any) -> None:
    keys = iter(["first", "second"])
    model = make(key=lambda: next(keys), dialect="openai")
    model.chat(ASK)
    model.chat(ASK)
    assert used(server) == ["first", "second"]


async def test_from_a_coroutine_function(server: Server, amake: Any) -> None:
    async def fetch() -> str:
        return "fetched"

    await amake(key=fetch, dialect="openai").chat(ASK)
    assert used(server) == ["fetched"]


def test_function_that_fails(server: Server, make: Any) -> None:
    def fetch() -> str:
        raise OSError("the vault is closed")

    with pytest.raises(AuthenticationError, match="the vault is closed"):
        make(key=fetch).chat(ASK)


def test_keys_in_turn(server: Server, make: Any) -> None:
    model = make(key=["a", "b", "c"], dialect="openai")
    for _ in range(6):
        model.chat(ASK)
    assert sorted(used(server)[:3]) == ["a", "b", "c"]
    assert used(server)[3:] == used(server)[:3]


@pytest.mark.parametrize("code", [None, "insufficient_quota"])
def test_rejected_key_is_passed_over(server: Server, make: Any, code: str | None) -> None:
    server.play(failure(401 if code is None else 429, "no", code), answer())
    model = make(key=["a", "b"], dialect="openai")
    for _ in range(3):
        assert model.chat(ASK) == "Hello"
    rejected, *others = used(server)
    assert set(others) == {"a", "b"} - {rejected}


def test_rate_limited_key_rests(server: Server, make: Any) -> None:
    server.play(failure(429, retry_after="0.3"), answer())
    model = make(key=["a", "b"], dialect="openai")
    model.chat(ASK)
    model.chat(ASK)
    limited, *others = used(server)
    assert limited not in others
    time.sleep(0.3)
    model.chat(ASK)
    model.chat(ASK)
    assert limited in used(server)[3:]


def test_all_keys_rate_limited(server: Server, make: Any) -> None:
    server.play(failure(429, retry_after="60"), failure(429, retry_after="30"))
    with pytest.raises(RateLimitError) as caught:
        make(key=["a", "b"], dialect="openai").chat(ASK)
    assert caught.value.retry_after == 30, "the first key to be free again decides"
    assert len(server.requests) == 2


def test_all_keys_rejected(server: Server, make: Any) -> None:
    server.play(failure(401))
    model = make(key=["a", "b"], dialect="openai", retry=3)
    with pytest.raises(AuthenticationError):
        model.chat(ASK)
    assert len(server.requests) == 2
    server.play(answer())
    assert model.chat(ASK) == "Hello", "a key that works again is not lost for good"


def test_streams_rotate_too(server: Server, make: Any) -> None:
    server.play(failure(401), stream(*HELLO, *END))
    assert "".join(chunk.content for chunk in make(key=["a", "b"]).stream_chat(ASK)) == "Hello"


def test_each_server_with_its_own_key(server: Server, make: Any) -> None:
    with serving() as other:
        model = make(api_base=[server.url, other.url], key=["a", "b"], org=["x", "y"], dialect="openai")
        for _ in range(4):
            model.chat(ASK)
        assert used(server) == ["a", "a"]
        assert used(other) == ["b", "b"]
        assert [request.headers["openai-organization"] for request in other.requests] == ["y", "y"]


def test_each_server_has_its_own_dialect(server: Server, make: Any) -> None:
    server.owned_by = "vllm"
    with serving() as other:
        other.owned_by = "llamacpp"
        model = make(api_base=[server.url, other.url])
        model.chat(ASK, repetition_penalty=1.1)
        model.chat(ASK, repetition_penalty=1.1)
        assert server.requests[0].body["repetition_penalty"] == other.requests[0].body["repeat_penalty"] == 1.1


def test_lists_that_do_not_fit(make: Any) -> None:
    with pytest.raises(ModelConfigurationError, match="key has 2 entries"):
        make(api_base=["http://a/v1", "http://b/v1", "http://c/v1"], key=["a", "b"])


# Never shown


def everything_shown(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)) + repr(error) + repr(vars(error))


@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500])
@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("secret", [KEY, lambda: KEY], ids=["value", "function"])
def test_keys_never_show(
    server: Server, make: Any, caplog: pytest.LogCaptureFixture, tmp_path: Any, status: int, streaming: bool, secret: Any
) -> None:
    caplog.set_level(logging.DEBUG)
    server.play(failure(status, f"Incorrect API key provided: {KEY}. Find your key at https://example.org"))
    model = make(key=secret)
    recorded = Recorded(model, tmp_path / "cassette.json")
    agent = (StreamingAgent if streaming else Agent)(llm=recorded)
    with pytest.raises(ModelError, match="Incorrect API key provided") as caught:
        list(items(agent("Say hello"))) if streaming else agent("Say hello")
    assert KEY in server.requests[0].headers["authorization"]
    shown = {
        "error": everything_shown(caught.value),
        "cause": everything_shown(caught.value.__cause__ or caught.value),
        "log": caplog.text,
        "repr": repr(model) + repr(recorded) + repr(agent),
        "state": repr(agent.state_dict()),
        "attributes": repr(vars(model)) + repr(model._endpoints._all),
        "cassette": (tmp_path / "cassette.json").read_text(),
    }
    assert [place for place, text in shown.items() if KEY in text] == []


def test_a_stand_in_for_a_key_leaves_messages_readable(server: Server, make: Any) -> None:
    server.play(failure(400, "the text exceeds 10 words"))
    with pytest.raises(ModelError, match="the text exceeds"):
        make(key="x").chat(ASK)


def test_password_in_a_url_does_not_show(server: Server, make: Any) -> None:
    server.play(failure(500))
    model = make(api_base=server.url.replace("http://", "http://user:pass-word@"))
    with pytest.raises(ModelError) as caught:
        model.chat(ASK)
    assert "pass-word" not in everything_shown(caught.value) + repr(model) + repr(vars(model))
