"""The models fallback and recorded, in both colours."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from lagent import registry
from lagent.agents import Agent, AsyncStreamingAgent
from lagent.errors import (
    ContextOverflowError,
    EngineError,
    ModelConfigurationError,
    ModelConnectionError,
    RateLimitError,
)
from lagent.llms import BaseLLM
from lagent.schema import ModelResponse, ResponseBuilder, ToolCall, Usage
from lagent.testing.kit import items, value_of
from lagent_openai import AsyncFallback, AsyncRecorded, Fallback, Recorded

from .faulty_server import END as LAST
from .faulty_server import HELLO, Reply, Server, answer, event, failure, serving, stream

ASK = [{"role": "user", "content": "Say hello"}]
KEY = "sk-secret-key-of-the-test"


def whole(model: Any, **options: Any) -> ModelResponse:
    return value_of(model.chat, ASK, **options)


def streamed(model: Any, **options: Any) -> ModelResponse:
    builder = ResponseBuilder()
    for chunk in items(model.stream_chat(ASK, **options)):
        builder.add(chunk)
    return builder.response()


WAYS = pytest.mark.parametrize("ask", [whole, streamed])
FALLBACKS = pytest.mark.parametrize("kind", [Fallback, AsyncFallback])
RECORDERS = pytest.mark.parametrize("kind", [Recorded, AsyncRecorded])


def reply(ask: Any) -> Reply:
    return answer() if ask is whole else stream(*HELLO, *LAST)


@pytest.fixture
def other() -> Any:
    with serving() as server:
        yield server


class Plain(BaseLLM):
    """A model in lagent's own style."""

    def chat(self, inputs: Any, **options: Any) -> str:
        return f"plain {inputs[-1]['content']}"

    def stream_chat(self, inputs: Any, **options: Any) -> Any:
        for text in ("pl", "plain"):
            yield 1, text, None


# Fallback


@WAYS
@FALLBACKS
def test_first_model_answers(server: Server, other: Server, make: Any, kind: Any, ask: Any) -> None:
    server.play(reply(ask))
    response = ask(kind([make(), make(api_base=other.url)]))
    assert response == "Hello"
    assert "fallback" not in response.extra
    assert other.requests == []


@WAYS
@FALLBACKS
@pytest.mark.parametrize("fault", [failure(500), failure(429), failure(401), Reply([Reply.RESET])])
def test_next_model_answers(server: Server, other: Server, make: Any, kind: Any, ask: Any, fault: Reply) -> None:
    server.play(fault)
    other.play(reply(ask))
    response = ask(kind([make(), make(api_base=other.url)]), temperature=0.5)
    assert response == "Hello"
    assert response.usage == Usage(7, 3, 4, 1)
    assert response.extra["fallback"]["model"] == "m"
    [failed] = response.extra["fallback"]["failed"]
    assert failed["model"] == "m"
    assert failed["error"].split(":")[0] in ("EngineError", "RateLimitError", "AuthenticationError", "ModelConnectionError")
    assert other.requests[0].body["temperature"] == 0.5


@FALLBACKS
def test_each_model_keeps_its_own_sampling_parameters(server: Server, make: Any, kind: Any) -> None:
    value_of(kind([make(temperature=0.25, max_new_tokens=9)]).chat, ASK)
    assert server.requests[0].body["temperature"] == 0.25
    assert server.requests[0].body["max_tokens"] == 9


@WAYS
@FALLBACKS
def test_no_fallback_for_what_fails_everywhere(server: Server, other: Server, make: Any, kind: Any, ask: Any) -> None:
    server.play(failure(400, "unknown model"))
    with pytest.raises(ModelConfigurationError, match="unknown model"):
        ask(kind([make(), make(api_base=other.url)]))
    assert other.requests == []


@WAYS
@FALLBACKS
def test_fallback_on_chosen_errors(server: Server, make: Any, kind: Any, ask: Any) -> None:
    server.play(failure(400, "maximum context length"))
    assert ask(kind([make(), Plain()], on=["ContextOverflowError"])).startswith("plain")
    server.play(failure(500))
    with pytest.raises(EngineError):
        ask(kind([make(), Plain()], on=[ContextOverflowError]))


@WAYS
@FALLBACKS
def test_all_models_fail(server: Server, other: Server, make: Any, kind: Any, ask: Any) -> None:
    server.play(failure(500))
    other.play(failure(429, retry_after="9"))
    with pytest.raises(RateLimitError) as caught:
        ask(kind([make(), make(api_base=other.url)]))
    assert caught.value.retry_after == 9


@FALLBACKS
def test_no_fallback_once_a_token_was_delivered(server: Server, other: Server, make: Any, kind: Any) -> None:
    server.play(stream(*HELLO, 0.05, Reply.RESET))
    with pytest.raises(ModelConnectionError):
        streamed(kind([make(), make(api_base=other.url)]))
    assert other.requests == []


