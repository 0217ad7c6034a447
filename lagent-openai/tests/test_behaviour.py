"""Closing, cancelling, limiting, and what an agent remembers when its model fails."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from lagent import llms, registry
from lagent.agents import Agent, AsyncAgent, AsyncStreamingAgent, StreamingAgent
from lagent.errors import (
    EngineError,
    ModelConfigurationError,
    ModelConnectionError,
    ModelError,
    ModelTimeoutError,
    RateLimitError,
)
from lagent.testing.kit import items, value_of
from lagent_openai import GPTAPI, AsyncGPTAPI

from .faulty_server import END, HELLO, STREAM, Reply, Server, answer, event, failure, http, stream

ASK = [{"role": "user", "content": "Say hello"}]


# Closing and cancelling


def test_closing_a_stream_closes_the_connection(server: Server, make: Any) -> None:
    server.play(Reply([STREAM, *HELLO, Reply.HANG]))
    chunks = make().stream_chat(ASK)
    assert next(chunks).content == "Hel"
    chunks.close()
    assert server.gone.wait(5)


async def test_closing_an_asynchronous_stream_closes_the_connection(server: Server, amake: Any) -> None:
    server.play(Reply([STREAM, *HELLO, Reply.HANG]))
    chunks = amake().stream_chat(ASK)
    assert (await anext(chunks)).content == "Hel"
    await chunks.aclose()
    assert await asyncio.to_thread(server.gone.wait, 5)


@pytest.mark.parametrize("reply", [Reply([Reply.HANG]), Reply([STREAM, Reply.HANG]), Reply([STREAM, *HELLO, Reply.HANG])])
@pytest.mark.parametrize("streaming", [False, True])
async def test_cancelling_closes_the_connection(server: Server, amake: Any, reply: Reply, streaming: bool) -> None:
    server.play(reply)
    model = amake()

    async def consume() -> None:
        async for _ in model.stream_chat(ASK):
            pass

    task = asyncio.create_task(consume() if streaming else model.chat(ASK))
    await asyncio.to_thread(server.wait_for, 1)
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(server.gone.wait, 5)


async def test_a_connection_is_used_again(server: Server, amake: Any) -> None:
    model = amake()
    for _ in range(3):
        await model.chat(ASK)
    assert len(server.connections) == 1


def test_one_model_on_several_event_loops(server: Server) -> None:
    model = AsyncGPTAPI("m", api_base=server.url, key="x", retry=0)

    async def use() -> None:
        assert await model.chat(ASK) == "Hello"
        await model.close()

    for _ in range(3):
        asyncio.run(use())


def test_one_model_in_several_threads(server: Server, make: Any) -> None:
    model = make()
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda _: model.chat(ASK), range(32))) == ["Hello"] * 32


async def test_synchronous_model_inside_an_event_loop(server: Server, make: Any) -> None:
    assert make().chat(ASK) == "Hello"


# The cap on concurrent requests

SLOW = Reply([STREAM, *HELLO, 0.1, *END])


async def test_cap_is_shared_by_all_agents(server: Server, amake: Any) -> None:
    server.play(SLOW)
    model = amake(max_concurrency=3)
    agents = [AsyncStreamingAgent(llm=model, name=str(number)) for number in range(4)]

    async def call(agent: Any, session: int) -> str:
        return [message async for message in agent("hello", session_id=session)][-1].content

    assert await asyncio.gather(*(call(agent, session) for agent in agents for session in range(3))) == ["Hello"] * 12
    assert server.peak == 3


def test_cap_holds_across_threads(server: Server, make: Any) -> None:
    server.play(SLOW)
    model = make(max_concurrency=2)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: list(model.stream_chat(ASK)), range(8)))
    assert server.peak == 2


def test_cap_holds_across_event_loops(server: Server) -> None:
    server.play(Reply([0.1, *answer().steps]))
    model = AsyncGPTAPI("m", api_base=server.url, key="x", retry=0, max_concurrency=2)
    answered, closed = threading.Barrier(3), threading.Barrier(3)

    async def use(number: int) -> None:
        assert await asyncio.gather(*(model.chat(ASK) for _ in range(3))) == ["Hello"] * 3
        await asyncio.to_thread(answered.wait)
        if number == 0:
            await model.close()  # on the other loops too, which have to run until then
        await asyncio.to_thread(closed.wait)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda number: asyncio.run(use(number)), range(3)))
    assert server.peak == 2


async def test_a_slot_is_given_back(server: Server, amake: Any) -> None:
    """By an error, a closed stream, a cancelled call, and a call that was cancelled while it waited."""
    server.play(failure(500), stream(*HELLO, Reply.HANG), Reply([Reply.HANG]), answer())
    model = amake(max_concurrency=1)
    with pytest.raises(EngineError):
        await model.chat(ASK)
    chunks = model.stream_chat(ASK)
    await anext(chunks)
    waiting = asyncio.create_task(model.chat(ASK))
    await asyncio.sleep(0.05)
    waiting.cancel()
    await chunks.aclose()
    hanging = asyncio.create_task(model.chat(ASK))
    await asyncio.to_thread(server.wait_for, 3)
    hanging.cancel()
    await asyncio.gather(waiting, hanging, return_exceptions=True)
    assert await asyncio.wait_for(model.chat(ASK), 5) == "Hello"


async def test_waiting_for_a_slot_does_not_count_as_time_of_the_request(server: Server, amake: Any) -> None:
    server.play(Reply([0.2, *answer().steps]))
    model = amake(max_concurrency=1, timeout=0.5)
    assert await asyncio.gather(*(model.chat(ASK) for _ in range(4))) == ["Hello"] * 4


def test_cap_that_cannot_be_used(make: Any) -> None:
    with pytest.raises(ModelConfigurationError, match="max_concurrency"):
        make(max_concurrency=0)


# What an agent remembers

FAULTS = {
    "400": (failure(400), ModelConfigurationError),
    "429": (failure(429), RateLimitError),
    "500": (failure(500), EngineError),
    "reset before headers": (Reply([Reply.RESET]), ModelConnectionError),
    "reset in the middle": (stream(*HELLO, 0.05, Reply.RESET), ModelConnectionError),
    "closed in the middle": (stream(*HELLO), ModelConnectionError),
    "half a character": (stream(*HELLO, b'data: {"choices": [{"delta": {"content": "\xe6'), EngineError),
    "no JSON": (stream(*HELLO, b"data: {oops\n\n"), EngineError),
    "an error object": (stream(*HELLO, event(error={"message": "x"})), EngineError),
    "stalled": (Reply([STREAM, *HELLO, Reply.HANG]), ModelTimeoutError),
    "redirect in circles": (http(307, "", location="/v1/chat/completions"), ModelConnectionError),
}


@pytest.mark.parametrize(("fault", "error"), FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("kind", [StreamingAgent, AsyncStreamingAgent])
def test_memory_is_as_before_a_call_that_failed(
    server: Server, make: Any, kind: Any, fault: Reply, error: type[ModelError]
) -> None:
    agent = kind(llm=make(timeout={"between_tokens": 0.2}))
    server.play(stream(*HELLO, *END))
    list(items(agent("first")))
    before = agent.state_dict()
    server.play(fault)
    with pytest.raises(error):
        list(items(agent("second")))
    assert agent.state_dict() == before
    server.play(stream(*HELLO, *END))
    assert list(items(agent("third")))[-1].content == "Hello"
    assert [message["content"] for message in server.requests[-1].body["messages"]] == ["first", "Hello", "third"]


@pytest.mark.parametrize("kind", [Agent, AsyncAgent])
def test_memory_is_as_before_a_whole_answer_that_failed(server: Server, make: Any, kind: Any) -> None:
    agent = kind(llm=make())
    value_of(agent, "first")
    before = agent.state_dict()
    server.play(http(200, {"choices": []}))
    with pytest.raises(EngineError):
        value_of(agent, "second")
    assert agent.state_dict() == before


def test_streaming_agent_that_is_closed_closes_the_connection(server: Server, make: Any) -> None:
    server.play(Reply([STREAM, *HELLO, Reply.HANG]))
    agent = StreamingAgent(llm=make())
    messages = agent("hello")
    next(messages)
    messages.close()
    assert server.gone.wait(5)
    assert list(agent.state_dict()["memory"]) == []


def test_answer_of_an_agent_carries_what_the_server_said(server: Server, make: Any) -> None:
    message = Agent(llm=make())("hello")
    assert message.content == "Hello"
    assert message.extra_info["usage"]["cached_tokens"] == 4
    assert message.extra_info["request_id"] == "chatcmpl-1"


def test_names(server: Server) -> None:
    assert registry.get("llms", "openai") is GPTAPI is llms.GPTAPI
    assert registry.get("async_llms", "openai") is AsyncGPTAPI is llms.AsyncGPTAPI
    agent = Agent(llm={"type": "openai", "model_type": "m", "api_base": server.url, "timeout": {"total": 5}})
    assert agent("hello").content == "Hello"
    agent.llm.close()


def test_no_thread_of_its_own_is_left(server: Server, make: Any) -> None:
    make().chat(ASK)
    before = threading.active_count()
    for _ in range(3):
        make().chat(ASK)
    assert threading.active_count() <= before + 3  # the server's own, one for each connection