def test_fallback_from_a_configuration(server: Server, other: Server) -> None:
    server.play(failure(503))
    models = [{"type": "openai", "model_type": name, "api_base": s.url, "retry": 0} for name, s in (("a", server), ("b", other))]
    agent = Agent(llm={"type": "fallback", "models": models})
    message = agent("hello")
    assert message.content == "Hello"
    assert message.extra_info["fallback"]["model"] == "b"
    agent.llm.close()


@pytest.mark.parametrize("on", [["NoSuchError"], [ValueError], ["LagentError"]])
def test_fallback_on_what_is_no_error_of_a_model(on: Any) -> None:
    with pytest.raises(ModelConfigurationError, match="on="):
        Fallback([Plain()], on=on)


def test_fallback_without_models() -> None:
    with pytest.raises(ModelConfigurationError, match="needs a model"):
        Fallback([])


def test_registry_names() -> None:
    assert registry.get("llms", "fallback") is Fallback
    assert registry.get("async_llms", "fallback") is AsyncFallback
    assert registry.get("llms", "recorded") is Recorded
    assert registry.get("async_llms", "recorded") is AsyncRecorded


# Recorded


@WAYS
@RECORDERS
def test_recorded_answer_needs_no_server(server: Server, make: Any, kind: Any, ask: Any, tmp_path: Path) -> None:
    call = {"index": 0, "id": "c1", "function": {"name": "add", "arguments": '{"a": 1}'}}
    last = event({"tool_calls": [call]}), event({}, "stop"), LAST[1], LAST[2]
    server.play(
        answer("Hello", reasoning="because", tool_calls=[call])
        if ask is whole
        else stream(event({"reasoning": "because"}), *HELLO, *last)
    )
    path = tmp_path / "tests" / "cassette.json"
    first = ask(kind(make(), path), temperature=0.5)
    server.play(failure(500))
    again = ask(kind(make(), path, mode="replay"), temperature=0.5)
    assert len(server.requests) == 1
    for response in (first, again):
        assert response == "Hello"
        assert response.reasoning == "because"
        assert response.tool_calls == [ToolCall("add", {"a": 1}, "c1")]
        assert response.finish_reason == "tool_calls"
        assert response.usage == Usage(7, 3, 4, 1)
        assert response.extra == {"request_id": "chatcmpl-1"}


@RECORDERS
def test_stream_is_replayed_in_the_same_pieces(server: Server, make: Any, kind: Any, tmp_path: Path) -> None:
    server.play(stream(*HELLO, *LAST))
    path = tmp_path / "cassette.json"
    streamed(kind(make(), path))
    replay = kind(make(), path, mode="replay")
    assert [chunk.content for chunk in items(replay.stream_chat(ASK))] == ["Hel", "lo", ""]
    assert whole(replay) == "Hello", "what was streamed can be had whole"


@RECORDERS
@pytest.mark.parametrize(
    "change",
    [
        {"temperature": 0.9},
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"output_schema": {"type": "object"}},
    ],
)
def test_other_request_is_not_answered(server: Server, make: Any, kind: Any, change: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "cassette.json"
    whole(kind(make(), path))
    with pytest.raises(ModelConfigurationError, match=f"differs in (params.)?{next(iter(change))}"):
        whole(kind(make(), path, mode="replay"), **change)


@RECORDERS
def test_model_and_its_parameters_belong_to_the_request(server: Server, make: Any, kind: Any, tmp_path: Path) -> None:
    path = tmp_path / "cassette.json"
    whole(kind(make(), path))
    with pytest.raises(ModelConfigurationError, match="seed"):
        whole(kind(make(seed=4), path, mode="replay"))
    with pytest.raises(ModelConfigurationError, match="nothing was recorded"):
        whole(kind(make(), tmp_path / "empty.json", mode="replay"))


def test_the_difference_is_shown(server: Server, make: Any, tmp_path: Path) -> None:
    path = tmp_path / "cassette.json"
    Recorded(make(), path).chat(ASK)
    with pytest.raises(ModelConfigurationError, match=r"messages\[0\].content \('Say hello' was recorded, 'Say bye' is asked\)"):
        Recorded(make(), path, mode="replay").chat([{"role": "user", "content": "Say bye"}])


def test_sessions_and_request_ids_do_not_matter(server: Server, make: Any, tmp_path: Path) -> None:
    path = tmp_path / "cassette.json"
    Recorded(make(), path).chat(ASK, session_id="one")
    assert Recorded(make(), path, mode="replay").chat(ASK, session_id="two") == "Hello"


def test_same_request_several_times(server: Server, make: Any, tmp_path: Path) -> None:
    path = tmp_path / "cassette.json"
    server.play(answer("one"), answer("two"))
    recorder = Recorded(make(), path, mode="record")
    assert [recorder.chat(ASK), recorder.chat(ASK)] == ["one", "two"]
    replay = Recorded(make(), path, mode="replay")
    assert [replay.chat(ASK) for _ in range(3)] == ["one", "two", "two"]


def test_auto_asks_only_for_what_is_new(server: Server, make: Any, tmp_path: Path) -> None:
    path = tmp_path / "cassette.json"
    for _ in range(2):
        model = Recorded(make(), path)
        model.chat(ASK)
        model.chat([{"role": "user", "content": "other"}])
    assert len(server.requests) == 2


def test_record_begins_anew(server: Server, make: Any, tmp_path: Path) -> None:
    path = tmp_path / "cassette.json"
    Recorded(make(), path).chat(ASK)
    server.play(answer("new"))
    Recorded(make(), path, mode="record").chat(ASK)
    assert Recorded(make(), path, mode="replay").chat(ASK) == "new"


@WAYS
def test_errors_are_recorded(server: Server, make: Any, ask: Any, tmp_path: Path) -> None:
    path = tmp_path / "cassette.json"
    server.play(failure(429, "slow down", retry_after="7"))
    for mode in ("auto", "replay"):
        with pytest.raises(RateLimitError, match="slow down") as caught:
            ask(Recorded(make(), path, mode=mode))
        assert caught.value.retry_after == 7
    assert len(server.requests) == 1


def test_broken_or_closed_stream_is_not_recorded(server: Server, make: Any, tmp_path: Path) -> None:
    path = tmp_path / "cassette.json"
    server.play(stream(*HELLO, 0.05, Reply.RESET))
    with pytest.raises(ModelConnectionError):
        streamed(Recorded(make(), path))
    server.play(stream(*HELLO, *LAST))
    chunks = Recorded(make(), path).stream_chat(ASK)
    next(chunks)
    chunks.close()
    assert not path.exists()


def test_cassette_is_for_people(server: Server, make: Any, tmp_path: Path) -> None:
    path = tmp_path / "cassette.json"
    Recorded(make(), path).chat([{"role": "user", "content": "Grüße, 世界"}])
    text = path.read_text(encoding="utf-8")
    assert "Grüße, 世界" in text
    document = json.loads(text)
    assert document["request"]["messages"] == [{"role": "user", "content": "Grüße, 世界"}]
    assert document["answer"][0]["content"] == "Hello"
    path.write_text(text.replace('"Hello"', '"Edited"'), encoding="utf-8")
    assert Recorded(make(), path, mode="replay").chat([{"role": "user", "content": "Grüße, 世界"}]) == "Edited"


def test_keys_are_scrubbed_and_the_request_is_found_again(server: Server, make: Any, tmp_path: Path) -> None:
    path = tmp_path / "cassette.json"
    messages = [{"role": "user", "content": f"my key is {KEY}, hers sk-proj-0123456789abcdefghij, his Bearer abc.def"}]
    server.play(answer(f"so it is {KEY}"))
    Recorded(make(), path).chat(messages)
    text = path.read_text()
    assert not [secret for secret in (KEY, "0123456789abcdefghij", "abc.def") if secret in text]
    assert Recorded(make(key="another"), path, mode="replay").chat(messages) == "so it is ***"


@pytest.mark.parametrize("text", ['{"request": {}', "[]", '{"answer": []}', "{} {}"])
def test_damaged_cassette(text: str, tmp_path: Path) -> None:
    path = tmp_path / "cassette.json"
    path.write_text(text)
    with pytest.raises(ModelConfigurationError, match="damaged at line 1"):
        Recorded(Plain(), path)


def test_unknown_mode(tmp_path: Path) -> None:
    with pytest.raises(ModelConfigurationError, match="replay"):
        Recorded(Plain(), tmp_path / "x", mode="once")


async def test_concurrent_recording_loses_nothing(server: Server, amake: Any, tmp_path: Path) -> None:
    path = tmp_path / "cassette.json"
    model = AsyncRecorded(amake(), path)
    asked = [[{"role": "user", "content": str(number)}] for number in range(20)]
    await asyncio.gather(*(model.chat(messages) for messages in asked))
    replay = AsyncRecorded(amake(), path, mode="replay")
    assert await asyncio.gather(*(replay.chat(messages) for messages in asked)) == ["Hello"] * 20


async def test_agent_over_recorded_over_fallback(server: Server, amake: Any, tmp_path: Path) -> None:
    server.play(failure(500), stream(*HELLO, *LAST))
    model = AsyncRecorded(AsyncFallback([amake(), amake()]), tmp_path / "cassette.json")
    messages = [message async for message in AsyncStreamingAgent(llm=model)("hello")]
    assert messages[-1].content == "Hello"
    assert messages[-1].extra_info["fallback"]["failed"]
